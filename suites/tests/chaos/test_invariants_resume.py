"""resume-from-checkpoint and world-size-bounds: what they must catch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shaketable.chaos.chain import reference_digest
from shaketable.chaos.history import events as h
from shaketable.chaos.history.view import History
from shaketable.chaos.invariants.resume_from_checkpoint import resume_from_checkpoint
from shaketable.chaos.invariants.world_size_bounds import world_size_bounds
from shaketable.suites.tests.rigs.run_logs import RunLogs
from shaketable.suites.tests.rigs.story import JOB, Story, always, change, crash_and_finish, drop


def crash() -> Story:
    story = Story(max_failures=1).launch().attempt(3).steps(1, 4).fault("sigkill_worker", ranks=[1])
    return story.end("worker_death", "max_failures")


def relaunched() -> Story:
    return Story().launch().attempt(3).steps(1, 4).fault("sigkill_driver").exit(137).launch().end("driver_lost", None)


RESUMES: list[tuple[str, Callable[[], Story], str]] = [
    (
        "from scratch",
        lambda: crash().attempt(3, resume=None, found=(0, reference_digest(0, JOB))),
        "attempt 2 resumed from scratch, but the latest commit before it was 4-1-1 at index 4 (log record 6)",
    ),
    (
        "from an older commit",
        lambda: crash().attempt(3, resume="3-1-1", found=(3, reference_digest(3, JOB))),
        "resumed from 3-1-1, but the latest commit before it was 4-1-1",
    ),
    ("from scratch after a relaunch", lambda: relaunched().attempt(3, resume=None), "resumed from scratch"),
    ("from nowhere", lambda: Story().launch().attempt(3, resume="9-9-9"), "but nothing had been committed"),
    ("a stale state", lambda: crash().attempt(3, found=(3, reference_digest(3, JOB))), "found step 3 with digest"),
    ("a torn state", lambda: crash().attempt(3, found=(4, "f" * 64)), "found step 4 with digest ffffffff"),
    ("a dirty beginning", lambda: Story().launch().attempt(3, found=(0, "f" * 64)), "nothing had been committed"),
]


@pytest.mark.parametrize(("tell", "reason"), [row[1:] for row in RESUMES], ids=[row[0] for row in RESUMES])
def test_a_wrong_resume_is_caught(tell: Callable[[], Story], reason: str) -> None:
    finding = resume_from_checkpoint(tell().history)
    assert finding.status == "FAIL"
    assert reason in finding.reason


@pytest.mark.parametrize("taken_back", [True, False])
def test_a_quarantined_checkpoint_is_resumed_from_again_only_where_it_was_taken_back(taken_back: bool) -> None:
    log = RunLogs().open().attempt(1).commit(1)
    log.say("checkpoint_quarantined", checkpoint=log.resume, detail="").end("checkpoint_corrupt").fail()
    log.open(reopened=True)
    if taken_back:
        log.say("checkpoint_reinstated", commit={"checkpoint": log.resume})
    history = History(log.attempt(1).events)
    assert history.quarantined_checkpoints() == (set() if taken_back else {log.resume})
    finding = resume_from_checkpoint(history)
    assert (finding.status == "FAIL") != taken_back, finding.reason


def test_one_rank_that_was_given_something_else_is_caught() -> None:
    events = change(crash_and_finish().events, h.WorkerStarted, lambda e: (e.attempt, e.rank) == (2, 2), resume="3-1-1")
    finding = resume_from_checkpoint(History(events))
    assert (finding.status, finding.reason[:44]) == ("FAIL", "rank 2 of attempt 2 was given 3-1-1, but the")


def test_one_rank_that_found_something_else_is_caught() -> None:
    events = change(crash_and_finish().events, h.Resumed, lambda e: (e.attempt, e.rank) == (2, 2), step=3)
    assert resume_from_checkpoint(History(events)).reason.startswith("rank 2 of attempt 2 found step 3")


def test_a_rank_that_does_not_say_what_it_resumed_is_caught() -> None:
    events = drop(crash_and_finish().events, h.Resumed, lambda e: (e.attempt, e.rank) == (2, 1))
    assert "but did not record what it resumed" in resume_from_checkpoint(History(events)).reason


def test_a_commit_after_the_start_does_not_count_against_it() -> None:
    story = Story(subject="ray-train").launch().attempt(2).steps(1, 2)
    assert resume_from_checkpoint(story.history).reason == "no attempt resumed from a checkpoint"
    assert resume_from_checkpoint(story.attempt(2).history).status == "PASS"


def test_a_commit_of_what_nobody_recorded_is_caught() -> None:
    story = crash()
    story.commit(9)
    finding = resume_from_checkpoint(story.attempt(3, found=(9, reference_digest(9, JOB))).history)
    assert finding.reason == "commit 9-1-1 (log record 8): no checkpoint was recorded at step 9"


def test_without_a_log_the_last_commit_before_a_driver_died_may_be_untold() -> None:
    story = Story(subject="ray-train").launch().attempt(2).steps(1, 4).fault("sigkill_driver").exit(137)
    story.launch().attempt(2, resume="4-1-1").steps(5, 6)
    story.events = drop(story.events, h.Committed, lambda e: e.index == 4)
    assert resume_from_checkpoint(story.history).status == "PASS"
    story.events = change(story.events, h.Resumed, lambda e: e.term == 2, step=2)
    assert resume_from_checkpoint(story.history).status == "FAIL"


def test_a_subject_that_records_no_commits_is_not_judged() -> None:
    story = crash_and_finish(subject="ray-train")
    story.events = drop(story.events, h.Committed, always)
    assert resume_from_checkpoint(story.history).status == "NOT APPLICABLE"


SIZES: list[tuple[str, Callable[[], Story], str]] = [
    ("above max", lambda: Story(nodes=4).launch().attempt(4), "has 4 workers; the bounds are 1 to 3"),
    ("below min", lambda: Story(num_workers=[2, 3]).launch().attempt(1), "has 1 worker; the bounds are 2 to 3"),
    ("not the fixed size", lambda: Story(num_workers=3).launch().attempt(2), "the bounds are 3 to 3"),
    ("a rank missing", lambda: Story().launch().attempt(3, ranks=[0, 2]), "the ranks [0, 2]"),
    ("a rank twice", lambda: Story().launch().attempt(3, ranks=[0, 1, 1]), "the ranks [0, 1, 1]"),
    (
        "a worker sees another world",
        lambda: Story().launch().attempt(2, enter=[0]).enter(1, None, world=3),
        "rank 1 sees 3",
    ),
    ("a worker too many", lambda: Story().launch().attempt(2).enter(2, None), "but rank 2 entered it"),
    ("two workers of one rank", lambda: Story().launch().attempt(2).enter(1, None, pid=7), "has rank 1 twice"),
    ("somebody missing", lambda: Story().launch().attempt(3, enter=[0, 1]).steps(1, 2), "ranks [2] never entered"),
    (
        "step of another world",
        lambda: Story().launch().attempt(2).step(1, 0, world_size=3),
        "step 1 was taken by rank 0 of 3",
    ),
]


@pytest.mark.parametrize(("tell", "reason"), [row[1:] for row in SIZES], ids=[row[0] for row in SIZES])
def test_a_wrong_world_is_caught(tell: Callable[[], Story], reason: str) -> None:
    finding = world_size_bounds(tell().history)
    assert finding.status == "FAIL"
    assert reason in finding.reason


def test_a_worker_of_an_attempt_that_nobody_started_is_caught() -> None:
    events = change(crash_and_finish().events, h.WorkerStarted, lambda e: e.attempt == 2, attempt=9)
    assert "entered attempt 9 of term 1, which was never started" in world_size_bounds(History(events)).reason


def test_a_worker_on_another_node_than_written_down_is_caught() -> None:
    events = change(crash_and_finish().events, h.WorkerStarted, lambda e: e.rank == 1, node_id="node-3")
    assert "has rank 1 on node node-2, but it ran on node-3" in world_size_bounds(History(events)).reason


def test_bounds_are_those_of_the_launch() -> None:
    story = relaunched()
    assert world_size_bounds(story.attempt(3).history).status == "PASS"
    story = Story().launch().attempt(3).fault("sigkill_driver").exit(137)
    story.launch(changed={"num_workers": [1, 2]}).end("driver_lost", None).attempt(3)
    assert "the bounds are 1 to 2" in world_size_bounds(story.history).reason
