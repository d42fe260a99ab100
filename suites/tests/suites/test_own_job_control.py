"""What a control run says of a job: that it is none, and what to do, or what a whole run of it looks like."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shaketable.chaos.history import events as h
from shaketable.chaos.plan import Configuration
from shaketable.chaos.run import baseline, baseline_verdict
from shaketable.chaos.run.phases import Phases, current
from shaketable.suites.gate.outputs import last_event
from shaketable.suites.tests.rigs.own_job_rig import LAUNCH, configured


def whole_run(*steps: int, code: int = 0, key: bool = False) -> list[h.AnyEvent]:
    started = h.AttemptStarted(term=1, attempt=1, world_size=2, members=[], resume=None, resume_index=None)
    reports = [
        h.Stepped(
            term=1,
            attempt=1,
            rank=rank,
            step=step,
            world_size=2,
            index=index if key else None,
            metrics={"loss": 1 / index, "epoch": step},
        )
        for index, step in enumerate(steps, 1)
        for rank in (0, 1)
    ]
    commit = h.Committed(term=1, attempt=1, index=1, checkpoint="c1")
    return [configured(), started, *reports, commit, h.DriverExited(launch=0, code=code)]


def problem(events: Sequence[h.AnyEvent], output: str = "", **more: Any) -> str | None:
    launch = dataclasses.replace(LAUNCH, configuration=dataclasses.replace(LAUNCH.configuration, **more))
    return baseline_verdict.problem(events, launch, output)


def test_a_whole_run_says_how_long_it_is_and_what_it_ends_with() -> None:
    assert problem(whole_run(1, 2, 3)) is None
    reference = baseline_verdict.reference(whole_run(1, 2, 3), LAUNCH.effective)
    assert (reference.steps, reference.commits, reference.world_sizes) == ([1, 2, 3], [1], [2])
    assert reference.metrics == {"loss": 1 / 3, "epoch": 3} and reference.name == "run-1"


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (configured(address="10.0.0.1:6379"), "replace its ray.init(address=...) by ray.init()"),
        (configured(fit=2, name="second"), "calls fit() again, for the run 'second'"),
        (configured(min_workers=4, max_workers=4), "with room for 3: use --var nodes=4"),
        (configured(resources_per_worker={"CPU": 1.0, "GPU": 1.0}), "asks for 1 GPU per worker"),
        (configured(resources_per_worker={"CPU": 2.0}), "asks for 2 CPUs per worker"),
    ],
)
def test_a_run_that_cannot_do_is_hopeless_at_once(event: h.RunConfigured, says: str) -> None:
    assert says in (baseline_verdict.hopeless(event, LAUNCH) or "")


@pytest.mark.parametrize("size", [2, 3])
def test_a_run_that_fits_is_not_hopeless(size: int) -> None:
    assert baseline_verdict.hopeless(configured(min_workers=size, max_workers=64), LAUNCH) is None
    assert baseline_verdict.hopeless(configured(min_workers=6, resources_per_worker={"CPU": 0.5}), LAUNCH) is None


def test_an_exit_code_comes_with_the_last_words_without_colours() -> None:
    output = "Traceback\n\x1b[31mKeyError: 'lr'\x1b[0m\n\n"
    assert problem(whole_run(1, code=1), output) == (
        "the job does not finish without faults: `python train.py --epochs 3` exited with 1: KeyError: 'lr'"
    )


def test_a_run_that_fails_by_itself_on_the_way_is_no_control() -> None:
    end = h.AttemptEnded(
        term=1, attempt=1, cause="worker_error", account="max_failures", detail="rank 0: RuntimeError: x"
    )
    assert "fails by itself: without faults attempt 1 ended worker_error" in (problem([*whole_run(1, 2), end]) or "")


def test_a_step_key_that_counts_back_is_none() -> None:
    assert problem(whole_run(0, 1, 1, 2, key=True), step_key="batch") is None
    assert "goes back from 9 to 0" in (problem(whole_run(8, 9, 0, key=True), step_key="batch") or "")


def test_what_makes_no_difference_to_a_control_run_shares_it() -> None:
    def key(**more: Any) -> str:
        return baseline._key(dataclasses.replace(LAUNCH.configuration, **more))

    assert key() == key(seed=7, max_failures=3, triggers_of=40, num_workers=2, within_s=9.0)
    assert len({key(), key(nodes=4), key(step_key="epoch"), key(job="python x.py"), key(cwd="/x")}) == 5
    function = key(job="my:job")
    assert function != key(job="my:job", num_workers=2) and function != key(job="my:job", job_config={"a": 1})


def test_a_run_that_was_stopped_at_its_deadline_says_how_far_it_came() -> None:
    late = h.DeadlinePassed(within_s=30.0)
    assert "not over within 30 s, step 2 so far" in (problem([late, *whole_run(1, 2, code=137)]) or "")
    assert "no step so far" in (problem([late, h.DriverExited(launch=0, code=137)]) or "")


def test_a_function_that_fails_on_bundled_is_told_of_its_imports() -> None:
    function = {"job": "my:job", "subject": "bundled"}
    assert "from shaketable.runtime what it imports from ray.train" in (
        problem(whole_run(1, code=1), "RuntimeError", **function) or ""
    )


def test_one_control_run_serves_every_experiment_of_an_invocation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []

    def run(self: baseline.Controls, configuration: Configuration, within_s: float, place: Path) -> h.ReferenceRun:
        runs.append(configuration.seed)
        return h.ReferenceRun(metrics={"loss": 0.5}, tolerance=0.0, steps=[1, 2])

    monkeypatch.setattr(baseline.Controls, "_run", run)

    def of(seed: int, number: int = 1) -> baseline.BaselineResult:
        # as in another process
        monkeypatch.setattr(baseline, "_remembered", {})
        controls = baseline.Controls(tmp_path, tmp_path / str(seed), None, Phases(tmp_path))  # type: ignore[arg-type]
        made = dataclasses.replace(LAUNCH.configuration, seed=seed)
        assert controls.run(made, 9.0, number=number) == controls.run(made, 9.0, number=number)
        return controls.run(made, 9.0, number=number)

    assert of(1) == of(2) and runs == [1]
    of(3, number=2)
    assert runs == [1, 3]


def test_while_the_control_run_goes_on_the_terminal_shows_it(tmp_path: Path) -> None:
    place, experiment = tmp_path / "control-runs" / "x", tmp_path / "worker-crash"
    (place / "witness").mkdir(parents=True)
    experiment.mkdir()
    event = h.Stepped(term=1, attempt=1, rank=0, step=3, world_size=2)
    (place / "witness" / "worker-1.jsonl").write_bytes(h.encode(event))
    with baseline._announced(experiment, place):
        assert last_event(experiment) == "baseline: stepped step 3 world_size 2 rank 0"
    assert last_event(experiment) == "starting"


def test_until_anything_has_happened_the_terminal_says_what_is_waited_for(tmp_path: Path) -> None:
    told: list[str] = []
    phases = Phases(tmp_path, told.append)
    phases.begin("cluster", "starting a local cluster of 3 nodes")
    assert last_event(tmp_path) == current(tmp_path)[0] == "starting a local cluster of 3 nodes"
    (tmp_path / "witness").mkdir()
    driver = tmp_path / "witness/driver.jsonl"
    driver.write_bytes(h.encode(h.StateChanged(term=1, state="RUNNING")))
    assert last_event(tmp_path) == "controller RUNNING"
    os.utime(driver, (0, 0))
    assert last_event(tmp_path) == "starting a local cluster of 3 nodes"
    phases.begin("run", "running the job")
    phases.begin("cluster", "starting another one")
    assert list(phases.end()) == ["cluster", "run"] and len(told) == 3
    assert current(tmp_path)[0] == "" and [file.name for file in tmp_path.iterdir()] == ["witness"]
