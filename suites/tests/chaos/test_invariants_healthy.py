"""Healthy histories of every kind of fault: no invariant may blame them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shaketable.chaos.history import events as h
from shaketable.chaos.verdict.judge import judge
from shaketable.suites.tests.rigs.story import Story, crash_and_finish, renumbered, spent


def raised() -> Story:
    story = Story(max_failures=1, expect={"charged": {"max_failures": 1}}).launch().attempt(3).steps(1, 4)
    story.wait(2).fault("raise_in_worker", ranks=[1]).end("worker_error", "max_failures")
    return story.attempt(3).steps(5, 6).finish()


def preempted() -> Story:
    story = Story(expect={"charged": {"max_preemption_failures": 1}, "steps_lost": 0}).launch().attempt(3)
    story.steps(1, 3).wait(2).fault("sigterm_node", ranks=[1], nodes=[2]).steps(4, 5)
    return story.end("preempted", "max_preemption_failures").attempt(2).steps(6, 6).finish()


def frozen_and_thawed() -> Story:
    story = Story(max_failures=1, expect={"charged": {"max_failures": 1}}).launch().attempt(3).steps(1, 4)
    story.fault("freeze_node", ranks=[2], nodes=[3]).wait(5).end("node_lost", "max_failures")
    story.attempt(2).steps(5, 5).say(h.FaultHealed(fault=0, name="freeze_node"))
    story.worker(2, h.Stepped(term=1, attempt=1, rank=2, step=5, world_size=3, digest=_digest(story, 5)))
    return story.steps(6, 6).finish()


def _digest(story: Story, step: int) -> str:
    from shaketable.chaos.chain import reference_digest

    return reference_digest(step, story.job)


def raised_and_frozen_before_its_word() -> Story:
    """Its peers see the connection go, so one of theirs is the error that arrives (`explore --cluster processes`,
    schedule 117 of seed 1)."""
    story = Story(max_failures=1, expect={"charged": {"max_failures": 1}}).launch().attempt(3).steps(1, 4).wait(2)
    story.fault("raise_in_worker", ranks=[0]).fault("freeze_worker", ranks=[0]).wait(5)
    story.end("worker_error", "max_failures", rank=2).attempt(3)
    return story.say(h.FaultHealed(fault=1, name="freeze_worker")).steps(5, 6).finish()


def frozen_for_a_moment() -> Story:
    story = Story().launch().attempt(3).steps(1, 4).fault("freeze_node", ranks=[1], nodes=[2]).wait(2)
    return story.say(h.FaultHealed(fault=0, name="freeze_node")).steps(5, 6).finish()


def idle_node_killed() -> Story:
    story = Story(nodes=4, num_workers=[1, 3]).launch().attempt(3).steps(1, 4)
    return story.fault("sigkill_node", nodes=[4]).steps(5, 6).finish()


def grown() -> Story:
    story = Story(nodes=2).launch().attempt(2).steps(1, 3).fault("add_node").join_node(3).steps(4, 5)
    return story.end("resized", None).attempt(3).steps(6, 6).finish()


def killed_while_growing() -> Story:
    story = Story(nodes=2).launch().attempt(2).steps(1, 3).fault("add_node").join_node(3).steps(4, 5)
    story.fault("sigkill_worker", ranks=[1]).end("resized", None)
    return story.attempt(3).steps(6, 6).finish()


def driver_killed() -> Story:
    story = Story().launch().attempt(3).steps(1, 4).fault("sigkill_driver").exit(137)
    story.launch().end("driver_lost", None)
    return story.attempt(3).steps(5, 6).finish()


def driver_killed_before_it_recorded_its_last_commit() -> Story:
    story = driver_killed()
    story.events = [e for e in story.events if not (isinstance(e, h.Committed) and e.index == 4)]
    return story


def budget_survives_the_driver() -> Story:
    story = Story(max_failures=2, expect={"charged": {"max_failures": 2}}).launch().attempt(3).steps(1, 2).wait(2)
    story.fault("sigkill_worker", ranks=[1]).end("worker_death", "max_failures").attempt(3).steps(3, 3).wait(2)
    story.fault("sigkill_driver").exit(137).launch().end("driver_lost", None).attempt(3).steps(4, 4).wait(2)
    story.fault("sigkill_worker", ranks=[2]).end("worker_death", "max_failures")
    return story.attempt(3).steps(5, 6).finish()


def interrupted_and_relaunched() -> Story:
    story = Story().launch().attempt(3).steps(1, 4).fault("sigterm_driver").end("interrupted", None)
    story.drive(h.RunEnded(term=1, outcome="interrupted", error="SystemExit(143)")).exit(143)
    return story.launch().attempt(3).steps(5, 6).finish()


def reopened() -> Story:
    story = Story(expect={"charged": {"max_failures": 2}}).launch().attempt(3).steps(1, 3).wait(2)
    story.fault("sigkill_worker", ranks=[1]).end("worker_death", "max_failures").fail(spent("max_failures", 0, 1)).wait(
        1
    )
    story.fault("relaunch_driver").launch(changed={"max_failures": 1}, reopened=True).attempt(3).steps(4, 4).wait(2)
    story.fault("sigkill_worker", ranks=[1]).end("worker_death", "max_failures")
    return story.attempt(3).steps(5, 6).finish()


def finished_and_launched_again() -> Story:
    story = Story().launch().attempt(3).steps(1, 6).finish().wait(1)
    again = next(e for e in story.events if isinstance(e, h.RunEnded))
    story.launches += 1
    story.say(h.DriverStarted(launch=1, pid=4002)).drive(h.TermBegan(term=1, spent={}, finished=True))
    return story.drive(h.RunEnded(term=1, outcome="finished", metrics=again.metrics)).exit(0)


def fenced() -> Story:
    story = Story().launch().attempt(3).steps(1, 4).fault("relaunch_driver").launch().end("driver_lost", None)
    story.attempt(3).steps(5, 5)
    story.say(h.RunEnded(term=1, outcome="interrupted", error="Fenced: by term 2"), "driver-4001-ab")
    story.say(h.DriverExited(launch=0, code=1))
    return story.steps(6, 6).finish()


def planned_failure_within_the_budget() -> Story:
    story = Story(
        max_failures=2,
        job_config={"steps": 6, "fail_at": 4, "fail_rank": 1},
        expect={"outcome": "failed", "charged": {"max_failures": 3}},
    )
    story.launch().attempt(3).steps(1, 3).end("worker_error", "max_failures")
    story.attempt(3).end("worker_error", "max_failures").attempt(3).end("worker_error", "max_failures")
    return story.fail(spent("max_failures", 2, 3)).leak_check()


def started_on_a_dead_node() -> Story:
    story = Story(max_failures=1, expect={"charged": {"max_failures": 1}}).launch().attempt(3).steps(1, 4).wait(2)
    story.fault("sigkill_node", ranks=[1], nodes=[2]).end("node_lost", "max_failures")
    story.attempt(3, enter=[0]).end("start_failed", "max_start_failures")
    return story.attempt(2).steps(5, 6).finish()


def without_digests() -> Story:
    story = Story(job="my_job:train").launch().attempt(2)
    for step in (1, 2):
        for rank in (0, 1):
            story.step(step, rank, checkpoint=rank == 0, digest=None, samples=None)
        story.commit(step)
    story.finish()
    story.events = renumbered(e for e in story.events if not isinstance(e, h.Resumed))
    return story


STORIES: list[Callable[[], Story]] = [
    crash_and_finish,
    raised,
    preempted,
    frozen_and_thawed,
    raised_and_frozen_before_its_word,
    frozen_for_a_moment,
    idle_node_killed,
    grown,
    killed_while_growing,
    driver_killed,
    driver_killed_before_it_recorded_its_last_commit,
    budget_survives_the_driver,
    interrupted_and_relaunched,
    reopened,
    finished_and_launched_again,
    fenced,
    planned_failure_within_the_budget,
    started_on_a_dead_node,
    without_digests,
]


@pytest.mark.parametrize("tell", STORIES, ids=lambda tell: tell.__name__)
def test_no_invariant_blames_a_healthy_run(tell: Callable[[], Story]) -> None:
    judgement = judge(tell().events)
    assert judgement.verdict == "PASS", judgement.reason
