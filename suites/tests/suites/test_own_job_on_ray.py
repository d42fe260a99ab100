"""A user's own script under Ray Train, unmodified, on a real cluster: what a control run says of it; the verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shaketable.chaos.experiment import file
from shaketable.chaos.history.events import AnyEvent, ControlFailed, ReferenceRun, RunConfigured, WorkerFinished
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Judgement, Plan
from shaketable.chaos.run import baseline, engine
from shaketable.chaos.run.phases import Phases
from shaketable.chaos.run.preparation import prepare
from shaketable.clusters.local.pool import ClusterPool

# one cluster at a time
pytestmark = pytest.mark.xdist_group("own-job")

# Ray Train looks at its workers every 2 s; the tests need not wait for that.
OFTEN = 'import os; os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")'
SCRIPT = (
    OFTEN
    + """
import json, os, sys, tempfile
import ray.train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def train(config):
    start, checkpoint = 0, ray.train.get_checkpoint()
    if checkpoint and "--forget" not in config:
        with checkpoint.as_directory() as folder:
            with open(os.path.join(folder, "state.json")) as file:
                start = json.load(file)["epoch"] + 1
    for epoch in range(start, 6):
        with tempfile.TemporaryDirectory() as folder:
            mine = None
            if ray.train.get_context().get_world_rank() == 0:
                with open(os.path.join(folder, "state.json"), "w") as file:
                    json.dump({"epoch": epoch}, file)
                mine = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"epoch": epoch, "loss": 1 / (1 + epoch)}, checkpoint=mine)


DataParallelTrainer(
    train,
    train_loop_config={word: True for word in sys.argv[1:]},
    scaling_config=ray.train.ScalingConfig(num_workers=2),
    run_config=ray.train.RunConfig(
        RUN_CONFIG failure_config=ray.train.FailureConfig(max_failures=1)
    ),
).fit()
"""
)
TRAINER = (
    OFTEN
    + """
import ray, ray.train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
def fit(train, num_workers=1, **run_config):
    DataParallelTrainer(
        train,
        scaling_config=ray.train.ScalingConfig(num_workers=num_workers),
        run_config=ray.train.RunConfig(**run_config),
    ).fit()
"""
)


def configured(folder: Path, script: str, arguments: str = "", **more: Any) -> Configuration:
    (folder / "job.py").write_text(script)
    job = f"python job.py {arguments}".strip()
    told: dict[str, Any] = {"subject": "ray-train", "nodes": 2, "job": job, "cwd": str(folder), **more}
    return Configuration(**told)


@pytest.fixture(scope="module")
def pool() -> Iterator[ClusterPool]:
    """Of its own: on a cluster that runs of the bundled runtime have used, Ray has cancelled the script's actor."""
    with ClusterPool() as pool:
        yield pool


def refused(pool: ClusterPool, folder: Path, body: str, within_s: float = 120, **more: Any) -> ControlFailed:
    made = configured(folder, TRAINER + body, **more)
    outcome = baseline.Controls(folder, folder, pool, Phases(folder, print)).run(made, within_s)
    assert isinstance(outcome, ControlFailed), outcome
    return outcome


def slow(name: str, *case: str) -> Any:
    """Half a minute of Ray each: `nox -s on_demand` has them all."""
    return pytest.param(*case, id=name, marks=pytest.mark.on_demand)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        slow("fails", "raise SystemExit('no data here')", "exited with 1: no data here"),
        slow("exits", "print('nothing to do')", "exited with 0 but did not train: it started no run of Ray Train"),
        slow("silent", "fit(lambda: None)", "never reported: its training function must call ray.train.report()"),
        slow("raises", "def train():\n    1 / 0\nfit(train)", "does not finish without faults"),
        slow(
            "elsewhere",
            "ray.init(address='local', num_cpus=2)\nfit(lambda: None)",
            "replace its ray.init(address=...) by ray.init()",
        ),
        slow(
            "too-large",
            "fit(lambda: None, num_workers=7)",
            "at least 7 workers, but there are 2 nodes with room for 2: use --var nodes=7",
        ),
        slow("twice", "fit(lambda: ray.train.report({}))\nfit(lambda: ray.train.report({}))", "calls fit() again"),
    ],
)
def test_a_script_that_is_no_job_is_refused_and_told_what_to_do(
    pool: ClusterPool, tmp_path: Path, body: str, says: str
) -> None:
    failed = refused(pool, tmp_path, body)
    assert says in failed.reason
    assert Path(failed.log).is_file()


@pytest.mark.on_demand
def test_a_script_that_hangs_is_stopped_and_told_how_far_it_came(pool: ClusterPool, tmp_path: Path) -> None:
    body = (
        "import time\n"
        "def train():\n    ray.train.report({})\n    print('waiting for a lock', flush=True)\n    time.sleep(600)\n"
        "fit(train)"
    )
    failed = refused(pool, tmp_path, body, within_s=45)
    assert "not over within 45 s, step 1 so far" in failed.reason and "--within SECONDS" in failed.reason
    assert any("waiting for a lock" in line for line in failed.output)


@pytest.mark.on_demand
def test_a_step_key_that_is_not_reported_lists_what_is(pool: ClusterPool, tmp_path: Path) -> None:
    body = "fit(lambda: ray.train.report({'loss': 0.5, 'epoch': 1}))"
    failed = refused(pool, tmp_path, body, step_key="global_step")
    assert "--step-key global_step is not a whole number among its metrics (epoch, loss)" in failed.reason


def shaken(
    pool: ClusterPool,
    folder: Path,
    *faults: FaultPlan,
    run_config: str = "",
    forget: bool = False,
    step_key: str = "",
    charged: int = 1,
) -> tuple[Judgement, list[AnyEvent]]:
    script = SCRIPT.replace("RUN_CONFIG", run_config)
    made = configured(folder, script, "--forget" if forget else "", step_key=step_key, triggers_of=40)
    expect = Expect(charged={"max_failures": charged} if charged else {}, within_s=150)
    plan = Plan("own", made, faults, expect)
    executed = engine.execute(prepare(plan), folder / "result", pool=pool, progress=print)
    return executed.judgement, list(executed.history.events)


CRASH = FaultPlan("sigkill_worker", {"rank": 1}, {"step": 12})
DRIVER = (
    FaultPlan("sigkill_driver", None, {"step": 20}),
    FaultPlan("relaunch_driver", None, {"event": "driver_exited"}),
)


def test_an_unmodified_script_survives_a_crash_and_its_result_says_how_to_do_it_again(
    pool: ClusterPool, tmp_path: Path
) -> None:
    judgement, events = shaken(pool, tmp_path, CRASH)
    assert judgement.verdict == "PASS", judgement.reason
    status = {finding.invariant: finding for finding in judgement.findings}
    assert status["metrics-match"].reason == "2 metrics as in the baseline, to the bit"
    assert "6 reports, as in the baseline" in status["sample-accounting"].reason
    assert sum(isinstance(event, WorkerFinished) for event in events) == 2
    [control_run] = [event for event in events if isinstance(event, ReferenceRun)]
    assert (control_run.steps, control_run.commits) == ([1, 2, 3, 4, 5, 6], [1, 2])

    again = file.load(tmp_path / "result" / "experiment.yaml").plan
    assert (again.configuration.job, again.configuration.cwd) == ("python job.py", str(tmp_path))
    assert again.faults[0].at == {"step": 4, "commits": 2} and again.configuration.triggers_of == 0


@pytest.mark.on_demand
def test_what_a_run_writes_is_kept_in_its_result_and_not_where_the_script_says(
    pool: ClusterPool, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    judgement, events = shaken(pool, tmp_path, run_config=f"name='mine', storage_path={str(theirs)!r},", charged=0)
    assert judgement.verdict == "PASS", judgement.reason
    [seen] = [event for event in events if isinstance(event, RunConfigured)]
    assert (seen.name, seen.storage_path, seen.max_failures) == ("mine", str(theirs), 1)
    assert not theirs.exists()


@pytest.mark.on_demand
def test_an_epoch_that_begins_again_at_0_is_red_by_the_count_of_reports(pool: ClusterPool, tmp_path: Path) -> None:
    judgement, _ = shaken(pool, tmp_path, CRASH, forget=True)
    assert judgement.verdict == "FAIL"
    assert judgement.reason.startswith("sample-accounting: ") and "it started over" in judgement.reason


@pytest.mark.on_demand
def test_an_epoch_that_begins_again_at_0_is_red_by_its_step_key(pool: ClusterPool, tmp_path: Path) -> None:
    judgement, events = shaken(pool, tmp_path, CRASH, forget=True, step_key="epoch")
    assert judgement.verdict == "FAIL"
    assert judgement.reason.startswith("resume-from-checkpoint: rank 0 of ")
    assert "continued with epoch 0 after resuming from checkpoint_" in judgement.reason
    [control_run] = [event for event in events if isinstance(event, ReferenceRun)]
    assert control_run.steps == [0, 1, 2, 3, 4, 5]


@pytest.mark.on_demand
def test_a_driver_that_is_launched_again_under_its_own_name_resumes(pool: ClusterPool, tmp_path: Path) -> None:
    judgement, _ = shaken(pool, tmp_path, *DRIVER, run_config="name='mine',", charged=0, step_key="epoch")
    assert judgement.verdict == "PASS", judgement.reason


@pytest.mark.on_demand
def test_a_driver_without_a_fixed_name_is_told_which_line_to_add(pool: ClusterPool, tmp_path: Path) -> None:
    judgement, _ = shaken(pool, tmp_path, *DRIVER, charged=0)
    assert judgement.verdict == "INVALID"
    assert 'run_config=ray.train.RunConfig(name="my-run", storage_path=' in judgement.reason


@pytest.mark.on_demand
def test_a_job_that_does_not_work_without_faults_makes_its_experiment_invalid(
    pool: ClusterPool, tmp_path: Path
) -> None:
    made = configured(tmp_path, "import sys\nprint('where is my data?')\nsys.exit(3)")
    plan = Plan("own", made, (CRASH,), Expect())
    judgement = engine.execute(prepare(plan), tmp_path / "result", pool=pool, progress=print).judgement
    assert judgement.verdict == "INVALID"
    assert "does not finish without faults: `python job.py` exited with 3: where is my data?" in judgement.reason
    document = yaml.safe_load((tmp_path / "result" / "experiment.yaml").read_text())
    assert document["configuration"]["job"] == "python job.py"
