"""liveness, grow-back, no-leaks and truthful-ending: what they must catch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shaketable.chaos.history import events as h
from shaketable.chaos.history.capacity import room
from shaketable.chaos.history.view import History
from shaketable.chaos.invariants.grow_back import grow_back
from shaketable.chaos.invariants.liveness import liveness
from shaketable.chaos.invariants.no_leaks import no_leaks
from shaketable.chaos.invariants.truthful_ending import truthful_ending
from shaketable.clusters.view import REQUESTED
from shaketable.suites.tests.rigs.story import Story, always, change, crash_and_finish, drop


def running(**configuration: Any) -> Story:
    return Story(**configuration).launch().attempt(3).steps(1, 3)


def test_a_run_that_hangs_is_caught_with_where_it_stood() -> None:
    story = running().drive(h.StateChanged(term=1, state="RUNNING")).say(h.DeadlinePassed(within_s=60.0))
    assert liveness(story.exit(137).history).reason == (
        "the run did not end within 60 s; last step 3, controller RUNNING."
        " If the job only takes longer: --within SECONDS"
    )


def behind() -> Story:
    """Two of three have taken step 4."""
    return running().step(4, 0).step(4, 2)


def not_returned() -> Story:
    """All have taken step 3, and the report of two has returned."""
    told = running()
    for rank in (0, 2):
        told.worker(rank, h.Reported(term=1, attempt=1, rank=rank, step=3))
    return told


def not_entered() -> Story:
    return Story().launch().attempt(3, enter=[0, 2])


@pytest.mark.parametrize(
    ("tell", "says"),
    [
        (behind, "last step 4, controller silent; rank 1 behind at step 3."),
        (not_returned, "last step 3, controller silent; rank 1 behind at step 3."),
        (lambda: running().fault("hang_worker", ranks=[1]), "controller silent; rank 1 behind at step 3."),
        (lambda: running().fault("freeze_node", nodes=[2, 3], ranks=[1, 2]), "silent; ranks 1, 2 behind at step 3."),
        (not_entered, "last step none, controller silent; rank 1 of attempt 1 not in the training function."),
        (lambda: running().end("hung", "max_failures"), "last step 3, controller silent."),
    ],
    ids=["a step", "a report", "hung", "frozen", "not there", "between attempts"],
)
def test_a_run_that_hangs_names_the_rank_that_is_behind(tell: Callable[[], Story], says: str) -> None:
    assert says in liveness(tell().say(h.DeadlinePassed(within_s=60.0)).exit(137).history).reason


def test_a_run_that_ends_too_long_after_healing_is_caught() -> None:
    story = running().say(h.Healed()).wait(61).steps(4, 6).finish()
    story.events = drop(story.events, h.Healed, lambda e: e.at_s > 1010)
    assert "s after healing; the limit is 60 s" in liveness(story.history).reason


def test_a_run_that_ends_by_itself_is_alive_and_one_without_an_end_is_not_judged() -> None:
    assert liveness(crash_and_finish().history).status == "PASS"
    assert liveness(running().history).status == "NOT APPLICABLE"


def lost_and_back(seconds: float) -> Story:
    story = Story(max_failures=1).launch().attempt(3).steps(1, 2)
    story.fault("sigkill_node", ranks=[2], nodes=[3]).end("node_lost", "max_failures").attempt(2).steps(3, 3)
    story.say(h.NodeLeft(node=3, node_id="node-3"))
    return story.join_node(4).steps(4, 4, step_s=seconds / 2).steps(5, 5, step_s=seconds / 2)


def test_a_run_that_never_grows_back_is_caught() -> None:
    reason = grow_back(lost_and_back(30).history).reason
    assert reason.startswith("attempt 2 trained with 2 for 30.0 s although there was room for 3; the limit is 16 s")


def test_a_run_that_grows_back_passes_and_one_that_ends_first_is_not_judged() -> None:
    grown = lost_and_back(4).end("resized", None).attempt(3)
    assert grow_back(grown.history).reason == "grew to 3 in attempt 3"
    assert grow_back(lost_and_back(4).history).status == "NOT APPLICABLE"
    assert grow_back(crash_and_finish().history).reason == "there was never room for a larger world"


def test_a_run_that_starts_small_and_stays_so_is_caught() -> None:
    story = Story().launch().attempt(1).steps(1, 2, step_s=10)
    assert "although there was room for 3" in grow_back(story.history).reason


@pytest.mark.parametrize("fault", ["freeze_node", "sigterm_node", "drain_node"])
def test_a_node_that_is_lost_gives_no_room_before_ray_says_so(fault: str) -> None:
    story = Story().launch().attempt(3).steps(1, 1).fault(fault, nodes=[3], ranks=[2])
    story.end("node_lost", None).attempt(2).steps(2, 3, step_s=20)
    assert grow_back(story.history).reason == "there was never room for a larger world"


@pytest.mark.parametrize("fault", ["freeze_worker", "freeze_node"])
def test_while_something_is_frozen_an_attempt_cannot_grow_but_before_and_after_it_must(fault: str) -> None:
    def frozen(before_s: float, after_s: float) -> History:
        story = Story(nodes=4).launch().attempt(2).steps(1, 2, step_s=before_s / 2)
        story.fault(fault, ranks=[1], nodes=[2]).wait(30).say(h.FaultHealed(fault=0, name=fault))
        return story.steps(3, 4, step_s=after_s / 2).history

    assert grow_back(frozen(10, 10)).status == "NOT APPLICABLE"
    assert "trained with 2 for 30.0 s" in grow_back(frozen(30, 0)).reason
    assert "trained with 2 for 30.0 s" in grow_back(frozen(0, 30)).reason


def test_a_dead_node_that_ray_still_shows_may_be_what_was_asked_for_until_it_is_gone() -> None:
    def lost(unseen_s: float, after_s: float) -> History:
        story = Story(nodes=4).launch().attempt(2).fault("sigkill_node", nodes=[4])
        story.steps(1, 2, step_s=unseen_s / 2).say(h.NodeLeft(node=4, node_id="node-4"))
        return story.steps(3, 4, step_s=after_s / 2).history

    assert grow_back(lost(14, 14)).status == "NOT APPLICABLE"
    assert "trained with 2 for 30.0 s although there was room for 3" in grow_back(lost(14, 30)).reason


def test_what_stays_frozen_never_grows() -> None:
    story = Story().launch().attempt(2).steps(1, 1).fault("freeze_worker", ranks=[1]).wait(30)
    assert grow_back(story.step(2, 0).history).status == "NOT APPLICABLE"


def left(
    after_s: float,
    deadline_s: float | None = 30.0,
    least: int = 3,
    also: str = "",
    hit: Sequence[int] = (3,),
    **story: Any,
) -> Story:
    """Announced, committed, and left so long after the notice. `also`: what else was done to it."""
    told = Story(num_workers=[least, 3], **story).launch().wait(100).attempt(3).steps(1, 2)
    told.fault("drain_node", ranks=[2], nodes=list(hit), deadline_s=deadline_s).wait(after_s)
    told = told.fault(also, ranks=[2]) if also else told
    return told.drive(h.StateChanged(term=1, state="STOPPING")).end("preempted", "max_preemption_failures")


def test_a_run_that_leaves_an_announced_node_only_to_wait_for_another_is_caught() -> None:
    assert grow_back(left(2.0).history).reason == (
        "attempt 1 was left 28.0 s before its draining node had to go,"
        " although fewer than 3 workers could be had without it"
    )
    assert grow_back(left(9.0).history).status == "FAIL"


@pytest.mark.parametrize(
    "story",
    [
        left(2.0, least=2),
        left(2.0, nodes=4),
        left(10.0),
        left(2.0, deadline_s=None),
        left(2.0, deadline_s=6.0),
        left(2.0, also="sigkill_worker"),
        left(2.0, hit=(2, 3)),
    ],
    ids=[
        "enough are left",
        "another is there",
        "in time",
        "no deadline",
        "too short",
        "more was done to it",
        "notices of two",
    ],
)
def test_a_node_may_be_left_early_where_that_is_no_loss(story: Story) -> None:
    assert grow_back(story.history).status != "FAIL"


def test_a_node_lost_a_little_before_may_have_been_counted_still() -> None:
    before = Story(num_workers=[3, 3], nodes=4).launch().wait(100).fault("sigkill_node", nodes=[4])
    before.attempt(3).steps(1, 2).fault("drain_node", ranks=[2], nodes=[3], deadline_s=30.0).wait(2.0)
    assert grow_back(before.end("preempted", "max_preemption_failures").history).status != "FAIL"


def resized(size: int) -> Story:
    """From 2, long after all that was before."""
    return Story().launch().wait(100).attempt(2).steps(1, 2).end("resized", None).attempt(size)


def test_an_attempt_that_was_resized_to_nothing_larger_is_caught() -> None:
    for size in (1, 2):
        assert grow_back(resized(size).history).reason == f"attempt 1 was resized from 2 to {size}"
    assert grow_back(resized(3).history).status == "PASS"


def test_a_driver_of_its_own_mind_may_start_smaller_than_the_one_before_left_it_for() -> None:
    story = Story().launch().wait(100).attempt(2).steps(1, 2).end("resized", None)
    assert grow_back(story.launch().attempt(2).history).status == "NOT APPLICABLE"


@pytest.mark.parametrize(
    ("lost", "seconds_before", "excused"),
    [
        ("fault", 0, True),
        ("stop", 0, True),
        ("left", 0, True),
        ("fault", 50, True),
        ("fault", 70, False),
        ("added", 0, False),
    ],
)
def test_a_node_lost_meanwhile_or_a_little_before_excuses_a_resize_in_vain(
    lost: str, seconds_before: float, excused: bool
) -> None:
    losses: dict[str, Callable[[Story], Story]] = {
        "fault": lambda story: story.fault("sigkill_node", nodes=[4]),
        "stop": lambda story: story.fault("freeze_driver"),
        "left": lambda story: story.say(h.NodeLeft(node=4, node_id="node-4")),
        "added": lambda story: story.fault("add_node"),
    }
    story = losses[lost](Story(nodes=4).launch().wait(100)).wait(seconds_before)
    story.attempt(2).steps(1, 2).end("resized", None).attempt(2)
    assert (grow_back(story.history).status != "FAIL") is excused


def test_a_node_lost_after_the_next_attempt_had_begun_excuses_nothing() -> None:
    story = resized(2).wait(5).fault("sigkill_node", nodes=[3])
    assert grow_back(story.history).status == "FAIL"


def rooms(story: Story) -> list[int]:
    """Of how many nodes there was room, from the last one's joining on."""
    return [size for _, size in room(story.history)][2:]


def test_there_is_room_on_the_nodes_that_are_there_and_for_no_more_than_the_run_may_have() -> None:
    assert rooms(Story(nodes=4).launch()) == [3, 3]
    assert rooms(Story().launch().say(h.NodeLeft(node=3, node_id="node-3"))) == [3, 2]


def test_a_thawed_node_gives_room_again_unless_it_has_left_meanwhile() -> None:
    thawed, left = (Story().launch().fault("freeze_node", nodes=[3]) for _ in range(2))
    assert rooms(thawed.say(h.FaultHealed(fault=0, name="freeze_node"))) == [3, 2, 3]
    left.say(h.NodeLeft(node=3, node_id="node-3")).say(h.FaultHealed(fault=0, name="freeze_node"))
    assert rooms(left) == [3, 2, 2, 2]
    worker = Story().launch().fault("freeze_node", nodes=[3]).fault("freeze_worker", ranks=[2], nodes=[3])
    assert rooms(worker.say(h.FaultHealed(fault=1, name="freeze_worker"))) == [3, 2, 2]


@pytest.mark.parametrize("fault", ["sigkill_node", "drain_node", "sigterm_node"])
def test_a_thawed_node_that_another_fault_has_taken_gives_no_room_again(fault: str) -> None:
    story = Story().launch().fault("freeze_node", nodes=[3]).fault(fault, nodes=[3])
    assert rooms(story.say(h.FaultHealed(fault=0, name="freeze_node"))) == [3, 2, 2, 2]


@pytest.mark.parametrize("place", ["processes", "cluster", "files"])
def test_whatever_is_left_is_caught(place: str) -> None:
    events = change(crash_and_finish().events, h.LeakCheck, always, **{place: ["pid 7 of rank 1", "another"]})
    assert no_leaks(History(events)).reason == "0.1 s after the run there was still pid 7 of rank 1 and 1 more"


def looked_at(story: Story, **left: list[str]) -> str:
    none: dict[str, Any] = {"processes": [], "cluster": [], "files": []}
    return no_leaks(story.say(h.LeakCheck(waited_s=0.1, **none | left)).history).status


def test_what_a_killed_driver_had_no_time_to_tidy_up_in_storage_is_no_leak_all_else_is() -> None:
    def killed() -> Story:
        return running().fault("sigkill_driver").exit(137)

    assert looked_at(killed(), files=["000004-t1-a1"]) == "PASS"
    assert looked_at(killed(), processes=["pid 7 of rank 1"]) == "FAIL"
    assert looked_at(killed(), cluster=["a pending placement group"]) == "FAIL"
    assert looked_at(killed().launch().exit(0), files=["000004-t1-a1"]) == "FAIL", "the next one had the time"
    assert looked_at(running().exit(0).launch().exit(137), files=["000004-t2-a1"]) == "PASS"


def test_what_a_killed_driver_asked_the_autoscaler_for_expires_and_all_others_take_it_back() -> None:
    asked = [f"{REQUESTED}: 2 bundle(s), the first {{'TPU-v6e-8-head': 1.0}}"]
    assert looked_at(running().fault("sigkill_driver").exit(137), cluster=asked) == "PASS"
    assert looked_at(running().fault("sigkill_driver").exit(137).launch().exit(0), cluster=asked) == "PASS"
    assert looked_at(running().exit(143), cluster=asked) == "FAIL"


def test_of_two_drivers_the_last_that_had_the_run_counts_whichever_was_launched_last() -> None:
    def fenced_by_the_older(code: int) -> Story:
        story = running().launch().say(h.TermBegan(term=3, spent={}), "driver-4001-ab").exit(1)
        return story.say(h.DriverExited(launch=0, code=code))

    assert looked_at(fenced_by_the_older(137), files=["000004-t1-a1"]) == "PASS"
    assert looked_at(fenced_by_the_older(0), files=["000004-t1-a1"]) == "FAIL"


def test_what_a_superseded_driver_uploads_when_nobody_is_there_any_more_is_no_leak() -> None:
    def outlived(name: str, *, zombie_first: bool) -> str:
        story = running().launch()
        launches = (0, 1) if zombie_first else (1, 0)
        for launch in launches:
            story.wait(5).say(h.DriverExited(launch=launch, code=1))
        return looked_at(story, files=[name])

    late = "000004-t1-a1: not committed, never removed"
    assert outlived(late, zombie_first=False) == "PASS"
    assert outlived(late, zombie_first=True) == "FAIL", "the last one that had the run was there"
    assert outlived("000004-t2-a2: not committed, never removed", zombie_first=False) == "FAIL"


def test_a_driver_that_finds_the_run_finished_has_the_time_to_tidy_up_after_a_killed_one() -> None:
    """It goes on in the term of the killed one: nothing is taken over of a run that is finished."""
    story = running().fault("sigkill_driver").exit(137)
    story.say(h.DriverStarted(launch=1, pid=4002, changed={}))
    story.say(h.TermBegan(term=1, spent={}, finished=True), "driver-4002-ab")
    story.say(h.DriverExited(launch=1, code=0))
    assert looked_at(story, files=["000004-t1-a1"]) == "FAIL"


def test_a_run_at_which_nobody_looked_is_no_pass() -> None:
    assert no_leaks(running().history).status == "NOT APPLICABLE"


def changed(kind: type[Any], **fields: Any) -> Callable[[], list[h.AnyEvent]]:
    return lambda: change(crash_and_finish().events, kind, always, **fields)


def half_finished() -> list[h.AnyEvent]:
    return running().finish().events


def finished_and_failed() -> list[h.AnyEvent]:
    return running().steps(4, 6).end("finished", None).fail().leak_check().events


def failed_without_a_word() -> list[h.AnyEvent]:
    story = running().fault("sigkill_worker", ranks=[1]).end("worker_death", "max_failures")
    return story.fail(error=None).leak_check().events


def interrupted_by_nobody() -> list[h.AnyEvent]:
    story = running().end("interrupted", None)
    return story.drive(h.RunEnded(term=1, outcome="interrupted")).exit(130).leak_check().events


def killed_by_nobody() -> list[h.AnyEvent]:
    return running().exit(137).leak_check().events


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
    (failed_without_a_word, "term 1 said failed but named no error"),
    (interrupted_by_nobody, "said interrupted, but nothing interrupted it"),
    (killed_by_nobody, "died by SIGKILL, but no fault did that"),
    (silent, "exited with 0, but fit() said nothing"),
    (not_in_the_log, "said finished, but the log says no end"),
    (somebody_still_at_work, "ranks [2] of attempt 2 never returned"),
]


@pytest.mark.parametrize(
    ("fault", "after_its_word", "driver", "code", "status"),
    [
        ("sigint_driver", True, 1, 130, "PASS"),
        ("sigterm_driver", True, 1, 143, "PASS"),
        ("sigint_driver", True, 1, 1, "FAIL"),
        ("sigint_driver", True, 2, 130, "FAIL"),
        ("sigint_driver", False, 1, 130, "FAIL"),
        ("sigkill_worker", True, 1, 130, "FAIL"),
    ],
)
def test_only_a_signal_after_its_last_word_may_end_a_finished_driver_as_interrupted(
    fault: str, after_its_word: bool, driver: int, code: int, status: str
) -> None:
    """`explore --cluster processes`, schedule 1 of seed 1: SIGINT came while the interpreter was on its way out."""

    def signal() -> None:
        story.fault(fault, pids=[4000 + driver])

    story = running().steps(4, 6)
    if not after_its_word:
        signal()
        story.wait(1.0)
    for rank in range(story.world):
        story.worker(rank, h.WorkerFinished(term=1, attempt=1, rank=rank))
    story.end("finished", None)
    metrics = {"step": 6}
    story.record("run_finished", metrics=metrics)
    story.drive(h.RunEnded(term=1, outcome="finished", metrics=metrics))
    if after_its_word:
        signal()
    finding = truthful_ending(story.exit(code).leak_check().history)
    assert finding.status == status, finding


@pytest.mark.parametrize(("tell", "reason"), UNTRUE, ids=[reason[:30] for _, reason in UNTRUE])
def test_an_untrue_ending_is_caught(tell: Callable[[], list[h.AnyEvent]], reason: str) -> None:
    finding = truthful_ending(History(tell()))
    assert finding.status == "FAIL", finding
    assert reason in finding.reason


def test_an_ending_by_the_harness_or_without_an_end_is_not_judged() -> None:
    assert truthful_ending(running().history).status == "NOT APPLICABLE"
    stopped = running().say(h.DeadlinePassed(within_s=60.0)).exit(137)
    assert truthful_ending(stopped.history).status == "NOT APPLICABLE"


def test_a_finished_run_names_the_checkpoints_that_it_has_not_committed() -> None:
    handed_over = h.UploadStarted(term=1, attempt=1, rank=0, step=6)
    story = Story().launch().attempt(3).steps(1, 6, commit=False).worker(0, handed_over).finish()
    found = truthful_ending(story.history)
    assert (found.status, found.reason) == (
        "FAIL",
        "said finished, but of 1 checkpoints of attempt 1 0 are committed and 0 named as not committed",
    )
    end = next(event for event in story.history.all(h.LogRecord) if event.record["kind"] == "run_finished")
    end.record["uncommitted"] = [{"index": 6, "detail": "the agent of rank 0 was lost"}]
    assert truthful_ending(story.history).status == "PASS"
