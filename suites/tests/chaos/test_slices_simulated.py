"""Slices in virtual time: a run takes whole ones, passes over those that are not right, and every hole is noticed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from shaketable import (
    ShakeInvalid,
    Shaken,
    add_node,
    after,
    drain_node,
    event,
    node,
    rank,
    relaunch_driver,
    shake,
    sigkill_driver,
    sigkill_node,
    sigkill_worker,
    sigterm_node,
    state,
    step,
    tpu_slice,
)
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.exploration.draw import SLICES_EVERY, draw, explore_one
from shaketable.chaos.exploration.shrink import shrink_violation
from shaketable.chaos.history.events import (
    AnyEvent,
    AttemptStarted,
    FaultInjected,
    LogRecord,
    NodeJoined,
    RunEnded,
    WorkerStarted,
)
from shaketable.chaos.plan import Configuration, FaultPlan
from shaketable.chaos.simulation.subject.reservations import SliceReservations
from shaketable.chaos.simulation.subject.run import SimulatedRun
from shaketable.chaos.simulation.subject.world import Chance
from shaketable.suites.mutants import MUTANTS
from shaketable.suites.mutants.hunting import hunt, sight
from shaketable.suites.mutants.proof import fails_with, found, passes
from shaketable.suites.tests.rigs.slices_seen import sizes, starts, used, waited_s

ON_SLICES = [name for name, mutant in MUTANTS.items() if mutant.on_slices]
# schedules
WITHIN = 60
# for what takes several things that come together
RARE = 400


PLAIN = {
    "cluster": "simulated",
    "job_config": {"steps": 200, "checkpoint_every": 10},
    "num_workers": (4, 12),
    "accelerator_type": "TPU-V6E",
    "topology": "4x4",
}


# Ray shows a killed node as dead after 10 to 16 s: only then is the rest of its slice given back, to count again.
LONG = {"steps": 400, "checkpoint_every": 10, "step_s": 0.5}


def on(*slices: str, faults: Sequence[FaultPlan] = (), charged: Mapping[str, int] | None = None, **more: Any) -> Shaken:
    """The hash chain on slices of four hosts, one at least and three at most. Every invariant has to hold."""
    values: dict[str, Any] = {**PLAIN, "slices": slices, "max_failures": 9, **more}
    return shake("shaketable.workloads:hash_chain", faults=faults, charged=charged, **values)


# ---- the cases: one line of issue each


def test_a_host_of_a_slice_is_killed() -> None:
    shaken = on("whole", "whole", faults=[sigkill_node(rank(5), at=step(50))], charged={"max_failures": 1})
    assert sizes(shaken.events) == [8, 4] and used(shaken.events) == [["s00", "s01"], ["s00"]]


def test_the_host_of_the_coordinator_is_killed() -> None:
    shaken = on("whole", "whole", faults=[sigkill_node(rank(0), at=step(50))], charged={"max_failures": 1})
    assert used(shaken.events) == [["s00", "s01"], ["s01"]]


def test_a_whole_slice_is_killed_and_costs_one_failure() -> None:
    kill = sigkill_node(tpu_slice(0), at=step(50))
    shaken = on("whole", "whole", faults=[kill], charged={"max_failures": 1})
    assert sizes(shaken.events) == [8, 4] and used(shaken.events)[-1] == ["s01"]


def test_a_slice_is_drained() -> None:
    drain = drain_node(tpu_slice(0), at=step(50))
    shaken = on("whole", "whole", faults=[drain], charged={"max_preemption_failures": 1}, max_failures=0)
    assert sizes(shaken.events) == [8, 4] and used(shaken.events)[-1] == ["s01"]


def test_a_host_is_hit_by_the_number_of_its_slice_and_its_worker_id() -> None:
    """Node numbers run against the worker ids there."""
    shaken = on("whole", "whole", faults=[sigkill_node(tpu_slice(1, host=3), at=step(50))], charged={"max_failures": 1})
    (hit,) = [event for event in shaken.events if isinstance(event, FaultInjected)]
    assert hit.nodes == [5] and used(shaken.events) == [["s00", "s01"], ["s00"]]


def test_a_slice_that_there_is_not_makes_the_experiment_invalid_with_those_that_there_are() -> None:
    with pytest.raises(ShakeInvalid, match=r"\{slice: 2\} is not alive; there are \{slice: 0, host: 0\}"):
        on("whole", "whole", faults=[sigkill_node(tpu_slice(2), at=step(50))])


def test_a_notice_for_one_host_is_a_notice_for_its_slice() -> None:
    shaken = on(
        "whole",
        "whole",
        faults=[sigterm_node(rank(6), at=step(50))],
        charged={"max_preemption_failures": 1},
        max_failures=0,
        steps_lost=0,
    )
    assert used(shaken.events) == [["s00", "s01"], ["s00"]]


def test_a_slice_is_added_whole() -> None:
    shaken = on("whole", faults=[add_node(at=step(30))], num_workers=(4, 8))
    assert sizes(shaken.events) == [4, 8]


def test_a_slice_is_added_host_by_host_and_nothing_grows_before_it_is_whole() -> None:
    kills = [sigkill_node(node(number), at=step(10)) for number in (6, 7, 8)]
    adds = [add_node(at=step(at), slice=1) for at in (60, 120, 180)]
    shaken = on("whole", "whole", faults=[*kills, *adds], charged={"max_failures": 1}, job_config=LONG)
    assert sizes(shaken.events) == [8, 4, 8]
    joined = [event.at_s for event in shaken.events if isinstance(event, NodeJoined)]
    assert starts(shaken.events)[-1].at_s > max(joined)


def test_six_slices_none_of_which_will_do_start_nothing_until_one_is_made_whole() -> None:
    shaken = on(
        "half", "half", "half", "half", "busy", "busy", faults=[add_node(at=state("WAITING"), slice=2)], num_workers=4
    )
    assert used(shaken.events) == [["s02"]]
    assert starts(shaken.events)[0].at_s > max(e.at_s for e in shaken.events if isinstance(e, NodeJoined))


@pytest.mark.parametrize("wrong", ["half", "topology", "foreign", "duplicate", "busy"])
def test_what_is_wrong_is_passed_over_beside_an_intact_slice_and_the_record_says_why(wrong: str) -> None:
    shaken = on(wrong, "whole", num_workers=4)
    assert used(shaken.events) == [["s01"]] and waited_s(shaken.events) < 10
    larger = on(wrong, "whole", num_workers=(4, 8))
    reasons = " ".join(str(e.record.get("reason")) for e in larger.events if isinstance(e, LogRecord))
    # Of other generations there are any number in a cluster: nobody wants to hear of them.
    assert ("slice s00 does not count" in reasons) == (wrong != "foreign")


def test_a_slice_whose_head_is_alive_is_not_taken_for_an_intact_one() -> None:
    """Worker 0 of s00 is there, and its last host is dead: H12 of Ray Train's findings."""
    shaken = on("half", "whole", num_workers=4)
    assert used(shaken.events) == [["s01"]]


def test_a_slice_on_which_agents_do_not_start_is_left_for_another() -> None:
    shaken = on("sick", "whole", num_workers=4)
    assert used(shaken.events) == [["s01"]]


def test_below_max_it_starts_with_min() -> None:
    assert sizes(on("whole", "half", num_workers=(4, 12)).events) == [4]


def test_below_min_it_waits_and_goes_on_where_it_was() -> None:
    faults = [sigkill_node(rank(1), at=step(50)), add_node(at=state("WAITING", nth=2))]
    shaken = on("whole", faults=faults, num_workers=4, charged={"max_failures": 1})
    assert sizes(shaken.events) == [4, 4] and used(shaken.events) == [["s00"], ["s01"]]
    assert starts(shaken.events)[1].resume is not None


def test_a_slice_that_comes_and_goes() -> None:
    faults = [
        sigkill_node(rank(4), at=step(20)),
        add_node(at=after(0), slice=1),
        sigkill_node(rank(5), at=step(140)),
        add_node(at=after(2), slice=1),
        sigkill_node(rank(6), at=step(260)),
        add_node(at=after(4), slice=1),
    ]
    shaken = on("whole", "whole", faults=faults, job_config=LONG, charged={"max_failures": 3})
    assert sizes(shaken.events) == [8, 4, 8, 4, 8, 4, 8]


def test_three_slices_two_and_three_again_keep_their_order() -> None:
    """Slice ids follow the slices that stay: MEGASCALE_SLICE_ID is a slice's place among the ranks."""
    faults = [sigkill_node(rank(5), at=step(40)), add_node(at=after(0), slice=1)]
    shaken = on("whole", "whole", "whole", faults=faults, charged={"max_failures": 1}, job_config=LONG)
    assert sizes(shaken.events) == [12, 8, 12]
    assert used(shaken.events) == [["s00", "s01", "s02"], ["s00", "s02"], ["s00", "s02", "s01"]]


def test_a_driver_that_comes_back_to_fewer_slices_goes_on_with_those() -> None:
    faults = [sigkill_driver(at=step(50)), sigkill_node(node(2), at=after(0)), relaunch_driver(at=after(1))]
    shaken = on("whole", "whole", faults=faults)
    assert sizes(shaken.events) == [8, 4] and used(shaken.events)[-1] == ["s01"]


def test_ranks_are_by_worker_id() -> None:
    workers = [event for event in on("whole").events if isinstance(event, WorkerStarted)]
    assert [worker.host for worker in sorted(workers, key=lambda w: w.rank)] == ["0", "1", "2", "3"]


# ---- two runs


def run_of(name: str, slices: int, heard: list[tuple[str, AnyEvent]], beside: SimulatedRun | None) -> SimulatedRun:
    """One that needs this many slices of the two that there are."""
    configuration = Configuration(
        cluster="simulated",
        job_config={"steps": 20},
        num_workers=4 * slices,
        accelerator_type="TPU-V6E",
        topology="4x4",
        slices=("half", "half"),
    )
    return SimulatedRun(
        configuration,
        random.Random(name),
        lambda event: heard.append((name, event)),
        lambda step, world_size: None,
        lambda launch, code: None,
        settings={"unit_wait_s": 3.0},
        chance=Chance(),
        failed_by_itself=lambda fault, worker: None,
        beside=beside,
    )


@pytest.mark.parametrize(("first", "second"), [(2, 2), (1, 2), (2, 1), (1, 1)])
def test_two_runs_that_compete_for_slices_both_come_to_their_end(first: int, second: int) -> None:
    """Both wait for the same two slices, which are made whole one after the other: also where each has got one of the
    two that it needs, neither keeps it for ever (promise wait-1)."""
    for seed in range(10):
        heard: list[tuple[str, AnyEvent]] = []
        one = run_of(f"one {seed}", first, heard, None)
        two = run_of(f"two {seed}", second, heard, one)
        one.start_driver({})
        two.start_driver({})
        for number in (0, 1):
            one.timeline.later(10.0 + 2 * number, one.cluster.add_node, lambda node: None, number)
        one.timeline.run(300.0, lambda: not one.drivers and not two.drivers)  # noqa: B023
        assert {name: e.outcome for name, e in heard if isinstance(e, RunEnded)} == {
            f"one {seed}": "finished",
            f"two {seed}": "finished",
        }
        assert one.cluster.leftovers() == []


# ---- what no schedule may show, and what every hole must


def test_schedules_on_slices_show_no_violation() -> None:
    for number in range(SLICES_EVERY - 1, WITHIN * SLICES_EVERY, SLICES_EVERY):
        outcome = explore_one(draw(1, number))
        assert outcome.played is not None
        assert outcome.violation is None, (number, outcome.violation)


@pytest.mark.parametrize("name", ON_SLICES)
def test_a_hole_in_what_counts_is_noticed_by_an_invariant_that_must_see_it(name: str) -> None:
    caught = hunt(name, seed=1, most=RARE)
    assert caught.caught, f"{name} was missed"
    # in those before nothing failed
    seen = sight(name, 1, caught.schedules, first=caught.schedules)
    assert set(seen.by) & set(MUTANTS[name].caught_by)


def test_what_is_found_on_slices_shrinks_to_an_experiment_on_slices() -> None:
    _, schedule, violation = next(found("rank-by-name-not-id", 1))
    fails = fails_with("rank-by-name-not-id", violation.invariant)
    small = shrink_violation(schedule, violation, fails, sound=passes)
    configuration = small.schedule.plan.configuration
    assert (small.firm, small.faults, configuration.slices) == (True, 0, ("whole",))
    assert configuration.nodes == configuration.hosts_per_slice == configuration.num_workers[1]  # type: ignore[index]


def on_tiers(spot: int, spare: int, *slices: str, **more: Any) -> Shaken:
    """The first so many hosts are of the first tier, which allows no failure, the others of the second."""
    tiers = [{"name": "spot", "nodes": spot, "capacity_timeout_s": 20.0}, {"name": "spare", "nodes": spare}]
    return on(*slices, **{"max_failures": 0, "tiers": tiers, "num_workers": (4, 4), **more})


def test_a_spent_budget_moves_a_run_to_the_slices_of_the_next_tier_and_no_others() -> None:
    events = on_tiers(
        8, 4, "whole", "whole", "whole", faults=[sigkill_worker(rank(1), at=step(50))], charged={"max_failures": 1}
    ).events
    assert used(events) == [["s00"], ["s02"]]
    (moved,) = (e.record for e in events if isinstance(e, LogRecord) and e.record["kind"] == "tier_changed")
    assert moved["tier"] == "spare"


def test_a_slice_that_is_missing_is_an_empty_market() -> None:
    assert used(on_tiers(4, 4, "half", "whole").events) == [["s01"]]


def test_a_slice_counts_for_a_tier_if_all_its_hosts_have_its_labels_and_it_is_said_which_has_not() -> None:
    added = add_node(slice=0, tier="spare", at=state("WAITING"))
    events = on_tiers(4, 4, "half", "whole", faults=[added]).events
    assert used(events) == [["s01"]]
    reason = next(e.record for e in events if isinstance(e, LogRecord) and e.record["kind"] == "attempt_started")[
        "reason"
    ]
    assert reason.endswith("; slice s00 does not count: worker 2 (node 00020002) is not labelled tier=spare")


def test_a_host_in_the_place_of_a_lost_one_is_of_its_slice_s_tier() -> None:
    assert used(on_tiers(4, 4, "half", "whole", faults=[add_node(slice=0, at=state("WAITING"))]).events) == [["s00"]]


def test_a_driver_that_is_stopped_reserves_no_slice_until_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it gives reservations up that it has not heard of, and takes a slice twice when it goes on."""
    ask = SliceReservations.ask

    def ask_and_stop(reservations: SliceReservations, unit: int, tier: str, avoid: tuple[str, ...]) -> None:
        ask(reservations, unit, tier, avoid)
        driver.freeze()

    monkeypatch.setattr(SliceReservations, "ask", ask_and_stop)
    configuration = Configuration(
        cluster="simulated",
        nodes=4,
        num_workers=(2, 4),
        accelerator_type="TPU-V6E",
        topology="2x4",
        slices=("whole", "whole"),
    )
    run = SimulatedRun(
        configuration,
        random.Random(0),
        lambda event: None,
        lambda step, world_size: None,
        lambda launch, code: None,
        settings={"driver_lease_s": 60.0},
        chance=Chance(),
        failed_by_itself=lambda fault, worker: None,
    )
    driver = run.start_driver({})
    run.timeline.run(30.0, lambda: False)
    assert driver.frozen
    assert not [node for node in run.cluster.all_nodes() if node.lease is not None]
    monkeypatch.undo()
    driver.thaw()
    run.timeline.run(35.0, lambda: False)
    assert len({id(node.lease) for node in run.cluster.all_nodes() if node.lease is not None}) == 2


# ---- a host that is there twice


def test_of_two_hosts_with_one_worker_id_a_target_is_the_older_and_the_slice_counts_once_that_is_gone() -> None:
    added = [add_node(slice=0, host=0, at=event("term_began")), add_node(slice=0, at=after(0))]
    events = on("half", faults=[*added, sigkill_node(tpu_slice(0, host=0), at=after(1))], num_workers=4).events
    (hit,) = (e for e in events if isinstance(e, FaultInjected) and e.name == "sigkill_node")
    (started,) = (e for e in events if isinstance(e, AttemptStarted))
    assert hit.nodes == [4] and started.at_s > hit.at_s


def test_a_host_without_its_slice_is_refused() -> None:
    with pytest.raises(ExperimentError, match=r"host 1: say of which slice, for example \{slice: 0, host: 1\}"):
        on("half", faults=[add_node(host=1, at=step(1))])
