"""Whoever must have said something did: what nodes, drivers and workers have recorded is taken out of a healthy
history, one kind and one writer at a time, and the rest is no PASS any more."""

from __future__ import annotations

import msgspec
import pytest

from shaketable.chaos.history import events as h
from shaketable.chaos.verdict.judge import judge
from shaketable.suites.tests.rigs.shipped import played
from shaketable.suites.tests.rigs.story import renumbered

Events = list[h.AnyEvent]
# what a driver says, and what a worker says
DRIVER = (h.TermBegan, h.AttemptStarted, h.AttemptEnded, h.Committed, h.StateChanged)
WORKER = (h.WorkerStarted, h.Resumed, h.Stepped)


def without(name: str, writer: str, kind: type[h.Event]) -> Events:
    """As if that writer had never said anything of that kind: its lines have no gap."""
    rest = renumbered(each for each in played(name) if not (each.writer == writer and isinstance(each, kind)))
    assert len(rest) < len(played(name))
    return rest


def spoken(name: str, kind: type[h.Event]) -> list[str]:
    return sorted({event.writer for event in played(name) if isinstance(event, kind)})


@pytest.mark.parametrize("kind", DRIVER, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", ["driver-sigkill", "reopened"])
def test_a_driver_that_did_not_say_what_it_did_makes_it_invalid(name: str, kind: type[h.Event]) -> None:
    """And blames the run for nothing."""
    for writer in spoken(name, kind):
        judgement = judge(without(name, writer, kind))
        assert judgement.verdict == "INVALID", (writer, judgement.reason)


@pytest.mark.parametrize("kind", WORKER, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", ["worker-crash-beyond-budget", "crash-loop"])
def test_a_rank_that_is_mute_is_no_pass_also_in_the_last_attempt_of_a_failed_run(
    name: str, kind: type[h.Event]
) -> None:
    for writer in spoken(name, kind):
        assert judge(without(name, writer, kind)).verdict != "PASS", writer


def test_a_driver_of_which_nothing_is_left_is_named_by_its_term() -> None:
    first = spoken("driver-sigkill", h.TermBegan)[0]
    judgement = judge([event for event in played("driver-sigkill") if event.writer != first])
    assert judgement.verdict == "INVALID"
    assert "records of term 1, and its driver did not say that it took over" in judgement.reason


def test_a_node_that_nobody_saw_join_is_named_with_its_rank() -> None:
    joined = next(event for event in played("worker-crash") if isinstance(event, h.NodeJoined))
    rest = renumbered(event for event in played("worker-crash") if event is not joined)
    judgement = judge(rest)
    assert judgement.verdict == "INVALID"
    assert judgement.reason.endswith(f"on node {joined.node_id[:8]}, and nobody recorded that it joined")


def test_a_checkpoint_that_no_rank_said_to_have_handed_over_is_no_pass() -> None:
    gone = next(event for event in played("worker-crash") if isinstance(event, h.UploadStarted))
    judgement = judge(renumbered(event for event in played("worker-crash") if event is not gone))
    assert judgement.verdict == "INVALID"
    assert judgement.reason.endswith("and no rank said that it handed it over")


def test_the_last_word_of_a_driver_that_was_killed_may_be_lost() -> None:
    """The record is durable, and nobody was told."""
    killed = spoken("driver-sigkill", h.TermBegan)[0]
    last = [e for e in played("driver-sigkill") if e.writer == killed and isinstance(e, h.Committed)][-1]
    judgement = judge(renumbered(event for event in played("driver-sigkill") if event is not last))
    assert judgement.verdict == "PASS", judgement.reason


def test_a_history_of_a_version_that_recorded_less_is_not_asked_for_more() -> None:
    joined = next(event for event in played("worker-crash") if isinstance(event, h.NodeJoined))
    rest = [event for event in played("worker-crash") if event is not joined]
    older = [msgspec.structs.replace(e, faults=None) if isinstance(e, h.ExperimentBegan) else e for e in rest]
    assert judge(renumbered(older)).verdict == "PASS"
