"""single-writer and durability: what they must catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from shaketable.chaos.history import events as h
from shaketable.chaos.history.view import History
from shaketable.chaos.invariants.durability import durability
from shaketable.chaos.invariants.single_writer import single_writer
from shaketable.suites.tests.rigs.story import Story, always, change, crash_and_finish, drop


def running() -> Story:
    return Story(max_failures=1).launch().attempt(3).steps(1, 3)


def crashed() -> Story:
    return running().fault("sigkill_worker", ranks=[1]).end("worker_death", "max_failures")


def superseded() -> Story:
    return running().launch().end("driver_lost", None).attempt(3)


def after_the_end() -> Story:
    return crashed().commit(4)


def after_the_next_start() -> Story:
    return crashed().attempt(3).commit(4, attempt=1)


def of_an_old_term() -> Story:
    story = superseded()
    story.term = 1
    story.commit(4, attempt=1)
    return story


def twice_the_same() -> Story:
    return crashed().attempt(3).commit(3, name="3-1-1")


def backwards() -> Story:
    return running().commit(2, name="2-again")


def two_open() -> Story:
    return running().attempt(3)


def ended_twice() -> Story:
    return crashed().end("worker_death", "max_failures")


def finished_while_open() -> Story:
    return running().fail()


def commits_late() -> Story:
    return superseded().wait(3).say(h.Committed(term=1, attempt=1, index=4, checkpoint="4-1-1"), "driver-4001-ab")


def finishes_late() -> Story:
    return superseded().wait(3).say(h.RunEnded(term=1, outcome="finished"), "driver-4001-ab")


def same_term_twice() -> Story:
    return running().say(h.TermBegan(term=1, spent={}), "driver-9999-ef")


def torn_record() -> Story:
    story = crash_and_finish()
    record = {"kind": "unreadable", "error": "truncated"}
    story.events = change(story.events, h.LogRecord, lambda e: e.number == 5, record=record)
    return story


def missing_record() -> Story:
    story = crash_and_finish()
    story.events = drop(story.events, h.LogRecord, lambda e: e.number == 5)
    return story


def deletes_what_nobody_committed() -> Story:
    return running().delete("9-1-1")


def gives_up_what_nobody_committed() -> Story:
    story = running()
    story.record("checkpoint_quarantined", checkpoint="9-1-1")
    return story.drive(h.CheckpointQuarantined(term=1, checkpoint="9-1-1"))


def restores_what_nobody_committed() -> Story:
    return running().worker(0, h.RestoreStarted(term=1, attempt=1, rank=0, checkpoint="/run/checkpoints/9-1-1"))


def finds_what_nobody_committed() -> Story:
    return crash_and_finish().say(h.CheckpointProbed(checkpoint="9-1-1", index=9, ok=True))


WRONG: list[tuple[Callable[[], Story], str]] = [
    (deletes_what_nobody_committed, "9-1-1 was deleted (log record 6), but never committed"),
    (gives_up_what_nobody_committed, "9-1-1 was given up (log record 6), but never committed"),
    (restores_what_nobody_committed, "rank 0 of attempt 1 was to restore 9-1-1, which was never committed"),
    (finds_what_nobody_committed, "9-1-1 was found after the run, but never committed"),
    (after_the_end, "attempt 1 committed 4-1-1 (log record 7) after its end"),
    (after_the_next_start, "attempt 1 committed 4-1-1 (log record 8) after its end"),
    (of_an_old_term, "log record 9 is of term 1, but the one before it is of term 2"),
    (twice_the_same, "3-1-1 was committed twice (log record 5, log record 8)"),
    (backwards, "attempt 1 committed index 2 (log record 6) after index 3"),
    (two_open, "attempt 2 (log record 6) started while attempt 1 was open"),
    (ended_twice, "attempt 1 ended (log record 7) but was not open"),
    (finished_while_open, "the run failed (log record 6) while attempt 1 was open"),
    (commits_late, "the driver of term 1 says it committed 4-1-1, but the log does not hold it"),
    (finishes_late, "the driver of term 1 finished 3."),
    (same_term_twice, "term 1 was begun by driver-4001-ab and by driver-9999-ef"),
    (torn_record, "log record 5 cannot be read: truncated"),
    (missing_record, "log record 6 follows 4"),
]


@pytest.mark.parametrize(("tell", "reason"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_a_second_writer_is_caught(tell: Callable[[], Story], reason: str) -> None:
    finding = single_writer(tell().history)
    assert finding.status == "FAIL", finding
    assert reason in finding.reason


def test_a_commit_that_its_driver_had_no_time_to_record_is_fine() -> None:
    story = crash_and_finish()
    story.events = drop(story.events, h.Committed, lambda e: e.index == 4)
    assert single_writer(story.history).status == "PASS"


def test_a_commit_that_its_driver_tells_late_is_fine_if_the_log_holds_it_in_its_place() -> None:
    """The record was written, the answer lost: the driver hears of its own commit when another has the run."""

    def told(number: int) -> Story:
        story = running().commit(4)
        late = story.events.pop()
        assert isinstance(late, h.Committed) and late.number == 6
        story.launch().end("driver_lost", None).attempt(3).wait(3)
        return story.say(msgspec.structs.replace(late, number=number), "driver-4001-ab")

    assert single_writer(told(6).history).status == "PASS"
    assert "the log does not hold it" in single_writer(told(5).history).reason


def test_two_clocks_may_differ_a_little_over_which_driver_had_the_last_word() -> None:
    word = h.RunEnded(term=1, outcome="finished")
    assert single_writer(superseded().wait(0.4).say(word, "driver-4001-ab").history).status == "PASS"


@pytest.mark.parametrize("outcome", ["failed", "interrupted"])
def test_a_superseded_driver_may_say_late_that_it_came_to_nothing(outcome: str) -> None:
    word = h.RunEnded(term=1, outcome=outcome, error="Fenced: by term 2")
    assert single_writer(superseded().wait(3).say(word, "driver-4001-ab").history).status == "PASS"


def test_without_a_log_a_commit_of_a_superseded_term_is_caught_by_its_clock() -> None:
    story = Story(subject="ray-train").launch().attempt(3).steps(1, 3)
    story.launch().attempt(3).wait(3)
    assert single_writer(story.history).status == "PASS"
    story.say(h.Committed(term=1, attempt=1, index=4, checkpoint="late"), "driver-4001-ab")
    assert "the driver of term 1 committed 3." in single_writer(story.history).reason


def test_without_a_log_what_a_new_driver_says_of_the_one_before_is_its_own_word() -> None:
    story = Story(subject="ray-train").launch().attempt(3).steps(1, 3).launch().attempt(3).wait(3)
    story.drive(h.Committed(term=1, attempt=1, index=4, checkpoint="adopted"))
    assert single_writer(story.history).status == "PASS"


def test_an_older_driver_that_was_stopped_has_its_time_from_when_it_was_thawed() -> None:
    def frozen(after_s: float) -> Story:
        story = running().fault("freeze_driver", pids=[4001])
        story = story.launch().end("driver_lost", None).attempt(3).wait(60)
        story = story.say(h.FaultHealed(fault=0, name="freeze_driver")).wait(after_s)
        return story.say(h.DriverExited(launch=0, code=1))

    assert single_writer(frozen(10).history).status == "PASS"
    assert "the driver of term 1 was still there 46." in single_writer(frozen(46).history).reason


def test_an_older_driver_that_does_not_leave_is_caught() -> None:
    gone = h.DriverExited(launch=0, code=1)
    stories = superseded().wait(46).say(gone), superseded().wait(46).steps(4, 6).finish()
    for story in stories:
        reason = single_writer(story.history).reason
        assert reason.startswith("the driver of term 1 was still there 46.")
    assert single_writer(superseded().wait(44).say(gone).history).status == "PASS"


def test_a_commit_that_is_told_without_its_place_in_the_log_is_looked_for_in_all_of_it() -> None:
    events = change(running().steps(4, 4).history.events, h.Committed, always, number=None)
    assert single_writer(History(events)).status == "PASS"


def test_without_log_and_commits_there_is_nothing_to_judge() -> None:
    story = Story(subject="ray-train").launch().attempt(3).steps(1, 3, commit=False)
    assert single_writer(story.history).status == "NOT APPLICABLE"


def probed(index: int, **changes: Any) -> History:
    story = crash_and_finish()
    return History(change(story.events, h.CheckpointProbed, lambda e: e.index == index, **changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ok": False, "reason": "padding.bin: checksum differs"}, "cannot be restored: padding.bin: checksum"),
        ({"digest": "f" * 64}, "holds step 3 with digest ffffffff, but step 3"),
        ({"step": 2}, "holds step 2 with digest"),
    ],
)
def test_a_commit_that_does_not_come_back_is_caught(changes: dict[str, Any], reason: str) -> None:
    finding = durability(probed(3, **changes))
    assert finding.status == "FAIL"
    assert finding.reason.startswith(f"3-1-1 (log record 5) {reason}")


def test_a_deleted_commit_need_not_come_back_but_the_latest_may_not_be_deleted() -> None:
    story = running()
    story.delete("1-1-1").steps(4, 6).finish()
    assert durability(story.history).status == "PASS"
    assert durability(running().delete("3-1-1").history).reason == (
        "3-1-1 was deleted (log record 6) while it was the latest commit"
    )


def test_a_deletion_by_a_run_that_keeps_all_is_caught() -> None:
    story = running().delete("1-1-1")
    opened = story.records[0]
    opened.record["configuration"] = {"run_config": {"checkpoint_config": {"num_to_keep": None}}}
    assert "although num_to_keep is None" in durability(story.history).reason


@pytest.mark.parametrize(
    ("losses", "order", "deleted", "wrong"),
    [
        ([3, 1, 2, 9], "min", [1], ""),
        ([3, 1, 2, 9], "min", [1, 3], ""),
        ([3, 1, 2, 9], "min", [2], "2-1-1 was deleted (log record 7) with 1 better one by loss, but num_to_keep is 2"),
        ([3, 1, 2, 9], "max", [1], "1-1-1 was deleted (log record 7) with 1 better one by loss, but num_to_keep is 2"),
        # the older of two with the same score goes first; one without a score that counts is the worst
        ([1, 1, 9], "min", [1], ""),
        ([1, 1, 9], "min", [2], "2-1-1 was deleted (log record 6) with 1 better one by loss, but num_to_keep is 2"),
        ([None, 5, 9], "max", [1], ""),
        ([{"$float": "nan"}, 5, 9], "max", [1], ""),
        ([True, 0.5, 9], "max", [1], ""),
        ([{"$float": "inf"}, 5, 9], "max", [2], ""),
    ],
)
def test_what_is_kept_by_a_score_are_the_best_and_the_latest(
    losses: list[Any], order: str, deleted: list[int], wrong: str
) -> None:
    story = Story(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order=order).launch().attempt(3)
    for index, loss in enumerate(losses, 1):
        story.steps(index, index, commit=False).commit(index, metrics={} if loss is None else {"loss": loss})
    for index in deleted:
        story.delete(f"{index}-1-1")
    reason = durability(story.history).reason
    assert reason == wrong if wrong else "deleted" not in reason


def test_a_commit_that_lists_no_file_is_caught() -> None:
    story = crash_and_finish()
    for record in story.records:
        if record.record.get("index") == 2:
            record.record["files"] = []
    assert "without any file" in durability(story.history).reason


def test_commits_that_nobody_read_back_are_no_pass() -> None:
    story = crash_and_finish()
    story.events = drop(story.events, h.CheckpointProbed, always)
    assert durability(story.history).status == "NOT APPLICABLE"
    assert durability(Story().launch().attempt(1).history).status == "NOT APPLICABLE"
