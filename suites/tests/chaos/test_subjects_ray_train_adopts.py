"""What a second controller of Ray Train says of the first one's commits, dead or alive."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shaketable.chaos.history import events as h
from shaketable.chaos.history.witness import WitnessConfig
from shaketable.chaos.invariants.single_writer import single_writer
from shaketable.chaos.subjects.ray_train.callbacks import Observer
from shaketable.chaos.subjects.ray_train.subject import SNAPSHOT, TERM_ENV
from shaketable.suites.tests.rigs.story import Story

STARTED = h.AttemptStarted(term=1, attempt=1, world_size=1, members=[], resume=None, resume_index=None)


def committed(index: int) -> h.Committed:
    return h.Committed(term=1, attempt=1, index=index, checkpoint=f"checkpoint_{index}")


def upload(step: int) -> h.UploadStarted:
    return h.UploadStarted(term=1, attempt=1, rank=0, step=step)


class First:
    """The first driver: what it has recorded, and what its snapshot lists."""

    def __init__(self, folder: Path) -> None:
        self.events, self.snapshot = folder / "controller-1-aa.jsonl", folder / SNAPSHOT

    def did(self, events: Sequence[h.Event], listed: Sequence[int]) -> None:
        self.events.write_bytes(b"".join(h.encode(event) for event in events))
        results = [{"checkpoint_dir_name": f"checkpoint_{index}"} for index in listed]
        self.snapshot.write_text(json.dumps({"checkpoint_results": results}))


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> First:
    monkeypatch.setenv(WitnessConfig.ENV, WitnessConfig(str(tmp_path), "127.0.0.1", 9, "s").dump())
    monkeypatch.setenv(TERM_ENV, "2")
    return First(tmp_path)


def adopted(second: Observer, first: First) -> list[tuple[str, int]]:
    """What the second controller records as committed when it starts."""
    storage: Any = SimpleNamespace(checkpoint_manager_snapshot_path=str(first.snapshot))
    second.after_controller_start(SimpleNamespace(run_config=SimpleNamespace(storage_context=storage)))
    [path] = [path for path in first.snapshot.parent.glob("controller-*") if path != first.events]
    return [(e.checkpoint, e.index) for e in h.read_events(path) if isinstance(e, h.Committed)]


def test_a_commit_that_the_killed_controller_had_no_time_to_record_is_adopted(first: First) -> None:
    first.did([STARTED, committed(1), upload(1), upload(2)], listed=[1, 2])
    assert adopted(Observer(), first) == [("checkpoint_2", 2)]


def test_what_a_first_driver_that_still_runs_has_done_meanwhile_is_not_adopted(first: First) -> None:
    first.did([STARTED, committed(1), upload(1), upload(2)], listed=[1])
    # made in the driver; its controller starts seconds later
    second = Observer()
    first.did([STARTED, committed(1), upload(1), upload(2), committed(2)], listed=[1, 2])
    assert adopted(second, first) == []


def test_of_several_unknown_commits_none_is_given_an_index(first: First) -> None:
    first.did([STARTED, committed(1), upload(2)], listed=[1, 2, 3])
    assert adopted(Observer(), first) == []


def test_a_commit_adopted_from_a_controller_that_lived_to_record_it_counts_once() -> None:
    story = Story(subject="ray-train").launch().attempt(1).steps(1, 3)
    [*_, last] = [event for event in story.events if isinstance(event, h.Committed)]
    story.say(h.Committed(term=1, attempt=1, index=3, checkpoint=last.checkpoint), "controller-77-ff")
    assert single_writer(story.history).status == "PASS"
    story.drive(h.Committed(term=1, attempt=1, index=3, checkpoint=last.checkpoint))
    assert "was committed twice" in single_writer(story.history).reason
