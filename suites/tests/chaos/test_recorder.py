"""`shaketable.Recorder` in the place of Ray Train's controller: what it writes down, what it never does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import RayActorError
from ray.train.v2._internal.callbacks.env_callback import _initialize_env_callbacks
from ray.train.v2._internal.execution.callback import WorkerCallback

import shaketable
from shaketable.chaos.history.events import AnyEvent, ExperimentBegan, TermBegan
from shaketable.chaos.history.recording import DIRECTORY_ENV, RECORDING
from shaketable.chaos.incidents.recorded_attempts import incident_of
from shaketable.chaos.subjects.ray_train import recorder_entry
from shaketable.chaos.subjects.ray_train.subject import RayTrain
from shaketable.suites.tests.chaos.test_recording import WITHIN_S
from shaketable.suites.tests.rigs.recorder_rig import Controller

SECRET = "hunter2-a2V5LW9mLXByb2R1Y3Rpb24"


def crash_and_finish(controller: Controller) -> Sequence[AnyEvent]:
    controller.start()
    controller.attempt(3)
    controller.report("checkpoint_a", None, "checkpoint_b", None)
    controller.die(1, RayActorError("ab", f"killed, {SECRET}", False, False))
    controller.attempt(2)
    controller.report("checkpoint_c", loss=0.1, token=SECRET)
    controller.finish()
    return controller.events()


def test_ray_train_loads_it_by_the_name_in_its_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TRAIN_CALLBACKS", "shaketable.Recorder")
    [made] = _initialize_env_callbacks()
    assert type(made) is shaketable.Recorder and not isinstance(made, WorkerCallback)


def test_it_writes_a_history_of_the_run_beside_the_checkpoints(tmp_path: Path) -> None:
    events = crash_and_finish(Controller(shaketable.Recorder(), tmp_path))
    incident = incident_of(events)

    assert [(each.world_size, each.cause, each.account, each.rank) for each in incident.attempts] == [
        (3, "worker_death", "max_failures", 1),
        (2, "finished", None, None),
    ]
    assert [(each.first, each.fatal, each.commits) for each in incident.attempts] == [(1, 5, (1, 3)), (4, 5, (4,))]
    assert incident.outcome == "finished"
    assert dict(incident.terms[0].settings)["num_workers"] == [1, 3]


def test_a_relaunch_goes_on_counting(tmp_path: Path) -> None:
    first = Controller(shaketable.Recorder(), tmp_path)
    first.start()
    first.attempt(2)
    first.report("checkpoint_a", "checkpoint_b")
    first.events()
    again = Controller(shaketable.Recorder(), tmp_path)
    again.checkpoints = first.checkpoints
    again.start(max_failures=5)
    again.attempt(2)
    again.report("checkpoint_c")
    again.finish()
    incident = incident_of(again.events())

    assert [(each.term, each.number, each.first, each.cause) for each in incident.attempts] == [
        (1, 1, 1, "driver_lost"),
        (2, 2, 3, "finished"),
    ]
    assert [term.settings["max_failures"] for term in incident.terms] == [2, 5]


def test_commits_from_before_the_recorder_are_taken_over(tmp_path: Path) -> None:
    controller = Controller(shaketable.Recorder(), tmp_path)
    controller.run.mkdir()
    snapshot = {"checkpoint_results": [{"checkpoint_dir_name": "a"}, {"checkpoint_dir_name": "b"}]}
    (controller.run / "checkpoint_manager_snapshot.json").write_text(json.dumps(snapshot))
    controller.start()
    controller.attempt(2)
    # it was given none of them
    assert incident_of(controller.events()).attempts[0].first == 1


def test_no_secret_is_written_whatever_the_run_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    job: dict[str, Any] = {"password": SECRET, "lr": 0.1, "url": f"https://user:{SECRET}@host"}
    crash_and_finish(Controller(shaketable.Recorder(), tmp_path, job=job))

    files = sorted((tmp_path / "demo" / RECORDING).iterdir())
    assert files and not any(SECRET in file.read_text() for file in files)
    # of an error, its type
    assert "RayActorError" in files[0].read_text()


def test_of_the_configuration_only_what_is_listed_is_written(tmp_path: Path) -> None:
    began = crash_and_finish(Controller(shaketable.Recorder(), tmp_path))[0]
    assert isinstance(began, ExperimentBegan) and began.recorded
    assert sorted(began.configuration) == [
        "elastic_resize_monitor_interval_s",
        "job",
        "max_failures",
        "max_preemption_failures",
        "num_workers",
        "subject",
    ]


def test_a_directory_of_ones_own_holds_one_recording_for_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIRECTORY_ENV, str(tmp_path / "here"))
    controller = Controller(shaketable.Recorder(), tmp_path, name="a/b")
    controller.start()
    assert any(isinstance(event, TermBegan) for event in controller.events(tmp_path / "here" / "a_b"))


def test_a_run_in_an_object_store_is_recorded_in_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    recorder: Any = shaketable.Recorder()
    run: Any = type("Run", (), {"name": "demo", "storage_context": type("S", (), {"storage_filesystem": 1})})
    assert recorder._place(run) == tmp_path / "shaketable-recordings" / "demo"


def test_a_directory_that_cannot_be_written_to_does_not_reach_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(DIRECTORY_ENV, str(tmp_path / "file" / "below"))
    controller = Controller(shaketable.Recorder(), tmp_path)
    # there is nothing to read, and nothing else was raised
    with pytest.raises(Exception, match="no such file"):
        crash_and_finish(controller)
    assert "is interrupted" in caplog.text


def test_whatever_ray_train_hands_it_comes_to_nothing_worse_than_a_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    controller = Controller(shaketable.Recorder(), tmp_path)
    for hook, arguments in {
        "after_controller_start": 1,
        "after_controller_state_update": 2,
        "after_worker_group_start": 1,
        "after_worker_group_training_start": 1,
        "after_report": 2,
        "after_worker_group_poll_status": 1,
        "after_controller_finish": 1,
    }.items():
        controller._invoke(hook, *(["nonsense"] * arguments))
        assert f"not in the history: {hook}" in caplog.text
    controller._invoke("before_controller_abort")


def test_an_earlier_recording_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    old = tmp_path / "demo" / RECORDING / "t000004-000000.jsonl"
    old.parent.mkdir(parents=True)
    old.write_text("something else\n")
    controller = Controller(shaketable.Recorder(), tmp_path)
    controller.start()
    assert controller.recorder._recording.flush(WITHIN_S)
    assert sorted(path.name for path in old.parent.iterdir()) == [old.name, "t000005-000000.jsonl"]
    assert old.read_text() == "something else\n"


def test_a_disk_that_hangs_does_not_hold_the_controller_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading
    import time

    released = threading.Event()
    monkeypatch.setattr(os, "write", lambda fd, data: released.wait(WITHIN_S) and len(data))
    controller = Controller(shaketable.Recorder(), tmp_path)
    controller.start()
    controller.attempt(2)
    began_s = time.monotonic()
    controller.report(*[None] * 500)
    took_s = time.monotonic() - began_s
    released.set()
    # a hang would be WITHIN_S
    assert took_s < WITHIN_S / 2


def test_on_a_ray_that_is_not_known_the_run_goes_on_unrecorded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "shaketable.chaos.subjects.ray_train.recorder", None)
    monkeypatch.setenv("RAY_TRAIN_CALLBACKS", "shaketable.Recorder")
    assert isinstance(_initialize_env_callbacks()[0], recorder_entry.NotRecording)
    assert "not recorded" in caplog.text


def test_it_needs_none_of_the_harness_s_own_packages() -> None:
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        # (Ray brings its own psutil)
        if name.partition(".")[0] in ("chaoslib", "chaostoolkit", "typer", "jinja2", "pytest", "xdist"):
            raise ImportError(name)
sys.meta_path.insert(0, Missing())
import shaketable
print(shaketable.Recorder().__class__.__module__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["shaketable.chaos.subjects.ray_train.recorder"], done.stderr


def test_its_files_are_no_leftovers_of_a_run(tmp_path: Path) -> None:
    crash_and_finish(Controller(shaketable.Recorder(), tmp_path, name="run"))
    assert RayTrain().files_left(str(tmp_path), "run") == []
