"""The harness's own ledger: what the faults alone say an attempt may be charged to, and when it has to be charged."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from shaketable.chaos.fault_kinds import FAILURES, PREEMPTIONS
from shaketable.chaos.history import events as h
from shaketable.chaos.invariants.failure_budget import failure_budget
from shaketable.chaos.invariants.ledger import expected
from shaketable.suites.tests.rigs.story import Story

EITHER = {FAILURES, PREEMPTIONS}


def running(world: int = 3, **configuration: object) -> Story:
    return Story(**{"max_failures": 5, **configuration}).launch().attempt(world).steps(1, 3).wait(3)  # type: ignore[arg-type]


def line(story: Story, attempt: int = 1) -> tuple[set[str], bool]:
    """What an attempt may be charged to, and whether it has to be."""
    history = story.history
    found = expected(history, history.attempts[attempt - 1])
    return set(found.accounts), found.must


def accounts(story: Story) -> set[str]:
    return line(story)[0]


def must(story: Story, attempt: int = 1) -> bool:
    return line(story, attempt)[1]


def state(story: Story, name: str) -> Story:
    return story.drive(h.StateChanged(term=1, state=name))


def notice(story: Story, rank: int = 1, evidence: str = "gone") -> Story:
    """A node is announced to go, and the controller does not show that it has read that."""
    number = story.faults
    story.fault("drain_node", observed=False, ranks=[rank], nodes=[rank + 1])
    return story.say(h.FaultObserved(fault=number, name="drain_node", evidence=evidence, after_ms=5.0))


def killed(story: Story) -> Story:
    return story.fault("sigkill_worker", ranks=[1])


def healed(story: Story, fault: int = 0) -> Story:
    return story.say(h.FaultHealed(fault=fault, name="freeze_node"))


# ---- whether a notice was read


def test_a_notice_that_ray_showed_only_after_the_attempt_had_been_left_may_not_have_been_known() -> None:
    def drained(seen_late: bool) -> Story:
        story = running()
        number = story.faults
        story.fault("drain_node", observed=False, ranks=[1], nodes=[2]).wait(0.1)
        seen = h.FaultObserved(fault=number, name="drain_node", evidence="draining", after_ms=5.0)
        story = state(story, "STOPPING").wait(0.1).say(seen) if seen_late else state(story.say(seen), "STOPPING")
        return story.end("node_lost", FAILURES)

    assert line(drained(seen_late=True)) == (EITHER, True)
    assert line(drained(seen_late=False)) == ({PREEMPTIONS}, True)


def test_while_every_machine_stands_still_nobody_reads_a_notice() -> None:
    def drained(paused: bool) -> Story:
        story = notice(running()).wait(0.1)
        if paused:
            number = story.faults
            story.fault("freeze_everything").wait(10).say(h.FaultHealed(fault=number, name="freeze_everything"))
        else:
            story.wait(10)
        return story.wait(0.1).end("node_lost", FAILURES)

    assert line(drained(paused=True)) == (EITHER, True)
    assert line(drained(paused=False)) == ({PREEMPTIONS}, True)


def test_an_attempt_that_is_on_record_only_after_the_driver_was_interrupted_is_charged_for_nothing() -> None:
    story = Story(max_failures=5).launch().fault("sigint_driver").wait(3).attempt(3)
    story.fault("sigkill_node", ranks=[1], nodes=[2]).end("interrupted", None)
    assert not must(story)


def test_a_node_that_goes_sooner_than_its_notice_is_read_may_be_a_failure_or_a_preemption() -> None:
    gone = notice(running()).wait(1).end("node_lost", FAILURES)
    assert line(gone) == (EITHER, True)
    assert failure_budget(gone.attempt(2).history).status == "PASS"


def test_a_notice_that_ray_was_seen_to_have_can_be_asked_for_however_soon_the_node_goes() -> None:
    gone = notice(running(), evidence="draining").wait(1).end("node_lost", FAILURES)
    assert line(gone) == ({PREEMPTIONS}, True)


def test_a_notice_that_there_was_time_to_read_is_a_preemption() -> None:
    assert line(notice(running()).wait(2.5).end("node_lost", FAILURES)) == ({PREEMPTIONS}, True)


def test_a_hold_shows_that_a_notice_was_read_but_not_one_before_it() -> None:
    after = state(notice(running()), "HOLDING").wait(1).end("preempted", PREEMPTIONS)
    before = notice(state(running(), "HOLDING")).wait(1).end("preempted", PREEMPTIONS)
    assert accounts(after) == {PREEMPTIONS}
    assert accounts(before) == EITHER


def test_of_two_notices_at_once_a_hold_shows_that_one_was_read_and_not_which() -> None:
    story = state(notice(notice(running()), rank=2), "HOLDING").wait(1)
    assert accounts(story.end("preempted", PREEMPTIONS)) == EITHER


def test_a_hold_may_be_for_a_notice_that_came_long_before() -> None:
    """Its node's replacement is ready only now."""
    story = state(notice(notice(running(), rank=2).wait(2.5)), "HOLDING").wait(0.5)
    assert accounts(story.end("node_lost", FAILURES)) == EITHER


def test_where_a_node_came_as_another_was_announced_a_hold_does_not_show_that_the_notice_was_read() -> None:
    story = notice(running()).join_node(4)
    assert accounts(state(story, "HOLDING").wait(1).end("preempted", PREEMPTIONS)) == EITHER


def test_where_there_is_room_to_grow_a_hold_does_not_show_that_a_notice_was_read() -> None:
    story = state(notice(running(world=2)), "HOLDING").wait(1)
    assert accounts(story.end("preempted", PREEMPTIONS)) == EITHER


def test_the_time_to_read_a_notice_ends_when_the_attempt_is_left_not_when_that_is_recorded() -> None:
    story = state(notice(running()).wait(1), "STOPPING").wait(3)
    assert line(story.end("node_lost", FAILURES)) == (EITHER, True)


# ---- whether what was hit had been announced to go


def preempted_twice(announced: int, kill: Callable[[Story], Story]) -> Story:
    """A node is announced to go, the attempt is charged for that, and so is the next one, which `kill` hits."""
    story = running().fault("sigterm_node", ranks=[announced - 1], nodes=[announced]).wait(3)
    story = kill(story.end("preempted", PREEMPTIONS).attempt(3).steps(4, 4).wait(3))
    return story.end("preempted", PREEMPTIONS).attempt(2)


@pytest.mark.parametrize(
    "kill", [killed, lambda story: story.fault("sigkill_node", nodes=[2], ranks=[1])], ids=["worker", "node"]
)
def test_the_end_of_an_announced_node_is_a_preemption_of_its_own(kill: Callable[[Story], Story]) -> None:
    assert failure_budget(preempted_twice(2, kill).history).status == "PASS"
    assert "for a fault already charged" in failure_budget(preempted_twice(3, kill).history).reason


def test_the_end_of_an_announced_node_on_which_nobody_was_yet_is_a_preemption_too() -> None:
    story = running().wait(3).end("finished", None).wait(3).fault("sigterm_node", nodes=[2]).wait(3)
    story.fault("sigkill_node", nodes=[2]).attempt(3)
    history = story.history
    second = expected(history, history.attempts[1])
    assert {reason.account for reason in second.faults if reason.fault == 1} == {PREEMPTIONS}


def test_an_announcement_after_the_end_makes_no_preemption_of_a_failure() -> None:
    story = running().fault("sigkill_node", ranks=[1], nodes=[2]).end("preempted", PREEMPTIONS)
    story.attempt(2).wait(3).fault("sigterm_node", nodes=[2])
    assert "not max_failures" in failure_budget(story.history).reason


def test_a_hold_shows_that_the_notice_of_one_node_was_read_not_that_of_each() -> None:
    def drained(nodes: list[int]) -> Story:
        story = running()
        story.fault("drain_node", observed=False, ranks=[node - 1 for node in nodes], nodes=nodes)
        story.say(h.FaultObserved(fault=0, name="drain_node", evidence="gone", after_ms=5.0))
        return state(story.wait(0.2), "HOLDING").wait(0.1).end("node_lost", FAILURES)

    assert line(drained([2])) == ({PREEMPTIONS}, True)
    assert line(drained([2, 3])) == (EITHER, True)


# ---- whether the attempt was being left already


def test_what_is_hit_while_it_is_being_left_may_end_as_that_however_long_it_takes() -> None:
    story = killed(state(running(world=2), "STOPPING").wait(0.1)).wait(3)
    assert line(story.end("resized", None)) == ({FAILURES}, False)


def test_what_is_hit_in_the_moment_in_which_it_is_left_may_end_as_that() -> None:
    story = killed(state(running(world=2, nodes=2), "STOPPING"))
    left, hit = (next(e for e in story.events if isinstance(e, kind)) for kind in (h.StateChanged, h.FaultInjected))
    # it triggers the fault
    story.events[story.events.index(left)] = msgspec.structs.replace(left, at_s=hit.at_s)
    assert line(story.wait(3).end("resized", None)) == ({FAILURES}, False)


@pytest.mark.parametrize(
    "story",
    [
        state(killed(running(world=2)).wait(3), "STOPPING"),
        killed(state(running(world=2), "HOLDING").wait(0.1)).wait(3),
        killed(state(Story().launch(), "STOPPING").attempt(2).steps(1, 3).wait(3)).wait(3),
    ],
    ids=["left afterwards", "only held", "another was being left"],
)
def test_a_resize_is_no_excuse_for_what_was_not_being_left_when_it_was_hit(story: Story) -> None:
    assert must(story.end("resized", None))


def test_a_resize_in_the_moment_of_a_death_excuses_it_only_where_there_was_room_before() -> None:
    assert not must(killed(running(world=2)).end("resized", None))
    assert must(killed(running(world=2, nodes=2)).join_node(3).end("resized", None))


def test_an_attempt_that_is_left_because_of_a_death_has_to_be_charged_for_it() -> None:
    assert must(killed(state(running(), "STOPPING").wait(0.1)).end("worker_death", None))


def test_an_attempt_that_is_resized_before_anybody_could_read_a_notice_need_not_be_charged() -> None:
    assert not must(notice(running()).wait(1.5).end("resized", None))
    assert must(notice(running()).wait(2.5).end("resized", None))


def test_what_ended_already_or_with_its_driver_need_not_be_charged() -> None:
    over = running().end("resized", None).wait(1).fault("sigkill_worker", ranks=[1], attempt=1)
    relaunched = killed(running()).fault("sigkill_driver").exit(137).launch().end("driver_lost", None)
    interrupted = killed(running()).fault("sigterm_driver").wait(2).end("interrupted", None)
    assert [must(story) for story in (over, relaunched, interrupted)] == [False] * 3
    later = running().fault("sigterm_driver").end("interrupted", None).wait(2).attempt(3).wait(3)
    assert must(killed(later).end("worker_death", None), attempt=2)


# ---- whether what was frozen was thawed in time


def frozen(story: Story) -> Story:
    return story.fault("freeze_node", ranks=[1], nodes=[2]).wait(2)


def test_what_was_thawed_before_anybody_gave_it_up_need_not_be_charged() -> None:
    assert not must(healed(frozen(running(world=2))).wait(5).end("resized", None))


def test_what_was_thawed_after_the_attempt_had_ended_has_to_be_charged() -> None:
    assert must(healed(frozen(running()).end("node_lost", None).wait(1)))


def test_a_resize_before_silence_could_tell_of_a_frozen_node_need_not_be_charged() -> None:
    assert not must(frozen(running(world=2, heartbeat_timeout_s=3.0)).end("resized", None))
    assert must(frozen(running(world=2, heartbeat_timeout_s=3.0)).wait(2.5).end("resized", None))
    assert must(frozen(running(world=2, nodes=2, heartbeat_timeout_s=3.0)).end("resized", None)), "no room"


def test_the_thaw_of_another_node_excuses_nothing() -> None:
    story = frozen(running().fault("freeze_node", nodes=[3]))
    assert must(healed(story, fault=0).end("node_lost", None))


# ---- how many endings one fault may cause


def test_of_two_nodes_that_one_fault_took_each_may_end_an_attempt_also_if_one_was_idle() -> None:
    story = running(world=2).fault("sigkill_node", ranks=[1], nodes=[2, 3]).end("node_lost", FAILURES)
    story.attempt(2, ranks=[0, 2]).end("node_lost", FAILURES, rank=2).attempt(1)
    assert failure_budget(story.history).status == "PASS"


def test_of_two_workers_that_one_fault_killed_each_may_end_an_attempt_and_no_third() -> None:
    story = running().fault("sigkill_worker", ranks=[1, 2])
    for _ in range(2):
        story.end("worker_death", FAILURES).attempt(3)
    assert failure_budget(story.history).status == "PASS"
    assert failure_budget(story.end("worker_death", FAILURES).attempt(3).history).status == "FAIL"


def test_a_worker_of_unknown_rank_is_one() -> None:
    story = running().fault("sigkill_worker").end("worker_death", FAILURES).attempt(3)
    assert failure_budget(story.history).status == "PASS"


# ---- whether what was hit had nothing more to do


def test_a_worker_killed_after_its_last_step_need_not_be_charged_one_with_steps_to_do_must() -> None:
    assert not must(killed(running().steps(4, 6)).end("finished", None))
    assert must(killed(running()).end("finished", None))


def test_a_worker_killed_after_its_function_returned_need_not_be_charged() -> None:
    story = running(job="my_job:train").worker(1, h.WorkerFinished(term=1, attempt=1, rank=1))
    assert not must(killed(story).end("finished", None))


def test_of_several_that_were_hit_all_must_have_had_nothing_more_to_do() -> None:
    story = running().worker(1, h.WorkerFinished(term=1, attempt=1, rank=1))
    assert must(story.fault("sigkill_worker", ranks=[1, 2]).end("finished", None))


def test_a_run_may_finish_before_an_announced_node_goes() -> None:
    story = running(job="my_job:train").fault("sigterm_node", ranks=[1], nodes=[2]).wait(3)
    assert line(story.end("finished", None)) == ({PREEMPTIONS}, False)


def test_what_a_driver_begins_when_it_goes_on_after_a_stop_may_end_by_that() -> None:
    def thawed(before_s: float, *, meant: bool = False) -> Story:
        story = Story(max_failures=5).launch()
        if meant:
            # when it is stopped; the record of the attempt is on its way all that time
            story.drive(h.StateChanged(term=1, state="STARTING"))
        story.fault("freeze_driver").wait(40)
        story.say(h.FaultHealed(fault=0, name="freeze_driver")).wait(before_s)
        return killed(story.attempt(3).wait(3)).end("driver_lost", None)

    assert not must(thawed(0.1))
    assert must(thawed(5))
    assert not must(thawed(5, meant=True))
