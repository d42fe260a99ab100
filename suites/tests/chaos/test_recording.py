"""The files of a recording: bounded, complete in what matters, and nothing that a disk does comes out of `write`."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from shaketable.chaos.history import recording
from shaketable.chaos.history.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    ExperimentBegan,
    Reported,
    WorkerStarted,
    read_events,
)
from shaketable.chaos.history.recording import Limits, Recording, recordings
from shaketable.chaos.incidents.recorded_attempts import incident_of
from shaketable.chaos.subjects.recorded import read_record

WITHIN_S = 20.0
SMALL = Limits(file_bytes=2000, files=3)


def began() -> ExperimentBegan:
    return ExperimentBegan(
        title="demo",
        subject="ray-train",
        cluster="production",
        seed=0,
        configuration={"num_workers": 1},
        expect={},
        versions={},
        recorded=True,
    )


def attempt(number: int) -> list[Event]:
    return [
        AttemptStarted(term=1, attempt=number, world_size=1, members=[], resume=None, resume_index=None),
        WorkerStarted(term=1, attempt=number, rank=0, world_size=1, node_id="ab", pid=7, resume=None),
    ]


def reported(step: int, number: int = 1) -> Reported:
    return Reported(term=1, attempt=number, rank=0, step=step)


def death(number: int) -> AttemptEnded:
    return AttemptEnded(term=1, attempt=number, cause="worker_death", account="max_failures", rank=0)


def recorded(directory: Path, events: list[Event], limits: Limits = SMALL) -> list[Path]:
    writing = Recording(directory, 1, limits)
    for event in events:
        writing.write(event)
    assert writing.flush(WITHIN_S)
    return recordings(directory)


def long_run() -> list[Event]:
    steps: list[Event] = [reported(step) for step in range(1, 101)]
    more: list[Event] = [reported(step, 2) for step in range(101, 201)]
    return [began(), *attempt(1), *steps, death(1), *attempt(2), *more]


def test_what_is_written_is_there_in_order_with_every_event_once(tmp_path: Path) -> None:
    events = [began(), *attempt(1), reported(1), death(1)]
    [file] = recorded(tmp_path, events)
    assert [type(event) for event in read_events(file)] == [type(event) for event in events]
    assert [event.seq for event in read_events(file)] == [0, 1, 2, 3, 4]


def test_the_files_never_take_more_than_their_limits(tmp_path: Path) -> None:
    files = recorded(tmp_path, long_run())
    assert len(files) == 3
    assert sum(file.stat().st_size for file in files) <= 3 * SMALL.file_bytes


def test_the_newest_file_alone_tells_how_the_attempts_went(tmp_path: Path) -> None:
    for file in recorded(tmp_path, long_run())[:-1]:
        file.unlink()
    first, second = incident_of(read_record(tmp_path).events).attempts
    assert (first.cause, first.rank, first.fatal) == ("worker_death", 0, 101)
    assert (second.cause, second.fatal) == (None, 201)


def test_a_head_that_is_longer_than_a_file_does_not_make_a_file_of_every_line(tmp_path: Path) -> None:
    endings = [event for number in range(1, 41) for event in (*attempt(number), death(number))]
    files = recorded(tmp_path, [began(), *endings, *(reported(step, 40) for step in range(1, 101))])
    assert len(files) == 3 and incident_of(read_events(files[-1])).attempts[0].number == 1
    assert int(files[-1].stem.partition("-")[2]) < 20


def test_a_line_that_is_in_two_files_counts_once(tmp_path: Path) -> None:
    recorded(tmp_path, long_run(), Limits(file_bytes=4000, files=100))
    events = read_record(tmp_path).events
    assert len([event for event in events if isinstance(event, Reported)]) == 200
    assert len([event for event in events if isinstance(event, AttemptEnded)]) == 1


def test_a_directory_that_cannot_be_made_is_logged_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert recorded(tmp_path / "file" / "recording", [began(), *attempt(1)]) == []
    assert "is interrupted" in caplog.text


def test_a_disk_that_comes_back_gets_a_new_file_with_all_that_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = True
    write = os.write

    def sometimes(fd: int, data: bytes) -> int:
        if broken and data.startswith(b'{"kind"'):
            raise OSError(28, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr(os, "write", sometimes)
    monkeypatch.setattr(recording, "TRY_AGAIN_S", 0.0)
    writing = Recording(tmp_path, 1, SMALL)
    for event in [began(), *attempt(1), reported(5), death(1)]:
        writing.write(event)
    assert writing.flush(WITHIN_S)
    broken = False
    for event in attempt(2):
        writing.write(event)
    assert writing.flush(WITHIN_S)
    first, second = incident_of(read_record(tmp_path).events).attempts
    assert (first.cause, first.fatal, second.cause) == ("worker_death", 6, None)


def test_a_disk_that_takes_half_a_line_leaves_whole_lines_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = os.write, iter(range(100))
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:9] if next(calls) == 2 else data))
    [file] = recorded(tmp_path, [began(), *attempt(1), reported(1)])
    assert [type(event) for event in read_events(file)] == [ExperimentBegan, AttemptStarted]


def test_a_disk_that_hangs_costs_lines_and_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging, write = threading.Event(), os.write

    def wait(fd: int, data: bytes) -> int:
        assert hanging.wait(WITHIN_S)
        return write(fd, data)

    monkeypatch.setattr(os, "write", wait)
    monkeypatch.setattr(recording, "MAX_UNWRITTEN", 50)
    writing = Recording(tmp_path, 1, Limits())
    for event in [began(), *attempt(1), *(reported(step) for step in range(1, 1001))]:
        writing.write(event)
    assert not writing.flush(0.01)
    hanging.set()
    assert writing.flush(WITHIN_S)
    assert len(read_record(tmp_path).events) <= 3 + 2 * 50


def test_an_event_that_cannot_be_said_in_json_is_left_out(tmp_path: Path) -> None:
    strange: Any = ExperimentBegan(
        title="demo",
        subject="ray-train",
        cluster="production",
        seed=0,
        configuration={"a": object()},
        expect={},
        versions={},
    )
    [file] = recorded(tmp_path, [strange, reported(1)])
    assert [type(event) for event in read_events(file)] == [Reported]


def test_two_recordings_of_one_term_do_not_write_into_each_others_files(tmp_path: Path) -> None:
    recorded(tmp_path, [began(), *attempt(1)])
    assert [file.name for file in recorded(tmp_path, [began(), *attempt(2)])] == [
        "t000001-000000.jsonl",
        "t000001-000001.jsonl",
    ]


@pytest.mark.parametrize("value", ["", "many", "-1", "nan", "inf", "0"])
def test_a_limit_that_is_no_positive_number_is_not_taken(value: str, caplog: pytest.LogCaptureFixture) -> None:
    environment = {recording.FILE_MB_ENV: value, recording.FILES_ENV: value}
    assert Limits.of(environment) == Limits()
    assert recording.FILES_ENV in caplog.text


def test_limits_come_from_the_environment() -> None:
    environment = {recording.FILE_MB_ENV: "0.5", recording.FILES_ENV: "4"}
    assert Limits.of(environment) == Limits(file_bytes=1 << 19, files=4)
