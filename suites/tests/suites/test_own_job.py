"""A job of the user's own: how it is named and found, and when a trigger of the catalogue lands in it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shaketable.chaos import job_kinds
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment import configuration, file, rescaling
from shaketable.chaos.history import events as h
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.workloads.worker_api import as_step
from shaketable.suites.tests.rigs.own_job_rig import LAUNCH

WORKER_CRASH = Path(__file__).parents[2] / "experiments" / "worker-crash.yaml"


ON_PROCESSES = ("--subject", "bundled", "--cluster", "processes")
ENDS_WITHIN_S = 120.0
PRINTING = """
import time
from shaketable.runtime import report


def train(config):
    for step in range(1, 21):
        print("step", step)
        time.sleep(0.05)
        report({"step": step})
"""


def test_what_a_killed_worker_has_printed_stands_in_its_log(tmp_path: Path) -> None:
    """Though it has flushed nothing."""
    (tmp_path / "printing.py").write_text(PRINTING)
    own = ["--train", "printing:train", "--step-key", "step", "--results", "out"]
    command = [sys.executable, "-m", "shaketable.suites.command.cli", "run", "worker-crash", *ON_PROCESSES, *own]
    buffering = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    subprocess.run(command, cwd=tmp_path, env=buffering, timeout=ENDS_WITHIN_S, check=False)
    folder = tmp_path / "out" / "worker-crash"
    events = h.read_events(folder / "history.jsonl")
    [killed] = [event.pids[0] for event in events if isinstance(event, h.FaultInjected)]
    [log] = (folder / "witness").glob(f"worker-{killed}-*.log")
    assert log.read_text().startswith("step 1\nstep 2\n")
    assert "log of worker" in (tmp_path / "out" / "report.html").read_text()


# ---- what it is called -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "command"),
    [
        ("my_package.my_job:train", False),
        ("shaketable.workloads:hash_chain", False),
        ("/tmp/x/job.pkl", False),
        ("python train.py", True),
        ("./train.sh", True),
        ("python -m pkg.mod --at a:b", True),
    ],
)
def test_a_job_is_a_function_a_pickle_or_a_command_by_the_way_it_is_written(job: str, command: bool) -> None:
    assert job_kinds.is_command(job) is command


def own(tmp_path: Path, **more: Any) -> Configuration:
    (tmp_path / "job.py").write_text("def train(config): ...")
    told = {"subject": "ray-train", "job": "python job.py", "cwd": str(tmp_path), **more}
    return configuration.configuration(told)


def test_a_function_is_found_in_the_directory_it_was_named_in(tmp_path: Path) -> None:
    assert own(tmp_path, job="job:train").job == "job:train"
    with pytest.raises(ExperimentError, match=r"there is no module 'jop' to import; is it installed or in "):
        own(tmp_path, job="jop:train")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"job": "no-such-program --x"}, "no program 'no-such-program' is on PATH"),
        ({"job": "python 'x"}, "is no command line"),
        ({"subject": "bundled"}, "change the imports of the training function from ray.train to shaketable.runtime"),
        ({"cwd": "/no/such/place"}, "there is no such directory"),
        ({"metrics_tolerance": 2}, "must be from 0 .to the bit. to below 1"),
        ({"within_s": -1}, "must be seconds above 0"),
        ({"control": "maybe"}, "must be true or false"),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_is_started(tmp_path: Path, more: dict[str, Any], says: str) -> None:
    with pytest.raises(ExperimentError, match=says):
        own(tmp_path, **more)


def test_a_job_of_ones_own_takes_the_place_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import ray.train")
    variables = {
        "job": "python train.py",
        "cwd": str(tmp_path),
        "subject": "ray-train",
        "job_config": "{}",
        "step_key": "epoch",
        "within_s": "60",
    }
    plan = file.load(WORKER_CRASH, variables).plan
    made = plan.configuration
    assert (made.job, made.cwd, made.step_key, made.triggers_of) == ("python train.py", str(tmp_path), "epoch", 40)
    assert plan.expect.within_s == 60.0


def test_a_resolved_file_says_all_that_is_particular_to_the_job_and_nothing_else(tmp_path: Path) -> None:
    plan = Plan("own", own(tmp_path, step_key="epoch", metrics_tolerance=0.1), (), Expect())
    said = file.dump(plan)["configuration"]
    assert {key: said.get(key) for key in configuration.OPTIONAL} == {
        "cwd": str(tmp_path),
        "image": None,
        "gcs_storage": None,
        "autoscaler": None,
        "max_nodes": None,
        "launcher": None,
        "backoff_limit": None,
        "tpus": None,
        "step_key": "epoch",
        "metrics_tolerance": 0.1,
        "triggers_of": None,
        "within_s": None,
        "control": None,
    }


@pytest.mark.parametrize(("value", "step"), [(3, 3), (3.0, 3), ("4", 4), (2.5, None), (None, None), ("x", None)])
def test_a_metric_is_a_step_if_it_is_a_whole_number_of_any_type(value: Any, step: int | None) -> None:
    assert as_step(value) == step


# ---- where a trigger lands -------------------------------------------------------------------------------------------


def control_of(*steps: int, commits: Sequence[int] = (1, 2), **more: Any) -> h.ReferenceRun:
    return h.ReferenceRun(metrics={}, tolerance=0.0, steps=list(steps), commits=list(commits), **more)


@pytest.mark.parametrize(
    ("number", "steps", "commits", "lands", "waits_for"),
    [
        (12, range(1, 41), (1, 2), 12, 2),
        (12, range(1, 101), (1, 2), 30, 2),
        (12, range(1, 6), (1, 2), 4, 2),
        (12, range(1, 5), (1, 2), 3, 1),
        (12, range(1, 3), (1, 2), 2, 1),
        (12, range(6), (1, 2), 3, 2),
        (2, range(1, 41), (10, 20), 22, 2),
        (2, range(1, 21), (10, 20), 12, 1),
        (16, range(1, 6), (1,), 3, 1),
        (12, range(1, 41), (), 12, 1),
        (40, range(10, 110, 10), (2, 4), 100, 2),
    ],
)
def test_a_step_of_the_catalogue_lands_at_the_same_place_of_the_job_and_after_a_commit_or_two(
    number: int, steps: Sequence[int], commits: Sequence[int], lands: int, waits_for: int
) -> None:
    control_run = control_of(*steps, commits=commits)
    assert (rescaling.step_of(number, 40, control_run), rescaling.waits_for(control_run)) == (lands, waits_for)


def test_only_steps_are_scaled_and_only_where_the_plan_says_so() -> None:
    faults = (
        FaultPlan("freeze_node", {"rank": 1}, {"step": 12}, {"until": {"step": 20, "after": 0}}),
        FaultPlan("relaunch_driver", None, {"event": "driver_exited"}),
    )
    plan = Plan("p", dataclasses.replace(LAUNCH.configuration, triggers_of=40), faults, Expect())
    settled = rescaling.scaled(plan, control_of(*range(1, 11)))
    assert settled.faults[0].at == {"step": 4, "commits": 2} and settled.faults[0].arguments == {
        "until": {"step": 5, "after": 0}
    }
    assert settled.faults[1] == faults[1] and settled.configuration.triggers_of == 0
    assert rescaling.scaled(settled, control_of(*range(1, 101))) == settled
