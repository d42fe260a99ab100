"""The wrapper around a training function, without any subject around it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ray import cloudpickle

from shaketable.chaos.history.events import (
    AnyEvent,
    Reported,
    RestoreStarted,
    Stepped,
    UploadStarted,
    WorkerFinished,
    WorkerStarted,
    read_events,
)
from shaketable.chaos.history.witness import WitnessConfig
from shaketable.chaos.subjects.witnessed import SIDES, InjectedError, Witnessed
from shaketable.chaos.workloads import worker_api
from shaketable.suites.tests.rigs.subject_rig import pickled


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WitnessConfig:
    """Nobody listens at the socket; the files are enough."""
    monkeypatch.setitem(SIDES, "rig", "shaketable.suites.tests.rigs.subject_rig")
    return WitnessConfig(directory=str(tmp_path), host="127.0.0.1", port=9, secret="s")


def told(config: WitnessConfig) -> list[AnyEvent]:
    [path] = Path(config.directory).glob("worker-*.jsonl")
    return read_events(path)


def two_steps(config: dict[str, Any]) -> str:
    worker_api.api().report({"loss": 1.0})
    worker_api.api().report({"loss": 0.5}, checkpoint=config["checkpoint"])
    return "done"


def test_any_job_records_its_start_steps_uploads_reports_and_end_in_that_order(config: WitnessConfig) -> None:
    assert Witnessed(two_steps, "rig", config)({"checkpoint": "here"}) == "done"

    events = told(config)

    kinds = [WorkerStarted, Stepped, Reported, Stepped, UploadStarted, Reported, WorkerFinished]
    assert [type(event) for event in events] == kinds
    assert events[0].resume == "checkpoint-7" and events[0].attempt == 2  # type: ignore[union-attr]
    assert [(e.step, e.metrics, e.checkpoint) for e in events if isinstance(e, Stepped)] == [
        (1, {"loss": 1.0}, False),
        (2, {"loss": 0.5}, True),
    ]


def prints(config: dict[str, Any]) -> None:
    os.system("echo epoch 1; echo a warning >&2")


def test_what_a_worker_prints_is_kept_beside_what_it_records(
    config: WitnessConfig, capfd: pytest.CaptureFixture[str]
) -> None:
    """As long as it runs; where the harness's own file is, so is its directory."""
    directory = Path(config.directory)
    (directory / "harness.jsonl").touch()
    Witnessed(prints, "rig", config)({})
    os.system("echo afterwards")
    [log] = directory.glob("worker-*.log")
    assert log.read_text() == "epoch 1\na warning\n"
    assert capfd.readouterr().out == "afterwards\n"
    log.unlink()
    Witnessed(two_steps, "rig", config)({"checkpoint": None})
    assert list(directory.glob("*.log")) == []


def closes_its_output(config: dict[str, Any]) -> str:
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  as a function may
    sys.stdout.close()
    return "done"


def test_a_function_that_closes_its_output_has_finished_all_the_same(
    config: WitnessConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    (Path(config.directory) / "harness.jsonl").touch()
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    assert Witnessed(closes_its_output, "rig", config)({}) == "done"


def test_where_the_harness_is_on_another_machine_a_worker_prints_as_ever(
    config: WitnessConfig, capfd: pytest.CaptureFixture[str]
) -> None:
    Witnessed(prints, "rig", config)({})
    assert capfd.readouterr().out == "epoch 1\n"


def knows_its_digest(config: dict[str, Any]) -> None:
    worker_api.stepped(11, digest="abc", samples=[1, 2])
    worker_api.api().report({"step": 11})
    worker_api.api().report({"step": 12})


def test_a_job_that_testifies_its_own_step_is_not_recorded_for_again(config: WitnessConfig) -> None:
    Witnessed(knows_its_digest, "rig", config)({})

    steps = [event for event in told(config) if isinstance(event, Stepped)]

    assert [(event.step, event.digest) for event in steps] == [(11, "abc"), (2, None)]
    assert [event.step for event in told(config) if isinstance(event, Reported)] == [11, 2]


def restores(config: dict[str, Any]) -> None:
    worker_api.restoring()
    worker_api.api().get_checkpoint()


def test_that_a_job_is_about_to_read_its_checkpoint_is_recorded_where_it_was_given_one(config: WitnessConfig) -> None:
    Witnessed(restores, "rig", config)({})
    assert [event.checkpoint for event in told(config) if isinstance(event, RestoreStarted)] == ["checkpoint-7"]


def takes_nothing() -> None:
    worker_api.api().report({"step": 1})


def test_a_job_may_take_no_configuration(config: WitnessConfig) -> None:
    Witnessed(takes_nothing, "rig", config)({"ignored": True})

    assert isinstance(told(config)[-1], WorkerFinished)


def asks_for_an_error(config: dict[str, Any]) -> None:
    import os

    worker_api.api().report({"step": 1})
    worker_api.sentinel(config["directory"], os.getpid()).touch()
    with pytest.raises(InjectedError):
        worker_api.api().report({"step": 2})
    worker_api.api().report({"step": 3})


def test_a_sentinel_file_makes_the_next_report_raise_once_and_leaves_the_evidence(config: WitnessConfig) -> None:
    Witnessed(asks_for_an_error, "rig", config)({"directory": config.directory})

    assert [path.name.split("-")[0] for path in Path(config.directory).glob("rais*")] == ["raised"]
    assert len([event for event in told(config) if isinstance(event, Reported)]) == 2


def fails(config: dict[str, Any]) -> None:
    raise ValueError("a bug")


def test_a_job_that_raises_has_not_finished_and_leaves_no_session_behind(config: WitnessConfig) -> None:
    with pytest.raises(ValueError, match="a bug"):
        Witnessed(fails, "rig", config)({})

    assert [type(event) for event in told(config)] == [WorkerStarted]
    with pytest.raises(RuntimeError, match="no session"):
        worker_api.api()


def test_without_a_witness_the_job_runs_the_same_and_records_nothing(config: WitnessConfig, tmp_path: Path) -> None:
    assert Witnessed(two_steps, "rig")({"checkpoint": None}) == "done"

    assert list(tmp_path.iterdir()) == []


def test_the_wrapper_travels_by_cloudpickle_with_a_local_function_inside(config: WitnessConfig) -> None:
    answer = 42
    wrapped = cloudpickle.loads(pickled(Witnessed(lambda config: answer, "rig", config)))

    assert wrapped({}) == 42


def test_recording_outside_of_a_worker_does_nothing() -> None:
    worker_api.emit(WorkerFinished(term=1, attempt=1, rank=0))
