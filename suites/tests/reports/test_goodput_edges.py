"""Where the time of a run went, at the edges: each of these is red when one part is taken for another."""

from __future__ import annotations

import msgspec

from shaketable.chaos.history import events as h
from shaketable.reports.goodput import Goodput, goodput
from shaketable.suites.tests.reports.test_goodput import THREE, reported, run, seconds, without
from shaketable.suites.tests.rigs import recorded
from shaketable.suites.tests.rigs.recorded import attempt, began, ended, stamped

Timed = list[tuple[float, h.AnyEvent]]


def started_only(at_s: float, number: int) -> Timed:
    """An attempt that never does a step."""
    return [(at_s, e) for at_s, e in attempt(at_s, number, THREE, 1, 0) if isinstance(e, h.AttemptStarted)]


def test_a_run_that_waits_in_vain_for_nodes_after_its_last_attempt_waits() -> None:
    two = msgspec.structs.replace(began(), configuration={"num_workers": [2, 2], "nodes": 2})
    joined = [(0.0, h.NodeJoined(node=n, node_id=recorded.NODES[n])) for n in (1, 2)]
    events = stamped(
        [
            (0.0, two),
            *joined,
            (0.0, h.DriverStarted(launch=0, pid=1)),
            *attempt(1, 1, {0: 1, 1: 2}, 1, 5, step_s=0.2),
            *recorded.fault(2.0, 0, "sigkill_node", nodes=[2], ranks=[1]),
            ended(2.5, 1, "node_lost", "max_failures"),
            (8.0, h.RunEnded(term=1, outcome="failed", error="no capacity", metrics=None)),
            (10.0, h.DriverExited(launch=0, code=1)),
        ]
    )
    assert (seconds(events)["waiting_for_capacity"], seconds(events)["other"]) == (5.5, 2.0)


def test_an_attempt_that_never_trained_is_part_of_the_start() -> None:
    events = run(
        started_only(1, 1),
        [ended(2.0, 1, "start_failed", "max_start_failures")],
        attempt(3, 2, THREE, 1, 5),
        [ended(3.3, 2, "finished", None)],
    )
    assert seconds(events)["startup"] == 3.03 and "restart" not in seconds(events)


def test_a_last_attempt_that_never_trained_is_a_restart_until_it_is_over() -> None:
    events = run(
        attempt(1, 1, THREE, 1, 5),
        [ended(2.0, 1, "worker_error", "max_failures")],
        started_only(3, 2),
        [ended(5.0, 2, "start_failed", "max_start_failures")],
    )
    assert (seconds(events)["restart"], seconds(events)["other"]) == (3.0, 5.0)


def test_waiting_for_a_checkpoint_is_no_degraded_work_and_lasts_until_the_last_rank_has_its_report_back() -> None:
    steps = without(attempt(1, 1, {0: 1, 1: 2}, 1, 5, step_s=1.0), h.Committed)
    back = [
        reported(1.05 + step + wait_s, step + 1, rank) for step in range(4) for rank, wait_s in ((0, 0.7), (1, 0.4))
    ]
    told = seconds(run(steps, back, [ended(6, 1, "finished", None)]))
    assert told["checkpoint"] == 2.8
    # 1.22 s with two workers of three
    assert (told["productive"], told["degraded"]) == (0.813, 0.407)


def test_a_step_s_usual_time_is_told_without_its_checkpoint() -> None:
    steps = without(attempt(1, 1, THREE, 1, 5, step_s=1.0), h.Committed)
    late: Timed = [(at_s + 2.0 if isinstance(e, h.Stepped) else at_s, e) for at_s, e in steps]
    back = [reported(3.05 + step + 0.7, step + 1, rank) for step in range(4) for rank in range(3)]
    told = seconds(run(late, back, [ended(8, 1, "finished", None)]))
    # the first step was done at 3.05, and takes 0.3
    assert told["startup"] == 2.75


def test_a_planned_ending_waits_until_its_last_report_is_back_also_where_nothing_was_committed() -> None:
    steps = without(attempt(1, 1, THREE, 1, 5, step_s=0.5), h.Committed)
    back = [reported(3.4, 5, rank) for rank in range(3)]
    events = run(
        steps, back, [ended(3.6, 1, "resized", None)], attempt(4, 2, THREE, 6, 9), [ended(4.3, 2, "finished", None)]
    )
    # 3.05 to 3.4; 3.4 to 4.03
    assert (seconds(events)["checkpoint"], seconds(events)["restart"]) == (0.37, 0.63)


def test_a_commit_that_comes_after_a_failure_is_no_waiting_for_it() -> None:
    steps = without(attempt(1, 1, THREE, 1, 5, step_s=0.5), h.Committed)
    commit = (3.4, h.Committed(term=1, attempt=1, index=5, checkpoint="checkpoint-5"))
    killed = recorded.fault(3.2, 0, "sigkill_worker", ranks=[1])
    events = run(
        steps,
        killed,
        [commit, ended(3.7, 1, "worker_death", "max_failures")],
        without(attempt(4, 2, THREE, 6, 9), h.Committed),
        [ended(4.3, 2, "finished", None)],
    )
    assert "checkpoint" not in seconds(events) and seconds(events)["detect"] == 0.498


def test_our_own_controller_is_believed_that_it_waited_where_no_nodes_were_recorded() -> None:
    said = [(2.5, h.StateChanged(term=1, state="WAITING")), (5.0, h.StateChanged(term=1, state="STARTING"))]
    events = run(
        attempt(1, 1, THREE, 1, 5),
        [ended(2.5, 1, "worker_error", "max_failures")],
        said,
        attempt(5.0, 2, THREE, 6, 9),
        [ended(5.3, 2, "finished", None)],
    )
    assert seconds(events)["waiting_for_capacity"] == 2.5


def test_what_is_looked_at_when_all_is_over_is_no_time_of_the_run() -> None:
    looked = (30.0, h.LeakCheck(processes=[], cluster=[], files=[], waited_s=1.0))
    events = stamped(
        [
            (0.0, began()),
            (0.0, h.DriverStarted(launch=0, pid=1)),
            *attempt(1, 1, THREE, 1, 5),
            ended(2.0, 1, "finished", None),
            looked,
        ]
    )
    measured = goodput(events)
    assert measured is not None and round(measured.wall_s, 3) == 2.0


def test_what_missing_workers_would_have_done_is_not_productive() -> None:
    assert Goodput(10.0, {"productive": 4.0, "degraded": 2.0}).share == 0.4


def test_a_step_that_one_rank_has_not_done_is_not_done() -> None:
    steps = [
        pair
        for pair in without(attempt(1, 1, THREE, 1, 5, step_s=0.5), h.Committed)
        if not (isinstance(pair[1], h.Stepped) and pair[1].rank == 1 and pair[1].step > 3)
    ]
    told = seconds(run(steps, [ended(4.0, 1, "worker_error", "max_failures")]))
    # 1.03 to step 3 at 2.05, and half a second
    assert (told["lost_work"], told["detect"]) == (1.52, 1.45)


def test_a_fault_is_the_failure_of_the_attempt_that_it_hit_and_of_no_other() -> None:
    killed = recorded.fault(6.0, 0, "sigkill_worker", ranks=[1])
    events = run(
        attempt(1, 1, THREE, 1, 5, step_s=0.5),
        [ended(4.0, 1, "worker_error", "max_failures")],
        attempt(5, 2, THREE, 6, 7, step_s=0.5),
        killed,
        [ended(6.1, 2, "worker_death", "max_failures")],
        attempt(7, 3, THREE, 8, 9),
        [ended(7.3, 3, "finished", None)],
    )
    # 3.55 to 4.0, and 6.002 to 6.1
    assert seconds(events)["detect"] == 0.548


def test_a_fault_that_asks_a_node_to_go_stops_nothing_at_once() -> None:
    asked = recorded.fault(3.1, 0, "drain_node", nodes=[2], ranks=[1])
    events = run(
        attempt(1, 1, THREE, 1, 5, step_s=0.5),
        asked,
        [ended(4.0, 1, "worker_error", "max_failures")],
        attempt(4.5, 2, THREE, 6, 9),
        [ended(4.8, 2, "finished", None)],
    )
    assert (seconds(events)["lost_work"], seconds(events)["detect"]) == (0.5, 0.45)


def test_a_driver_s_death_is_not_what_ended_an_attempt_that_was_over_already() -> None:
    killed = recorded.fault(3.1, 0, "sigkill_driver", pids=[1])
    events = run(
        attempt(1, 1, THREE, 1, 5, step_s=0.5),
        killed,
        [ended(4.0, 1, "worker_error", "max_failures")],
        attempt(4.5, 2, THREE, 6, 9),
        [ended(4.8, 2, "finished", None)],
    )
    assert seconds(events)["lost_work"] == 0.5


def test_the_next_driver_is_the_first_that_notices_one_that_stands_still() -> None:
    events = run(
        attempt(1, 1, THREE, 1, 5, step_s=0.5),
        [(5.0, h.TermBegan(term=2, spent={}))],
        attempt(6, 2, THREE, 6, 9, term=2),
        [(6.3, h.AttemptEnded(term=2, attempt=2, cause="finished", account=None))],
    )
    assert (seconds(events)["detect"], seconds(events)["restart"]) == (1.45, 1.03)
