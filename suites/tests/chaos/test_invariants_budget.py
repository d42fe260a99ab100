"""failure-budget: the ledger against the run's own accounts, and both against the limits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shaketable.chaos.history import events as h
from shaketable.chaos.invariants.failure_budget import failure_budget
from shaketable.chaos.invariants.ledger import range_of
from shaketable.chaos.plan import Finding
from shaketable.suites.tests.rigs.story import Story, always, crash_and_finish, drop, spent


def running(**configuration: object) -> Story:
    return Story(**configuration).launch().attempt(3).steps(1, 3).wait(3)  # type: ignore[arg-type]


def killed(**configuration: object) -> Story:
    return running(**configuration).fault("sigkill_worker", ranks=[1])


def twice_charged() -> Story:
    story = killed(max_failures=5).end("worker_death", "max_failures").attempt(3)
    return story.end("worker_death", "max_failures").attempt(3)


def growth_forged() -> Story:
    """A death booked as a resize, though there was no room to grow into."""
    return killed(max_failures=1).end("resized", None).attempt(3)


def shrink_forged() -> Story:
    """A preemption booked as a resize: a smaller world is no reason of its own."""
    return running().fault("sigterm_node", ranks=[2], nodes=[3]).end("resized", None).attempt(2)


def beyond() -> Story:
    story = killed(max_failures=0).end("worker_death", "max_failures")
    return story.attempt(3).steps(4, 6).finish()


def lost_with_the_driver() -> Story:
    story = killed(max_failures=1).end("worker_death", "max_failures").attempt(3).steps(4, 4).wait(3)
    return story.fault("sigkill_driver").exit(137).launch(spent={})


def starting(rank: int) -> Story:
    """Rank 1 is killed before it is in the training function; the ending names `rank`."""
    story = Story().launch().attempt(3, enter=[0]).fault("sigkill_worker", ranks=[1])
    return story.end("start_failed", "max_start_failures", rank=rank)


WRONG: list[tuple[str, Callable[[], Story], str]] = [
    (
        "charged for nothing",
        lambda: running(max_failures=1).end("worker_death", "max_failures").attempt(3),
        "no fault that may be charged landed, but the run charged 1 (log record 6)",
    ),
    (
        "not charged",
        lambda: killed().end("worker_death", None).attempt(3),
        ("sigkill_worker hit attempt 1, but the run charged nothing (log record 6, cause worker_death)"),
    ),
    ("not ended", lambda: killed().attempt(3), "no end was recorded"),
    (
        "to the wrong account",
        lambda: killed().end("preempted", "max_preemption_failures").attempt(3),
        "sigkill_worker hit attempt 1: charged to max_preemption_failures (log record 6), not max_failures",
    ),
    (
        "a preemption as a failure",
        lambda: (
            running(max_failures=3)
            .fault("sigterm_node", ranks=[1], nodes=[2])
            .end("node_lost", "max_failures")
            .attempt(2)
        ),
        "charged to max_failures (log record 6), not max_preemption",
    ),
    ("one fault twice", twice_charged, "attempt 2 was charged to max_failures (log record 8) for a fault"),
    ("a death booked as growth", growth_forged, "the run charged nothing (log record 6, cause resized)"),
    ("a preemption booked as resize", shrink_forged, "the run charged nothing (log record 6, cause resized)"),
    (
        "went on beyond the limit",
        beyond,
        ("the run went on with attempt 2 (log record 7) with 1 charged to max_failures of 0"),
    ),
    (
        "gave up before the limit",
        lambda: killed(max_failures=2).end("worker_death", "max_failures").fail(),
        "the run gave up (log record 7) with 1 of 2 charged to max_failures",
    ),
    (
        "gave up though unlimited",
        lambda: killed(max_failures=-1).end("worker_death", "max_failures").fail(),
        "1 of -1 charged",
    ),
    (
        "forgotten by the next driver",
        lost_with_the_driver,
        ("term 2 began with 0 spent of max_failures (log record 9), but 1 had been charged"),
    ),
    (
        "an error of another rank than the one that raised, while a third was frozen",
        lambda: (
            running(max_failures=1)
            .fault("raise_in_worker", ranks=[0])
            .fault("freeze_worker", ranks=[1])
            .end("worker_error", "max_failures", rank=2)
            .attempt(3)
        ),
        "by rank 2 on node node-3 (log record 6), hit was rank 0 on node node-1, rank 1 on node node-2",
    ),
    (
        "a start failure of a started attempt",
        lambda: killed().end("start_failed", "max_start_failures").attempt(3),
        "all its ranks had entered",
    ),
    (
        "a start failure blamed on another rank",
        lambda: starting(rank=0).attempt(3),
        "attempt 1 ended start_failed by rank 0 on node node-1 (log record 3), hit was rank 1 on node node-2",
    ),
    (
        "a start failure out of the blue",
        lambda: Story().launch().attempt(3, enter=[0]).end("start_failed", "max_start_failures").attempt(3),
        "no fault that may be charged landed, but the run charged max_start",
    ),
    (
        "the job's own failure not charged",
        lambda: (
            Story(job_config={"steps": 6, "fail_at": 4})
            .launch()
            .attempt(3)
            .steps(1, 3)
            .end("worker_error", None)
            .attempt(3)
        ),
        "the job failed by its own fail_at, but the run charged",
    ),
    (
        "long after a thawed freeze",
        lambda: running(max_failures=1).fault("add_node").end("node_lost", "max_failures").attempt(3),
        "no fault that may be charged landed",
    ),
]


@pytest.mark.parametrize(("tell", "reason"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_wrong_account_is_caught(tell: Callable[[], Story], reason: str) -> None:
    finding = failure_budget(tell().history)
    assert finding.status == "FAIL", finding
    assert reason in finding.reason


def test_a_fault_that_did_not_land_allows_either_count() -> None:
    for account in (None, "max_failures"):
        story = running(max_failures=1).fault("sigkill_worker", ranks=[1], observed=False)
        assert failure_budget(story.end("worker_death", account).attempt(3).history).status == "PASS"


def test_two_nodes_at_once_are_one_charge_or_two_but_not_three() -> None:
    story = running(max_failures=5).fault("sigkill_node", ranks=[1], nodes=[2])
    story.fault("sigkill_node", ranks=[2], nodes=[3]).end("node_lost", "max_failures", rank=1).attempt(2)
    assert failure_budget(story.history).status == "PASS"
    assert range_of(story.history, "max_failures") == (1, 2)
    story.hit = 1
    story.end("node_lost", "max_failures").attempt(1)
    assert failure_budget(story.history).status == "PASS"
    story.end("node_lost", "max_failures").attempt(1)
    assert failure_budget(story.history).status == "FAIL"


def test_one_fault_of_two_nodes_is_one_charge_or_two_but_not_three() -> None:
    story = running(max_failures=5).fault("sigkill_node", ranks=[1, 2], nodes=[2, 3])
    story.end("node_lost", "max_failures").attempt(2).end("node_lost", "max_failures").attempt(1)
    assert failure_budget(story.history).status == "PASS"
    assert range_of(story.history, "max_failures") == (1, 2)
    story.end("node_lost", "max_failures").attempt(1)
    assert failure_budget(story.history).status == "FAIL"


def test_the_ledger_of_a_crash_is_exactly_one() -> None:
    assert range_of(crash_and_finish().history, "max_failures") == (1, 1)
    assert range_of(crash_and_finish().history, "max_preemption_failures") == (0, 0)


def test_a_reopened_run_that_keeps_old_charges_is_caught() -> None:
    story = killed().end("worker_death", "max_failures").fail()
    story.launch(changed={"max_failures": 1}, reopened=True, spent={"max_failures": 1})
    assert (
        "term 2 began with 1 spent of max_failures (log record 8), but 0 had been"
        in failure_budget(story.history).reason
    )


def test_a_larger_budget_of_the_next_launch_counts() -> None:
    story = killed().end("worker_death", "max_failures").fail(spent("max_failures", 0, 1))
    story.launch(changed={"max_failures": 1}, reopened=True)
    story.attempt(3).steps(4, 4).wait(3).fault("sigkill_worker", ranks=[0]).end("worker_death", "max_failures")
    assert failure_budget(story.attempt(3).history).status == "PASS"


def test_ray_trains_forgotten_charges_are_reported_as_what_they_are() -> None:
    story = killed(subject="ray-train", max_failures=1).end("worker_death", "max_failures").attempt(3).wait(3)
    story.fault("sigkill_driver").exit(137).launch(spent={})
    assert "term 2 began with 0 spent" in failure_budget(story.history).reason


def test_what_ray_trains_controller_counts_after_its_driver_was_killed_counts_for_nobody() -> None:
    """Its actor may live for a moment longer and see its workers go."""

    def killed_driver(subject: str) -> Finding:
        story = Story(subject=subject, max_failures=1).launch().attempt(3).steps(1, 3).wait(3)
        story.fault("sigkill_driver").end("worker_death", "max_failures").exit(137)
        return failure_budget(story.launch(spent={}).attempt(3).wait(3).history)

    assert killed_driver("ray-train").status == "PASS"
    # its log outlives the driver
    assert "the run charged 1" in killed_driver("bundled").reason


def test_what_ray_trains_controller_counts_before_its_driver_is_killed_is_judged() -> None:
    story = Story(subject="ray-train", max_failures=1).launch().attempt(3).steps(1, 3).wait(3)
    story.end("worker_death", "max_failures").wait(1).fault("sigkill_driver").exit(137)
    assert "no fault that may be charged landed, but the run charged 1" in failure_budget(story.history).reason


def test_a_subject_that_says_nothing_of_endings_is_not_judged() -> None:
    story = crash_and_finish(subject="ray-train")
    story.events = drop(story.events, h.AttemptEnded, always)
    assert failure_budget(story.history).status == "NOT APPLICABLE"
