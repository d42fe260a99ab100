"""failure-budget on what a run may cost besides its two accounts: failures without progress, hangs, tiers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shaketable.chaos.history import events as h
from shaketable.chaos.invariants.failure_budget import failure_budget
from shaketable.suites.tests.rigs.story import Story, spent

FAILURES, PREEMPTIONS = "max_failures", "max_preemption_failures"
LADDER = [
    {"name": "spot", "nodes": 3, "max_failures": 0, "capacity_timeout_s": 60.0},
    {"name": "spare", "nodes": 0, "max_failures": 0},
    {"name": "on-demand", "nodes": 0, "max_failures": 0},
]


def running(**configuration: Any) -> Story:
    return Story(**{"max_failures": -1, **configuration}).launch().attempt(3).steps(1, 3).wait(3)


def crashed(story: Story, times: int = 1, *, steps: bool = False) -> Story:
    """So often the worker of rank 1 dies, and an attempt follows; with `steps` each commits a step before."""
    for _ in range(times):
        story.fault("sigkill_worker", ranks=[1]).end("worker_death", FAILURES).attempt(3).wait(3)
        step = len(story.commits) + 1
        story = story.steps(step, step) if steps else story
    return story


def killed(story: Story) -> Story:
    return story.fault("sigkill_worker", ranks=[1]).end("worker_death", FAILURES)


def went(story: Story, *states: str) -> Story:
    for state in states:
        story.drive(h.StateChanged(term=1, state=state))
    return story


def moved(story: Story, tier: str) -> Story:
    story.record("tier_changed", tier=tier, reason="")
    story.spent = {}
    return story


def preempted_by_an_exception() -> Story:
    story = running().fault("sigterm_node", ranks=[1], nodes=[2]).wait(3).fault("raise_in_worker", ranks=[1])
    story.record("attempt_ended", attempt=1, cause="preempted", account=PREEMPTIONS, detail="Traceback\nInjectedError")
    return story.attempt(2)


def stopping(story: Story) -> Story:
    return story.drive(h.StateChanged(term=1, state="STOPPING"))


def misplaced() -> Story:
    story = running(tiers=LADDER, nodes=0)
    for node in (1, 2, 3):
        story.say(h.NodeJoined(node=node, node_id=f"node-{node}", tier="spot"))
    return moved(killed(story), "spare").attempt(3)


def forgotten() -> Story:
    story = moved(killed(running(tiers=LADDER)), "spare").attempt(3).wait(3)
    return story.fault("sigkill_driver").exit(137).launch(spent={FAILURES: 1})


WRONG: dict[str, tuple[Callable[[], Story], str]] = {
    "went on in a crash loop": (
        lambda: crashed(running(max_failures_without_progress=1), 2),
        "with 2 charged since the last commit to max_failures_without_progress of 1",
    ),
    "gave up before the crash loop's limit": (
        lambda: killed(crashed(running(max_failures_without_progress=2), 1)).fail(),
        "the run gave up",
    ),
    "hung though nothing stood still": (
        lambda: running().fault("sigkill_worker", ranks=[1]).end("hung", FAILURES).attempt(3),
        "ended as hung (log record 6), but no fault made it hang",
    ),
    "an exception called a preemption": (preempted_by_an_exception, "an exception ended it"),
    "a hang not charged": (
        lambda: running(hang_timeout_s=3.0).fault("hang_worker", ranks=[1]).end("hung", None).attempt(3),
        "hang_worker hit attempt 1, but the run charged nothing",
    ),
    "stayed on a spent tier": (lambda: crashed(running(tiers=LADDER)), "with 1 charged to max_failures of 0"),
    "skipped a tier": (
        lambda: moved(killed(running(tiers=LADDER)), "on-demand"),
        "moved from tier spot to on-demand (log record 7), but the next tier is spare",
    ),
    "left a tier that was not spent": (
        lambda: moved(running(tiers=LADDER).end("resized", None), "spare"),
        "the run left tier spot (log record 7) with 0 of 0 charged",
    ),
    "gave up with tiers left": (lambda: killed(running(tiers=LADDER)).fail(), "the run gave up"),
    "took a tier's charges along": (forgotten, "term 2 began with 1 spent of max_failures"),
    "ran on another tier": (misplaced, "attempt 2 (log record 8) has a worker on spot, not spare"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_caught(name: str) -> None:
    tell, reason = WRONG[name]
    finding = failure_budget(tell().history)
    assert finding.status == "FAIL"
    assert reason in finding.reason


RIGHT: dict[str, Callable[[], Story]] = {
    "failures with progress in between": lambda: crashed(running(max_failures_without_progress=1), 3, steps=True),
    "a crash loop ended": lambda: killed(crashed(running(max_failures_without_progress=1), 1)).fail(
        spent("max_failures_without_progress", 1, 2)
    ),
    "a hang": lambda: running(hang_timeout_s=3.0).fault("hang_worker", ranks=[1]).end("hung", FAILURES),
    "a frozen worker that was taken for one": lambda: (
        running(hang_timeout_s=3.0).fault("freeze_worker", ranks=[1]).end("hung", FAILURES)
    ),
    "down the whole ladder": lambda: killed(
        moved(killed(moved(killed(running(tiers=LADDER)), "spare").attempt(3).wait(3)), "on-demand").attempt(3).wait(3)
    ).fail(spent("max_failures", 0, 1)),
    "a crash loop ended with tiers left": lambda: killed(
        crashed(running(max_failures_without_progress=1, tiers=[{**LADDER[0], "max_failures": -1}, LADDER[1]]))
    ).fail(spent("max_failures_without_progress", 1, 2)),
    "an empty market": lambda: moved(running(tiers=LADDER).end("resized", None).wait(60), "spare"),
    "an empty market, and a log that was slow": lambda: moved(
        stopping(running(tiers=LADDER)).wait(58).end("resized", None).wait(2), "spare"
    ),
    # `explore --seed 5`, schedule 9152
    "an empty market, and an attempt that came to the log when it was over": lambda: moved(
        went(running(tiers=LADDER).end("resized", None), "STARTING", "WAITING")
        .wait(60)
        .attempt(3)
        .end("resized", None),
        "spare",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(name: str) -> None:
    finding = failure_budget(RIGHT[name]().history)
    assert finding.status == "PASS", finding.reason
