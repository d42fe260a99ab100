"""liveness, grow-back, no-leaks and truthful-ending: what they must catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shaketable.chaos import history as h
from shaketable.chaos.invariants.grow_back import grow_back
from shaketable.chaos.invariants.liveness import liveness
from shaketable.chaos.invariants.no_leaks import no_leaks
from shaketable.chaos.invariants.truthful_ending import truthful_ending
from shaketable.chaos.invariants.view import History
from shaketable.suites.tests.story import Story, always, change, crash_and_finish, drop


def running(**configuration: Any) -> Story:
    return Story(**configuration).launch().attempt(3).steps(1, 3)


def test_a_run_that_hangs_is_caught_with_where_it_stood() -> None:
    story = running().drive(h.StateChanged(term=1, state="RUNNING")).say(h.DeadlinePassed(within_s=60.0))
    assert liveness(story.exit(137).history).reason == (
        "the run had not ended after 60 s; last step 3, controller RUNNING"
    )


def test_a_run_that_ends_too_long_after_healing_is_caught() -> None:
    story = running().say(h.Healed()).wait(61).steps(4, 6).finish()
    story.events = drop(story.events, h.Healed, lambda e: e.at_s > 1010)
    assert "s after healing, allowed are 60 s" in liveness(story.history).reason


def test_a_run_that_ends_by_itself_is_alive_and_one_without_an_end_is_not_judged() -> None:
    assert liveness(crash_and_finish().history).status == "PASS"
    assert liveness(running().history).status == "NOT APPLICABLE"


def lost_and_back(seconds: float) -> Story:
    story = Story(max_failures=1).launch().attempt(3).steps(1, 2)
    story.fault("sigkill_node", ranks=[2], nodes=[3]).end("node_lost", "max_failures").attempt(2).steps(3, 3)
    return story.join_node(4).steps(4, 4, step_s=seconds / 2).steps(5, 5, step_s=seconds / 2)


def test_a_run_that_never_grows_back_is_caught() -> None:
    reason = grow_back(lost_and_back(30).history).reason
    assert reason.startswith(
        "attempt 2 went on with 2 for 30.0 s although there was room for 3, allowed are 16 s"
    )


def test_a_run_that_grows_back_passes_and_one_that_ends_first_is_not_judged() -> None:
    grown = lost_and_back(4).end("resized", None).attempt(3)
    assert grow_back(grown.history).reason == "grew to 3 in attempt 3"
    assert grow_back(lost_and_back(4).history).status == "NOT APPLICABLE"
    assert grow_back(crash_and_finish().history).reason == "there never was room for a larger world"


def test_a_run_that_starts_small_and_stays_so_is_caught() -> None:
    story = Story().launch().attempt(1).steps(1, 2, step_s=10)
    assert "although there was room for 3" in grow_back(story.history).reason


@pytest.mark.parametrize("fault", ["freeze_node", "sigterm_node", "drain_node"])
def test_a_node_that_is_lost_gives_no_room_before_ray_says_so(fault: str) -> None:
    story = Story().launch().attempt(3).steps(1, 1).fault(fault, nodes=[3], ranks=[2])
    story.end("node_lost", None).attempt(2).steps(2, 3, step_s=20)
    assert grow_back(story.history).reason == "there never was room for a larger world"


@pytest.mark.parametrize("place", ["processes", "cluster", "files"])
def test_whatever_is_left_is_caught(place: str) -> None:
    events = change(crash_and_finish().events, h.LeakCheck, always, **{place: ["pid 7 of rank 1", "another"]})
    assert (
        no_leaks(History(events)).reason == "0.1 s after the run there was still pid 7 of rank 1 and 1 more"
    )


def test_a_run_at_which_nobody_looked_is_no_pass() -> None:
    assert no_leaks(running().history).status == "NOT APPLICABLE"


def changed(kind: type[Any], **fields: Any) -> Callable[[], list[h.AnyEvent]]:
    return lambda: change(crash_and_finish().events, kind, always, **fields)


def half_finished() -> list[h.AnyEvent]:
    return running().finish().events


def finished_and_failed() -> list[h.AnyEvent]:
    return running().steps(4, 6).end("finished", None).fail().aftermath().events


def failed_without_a_word() -> list[h.AnyEvent]:
    story = running().fault("sigkill_worker", ranks=[1]).end("worker_death", "max_failures")
    return story.fail(error=None).aftermath().events


def interrupted_by_nobody() -> list[h.AnyEvent]:
    story = running().end("interrupted", None)
    return story.drive(h.RunEnded(term=1, outcome="interrupted")).exit(130).aftermath().events


def killed_by_nobody() -> list[h.AnyEvent]:
    return running().exit(137).aftermath().events


def silent() -> list[h.AnyEvent]:
    return drop(crash_and_finish().events, h.RunEnded, always)


def not_in_the_log() -> list[h.AnyEvent]:
    return drop(crash_and_finish().events, h.LogRecord, lambda e: e.record["kind"] == "run_finished")


def somebody_still_at_work() -> list[h.AnyEvent]:
    return drop(crash_and_finish().events, h.WorkerFinished, lambda e: e.rank == 2)


UNTRUE: list[tuple[Callable[[], list[h.AnyEvent]], str]] = [
    (changed(h.DriverExited, code=1), "the driver of launch 0 said finished and exited with 1"),
    (changed(h.RunEnded, metrics={"step": 5}), "said finished at step 5 of 6"),
    (changed(h.RunEnded, outcome="failed", error="x"), "said failed and exited with 0"),
    (half_finished, "said finished, but rank 0 of attempt 1 was at step 3 of 6"),
    (finished_and_failed, "term 1 said failed, but attempt 1 had finished (log record 9)"),
    (failed_without_a_word, "term 1 said failed and named no error"),
    (interrupted_by_nobody, "said interrupted, and nobody interrupted it"),
    (killed_by_nobody, "died by SIGKILL, and no fault did that"),
    (silent, "exited with 0, and fit() said nothing"),
    (not_in_the_log, "said finished, the log says nothing of an end"),
    (somebody_still_at_work, "ranks [2] of attempt 2 never returned"),
]


@pytest.mark.parametrize(("tell", "reason"), UNTRUE, ids=[reason[:30] for _, reason in UNTRUE])
def test_an_untrue_ending_is_caught(tell: Callable[[], list[h.AnyEvent]], reason: str) -> None:
    finding = truthful_ending(History(tell()))
    assert finding.status == "FAIL", finding
    assert reason in finding.reason


def test_an_ending_by_the_harness_or_without_an_end_is_not_judged() -> None:
    assert truthful_ending(running().history).status == "NOT APPLICABLE"
    stopped = running().say(h.DeadlinePassed(within_s=60.0)).exit(137)
    assert truthful_ending(stopped.history).status == "NOT APPLICABLE"
