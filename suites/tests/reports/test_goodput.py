"""Where the time of a run went: each part from a history written by hand, and the sum of them for all kept and
simulated ones."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from shaketable.chaos.experiment.file import load
from shaketable.chaos.exploration import draw
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history import events as h
from shaketable.chaos.simulation import player
from shaketable.chaos.subjects.recorded import read_record
from shaketable.reports.goodput import PARTS, Unaccounted, accounted, goodput, stretches
from shaketable.suites.command.judging import judge_folder
from shaketable.suites.gate import execution
from shaketable.suites.gate.deviations import FOLDER as KEPT
from shaketable.suites.tests.rigs import recorded
from shaketable.suites.tests.rigs.calling import called
from shaketable.suites.tests.rigs.recorded import attempt, began, ended, stamped
from shaketable.suites.tests.rigs.shipped import PATHS, SIMULATED

HISTORIES = sorted(KEPT.glob("histories/*/*.jsonl.gz"))
TWO_KILLS = Path(__file__).parents[1] / "recordings" / "two-kills"
DOCS = Path(__file__).resolve().parents[3] / "docs" / "cost.md"
THREE = {0: 1, 1: 2, 2: 3}
Timed = Iterable[tuple[float, h.AnyEvent]]


def seconds(events: Sequence[h.AnyEvent]) -> dict[str, float]:
    """The parts that there are, to the millisecond."""
    measured = goodput(events)
    assert measured is not None
    return {part: round(lasted, 3) for part, lasted in measured.seconds.items() if round(lasted, 3)}


def run(*parts: Timed, exit_s: float = 10.0) -> list[h.AnyEvent]:
    """From a driver's start at second 0 to its exit."""
    around: list[tuple[float, h.AnyEvent]] = [
        (0.0, began()),
        (0.0, h.DriverStarted(launch=0, pid=1)),
        (exit_s, h.DriverExited(launch=0, code=0)),
    ]
    return stamped([*around, *(event for part in parts for event in part)])


def reported(at_s: float, step: int, rank: int = 0, number: int = 1) -> tuple[float, h.AnyEvent]:
    return at_s, h.Reported(term=1, attempt=number, rank=rank, step=step)


def without(events: Timed, *kinds: type) -> list[tuple[float, h.AnyEvent]]:
    return [(at_s, event) for at_s, event in events if not isinstance(event, kinds)]


def adds_up(events: Sequence[h.AnyEvent]) -> None:
    measured, cut = goodput(events), stretches(events)
    assert measured is not None
    assert list(measured.seconds) == list(PARTS)
    assert min(measured.seconds.values()) >= 0
    assert all(stretch.end_s == after.begin_s for stretch, after in pairwise(cut))
    starts = [event.at_s for event in events if isinstance(event, h.DriverStarted)]
    ends = [event.at_s for event in events if isinstance(event, h.DriverExited | h.RunEnded | h.WorkerFinished)]
    wall_s = max(ends) - min(starts)
    assert sum(measured.seconds.values()) == pytest.approx(wall_s, rel=0.01)
    assert sum(measured.seconds.values()) == pytest.approx(measured.wall_s, abs=1e-6)


@pytest.mark.parametrize("name", SIMULATED)
def test_the_parts_of_an_experiment_of_the_catalogue_add_up_to_its_wall_time(name: str) -> None:
    plan = load(PATHS[name], {"seed": "1"}).plan
    adds_up(player.play(plan, arm(plan)).events)


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.name.partition(".")[0])
def test_the_parts_of_a_kept_history_of_ray_train_add_up_to_its_wall_time(path: Path) -> None:
    adds_up([h.decode(line) for line in gzip.decompress(path.read_bytes()).splitlines()])


def test_the_parts_of_whatever_exploration_draws_add_up() -> None:
    for number in range(25):
        schedule = draw.draw(5, number)
        adds_up(player.play(schedule.plan, arm(schedule.plan), schedule.disturbances).events)


def test_parts_that_do_not_add_up_to_what_the_drivers_took_are_an_error_of_the_harness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert accounted(recorded.worker_crash()) == goodput(recorded.worker_crash())
    monkeypatch.setattr("shaketable.reports.goodput.stretches", lambda events: stretches(events)[:-1])
    with pytest.raises(Unaccounted, match=r"add up to 2\.210 s, but the drivers ran for 2\.300 s"):
        accounted(recorded.worker_crash())


def test_a_killed_worker_costs_lost_work_detection_and_a_restart() -> None:
    assert seconds(recorded.worker_crash()) == {
        # 1.33 to commit 11 at 1.85, then 2.04 to step 20 at 2.46
        "productive": 0.94,
        # the last commit, 2.48
        "checkpoint": 0.02,
        # step 12, and what came after it until rank 1 was killed at 1.922
        "lost_work": 0.072,
        # the attempt was given up at 1.95
        "detect": 0.028,
        # all ranks were in the training function again at 2.04
        "restart": 0.09,
        # from the driver's start at 0.4
        "startup": 0.93,
        # until its exit at 2.7
        "other": 0.22,
    }


def test_steps_of_a_smaller_world_are_degraded_by_what_is_missing() -> None:
    events = run(attempt(1, 1, {0: 1, 1: 2}, 1, 10, step_s=0.3), [ended(4, 1, "finished", None)], exit_s=4)
    told = seconds(events)
    # 2.72 s with two workers of three
    assert (told["productive"], told["degraded"]) == (1.813, 0.907)


def test_a_report_that_keeps_every_rank_waiting_is_checkpoint_time() -> None:
    steps = without(attempt(1, 1, THREE, 1, 5, step_s=1.0), h.Committed)
    waits = [reported(1.05 + step + 0.4, step + 1) for step in range(4)]
    others = [reported(1.05 + step + 0.7, step + 1, rank=1) for step in range(4)]
    at_once = [
        (e[0], msgspec.structs.replace(e[1], checkpoint=e[1].rank == 0)) if isinstance(e[1], h.Stepped) else e
        for e in steps
    ]
    events = run(at_once, waits, others, [ended(6, 1, "finished", None)])
    # rank 1 handed nothing over: what it does meanwhile is no matter
    assert seconds(events)["checkpoint"] == 1.6


def test_a_first_step_that_is_slower_than_usual_is_part_of_the_start() -> None:
    slow = [
        (at_s + 2.0 if isinstance(event, h.Stepped) else at_s, event)
        for at_s, event in without(attempt(1, 1, THREE, 1, 5), h.Committed)
    ]
    assert seconds(run(slow, [ended(4, 1, "finished", None)])) == {"startup": 3.0, "productive": 0.25, "other": 6.75}


def test_time_without_the_minimum_of_nodes_is_waiting_and_not_restart() -> None:
    joined = [(0.0, h.NodeJoined(node=n, node_id=recorded.NODES[n])) for n in (1, 2)]
    two = msgspec.structs.replace(began(), configuration={"num_workers": [2, 2], "nodes": 2})
    lost = recorded.fault(2.0, 0, "sigkill_node", nodes=[2], ranks=[1])
    events = stamped(
        [
            (0.0, two),
            *joined,
            (0.0, h.DriverStarted(launch=0, pid=1)),
            *attempt(1, 1, {0: 1, 1: 2}, 1, 5, step_s=0.2),
            *lost,
            ended(2.5, 1, "node_lost", "max_failures"),
            (6.0, h.NodeJoined(node=3, node_id=recorded.NODES[3])),
            *attempt(7.0, 2, {0: 1, 1: 3}, 6, 9),
            ended(7.25, 2, "finished", None),
            (7.25, h.DriverExited(launch=0, code=0)),
        ]
    )
    told = seconds(events)
    assert (told["waiting_for_capacity"], told["restart"], told["detect"]) == (3.5, 1.03, 0.498)


def test_without_nodes_the_controller_is_believed_that_it_waited() -> None:
    states = [(2.5, "RESTARTING"), (3.0, "SCHEDULING"), (5.0, "RESCHEDULING"), (5.0, "SCHEDULING")]
    said = [(at_s, h.StateChanged(term=1, state=state)) for at_s, state in states]
    events = run(
        attempt(1, 1, THREE, 1, 5),
        said,
        [ended(2.5, 1, "worker_error", "max_failures")],
        attempt(6.0, 2, THREE, 6, 9),
        [ended(6.3, 2, "finished", None)],
    )
    assert (seconds(events)["waiting_for_capacity"], seconds(events)["restart"]) == (2.0, 1.53)


def test_where_nobody_saw_the_failure_at_most_one_step_was_under_way() -> None:
    events = run(
        attempt(1, 1, THREE, 1, 5, step_s=0.5),
        [ended(8.0, 1, "node_lost", "max_failures")],
        attempt(8.5, 2, THREE, 6, 9),
        [ended(8.8, 2, "finished", None)],
    )
    # step 5 was at 3.05
    assert (seconds(events)["lost_work"], seconds(events)["detect"]) == (0.5, 4.45)


def test_a_fault_that_its_rank_outlived_is_not_the_failure() -> None:
    # and thawed: it steps again
    frozen = recorded.fault(1.6, 0, "freeze_worker", ranks=[1])
    events = run(
        attempt(1, 1, THREE, 1, 5, step_s=0.5),
        frozen,
        [ended(4.0, 1, "worker_error", "max_failures")],
        attempt(4.5, 2, THREE, 6, 9),
        [ended(4.8, 2, "finished", None)],
    )
    assert (seconds(events)["lost_work"], seconds(events)["detect"]) == (0.5, 0.45)


def test_a_driver_that_is_killed_takes_the_work_since_its_last_commit_along() -> None:
    steps = [pair for pair in attempt(1, 1, THREE, 1, 9, step_s=0.5) if not isinstance(pair[1], h.Committed)]
    commit = (2.6, h.Committed(term=1, attempt=1, index=4, checkpoint="checkpoint-4"))
    events = stamped(
        [
            (0.0, began()),
            (0.0, h.DriverStarted(launch=0, pid=1)),
            *steps,
            commit,
            *recorded.fault(3.0, 0, "sigkill_driver", pids=[1]),
            (3.2, h.DriverExited(launch=0, code=137)),
            (3.3, h.DriverStarted(launch=1, pid=2)),
            (4.0, h.TermBegan(term=2, spent={})),
            *attempt(4.5, 1, THREE, 5, 9, term=2),
            (5.0, h.AttemptEnded(term=2, attempt=1, cause="finished", account=None)),
            (5.0, h.DriverExited(launch=1, code=0)),
        ]
    )
    # step 4 at 2.55, killed at 3.002, training again at 4.53
    told = seconds(events)
    assert (told["lost_work"], told["detect"], told["restart"]) == (0.452, 0.198, 1.33)


def test_steps_count_only_as_far_as_every_later_attempt_has_resumed_from() -> None:
    twice = [
        *without(attempt(1, 1, THREE, 1, 5, step_s=0.5), h.Committed),
        ended(3.05, 1, "resized", None),
        *without(attempt(4, 2, THREE, 6, 9, step_s=0.5), h.Committed),
        ended(5.55, 2, "resized", None),
        *without(attempt(6, 3, THREE, 3, 9), h.Committed),
        ended(6.4, 3, "finished", None),
    ]
    events = run(twice)
    # steps 3 to 5, 1.55 to 3.05, and all of the second attempt
    assert seconds(events)["lost_work"] == 3.02
    unfinished = run([*twice[:-1], ended(6.4, 3, "worker_error", "max_failures")])
    # nothing was ever committed, so nothing is left of it
    told = seconds(unfinished)
    assert told["lost_work"] == 3.91
    assert "productive" not in told


def test_a_planned_ending_has_nothing_to_detect_and_waits_for_its_checkpoint() -> None:
    resized = [
        *without(attempt(1, 1, {0: 1}, 1, 5, step_s=0.5), h.Committed),
        (3.4, h.Committed(term=1, attempt=1, index=5, checkpoint="checkpoint-5")),
        ended(3.6, 1, "resized", None),
        *attempt(4, 2, THREE, 6, 9),
        ended(4.3, 2, "finished", None),
    ]
    told = seconds(run(resized))
    assert "detect" not in told
    assert "lost_work" not in told
    # 3.05 to 3.4, 4.2 to 4.22; 3.4 to 4.03
    assert (told["checkpoint"], told["restart"]) == (0.37, 0.63)


def test_what_an_attempt_does_after_the_next_has_begun_does_not_count() -> None:
    """Two drivers: the older one goes on for a while."""
    events = run(
        attempt(1, 1, THREE, 1, 20, step_s=0.5),
        attempt(4, 2, THREE, 4, 9),
        [ended(4.4, 2, "finished", None), ended(11.0, 1, "driver_lost", None)],
        exit_s=11.0,
    )
    # step 3 at 2.05, up to 4.0
    assert seconds(events)["lost_work"] == 1.95


def test_one_event_for_many_steps_counts_in_proportion() -> None:
    many = h.Stepped(term=1, attempt=1, rank=0, step=100, since=1, world_size=3)
    more = h.Stepped(term=1, attempt=1, rank=0, step=200, since=101, world_size=3)
    start, later = list(attempt(1, 1, {0: 1}, 1, 0)), attempt(8, 2, THREE, 151, 153)
    endings = [ended(3.1, 1, "resized", None), ended(8.2, 2, "finished", None)]
    events = run(start, [(2.03, many), (3.03, more)], later, endings)
    told = seconds(events)
    assert told["lost_work"] == 0.5
    # steps 1 to 150, and three of the second attempt
    assert round(told["productive"] + told["degraded"], 3) == 1.62


def test_a_run_that_never_started_has_no_goodput() -> None:
    assert goodput([]) is None
    assert goodput(run()) is None


def test_a_production_recording_is_measured_by_its_reports() -> None:
    told = seconds(list(read_record(TWO_KILLS).events))
    assert (told["restart"], told["startup"]) == (20.886, 11.433)
    assert round(sum(told.values()), 2) == 36.81


def test_a_result_carries_it_also_through_its_file(tmp_path: Path) -> None:
    folder = recorded.write(tmp_path / "worker-crash", recorded.worker_crash())
    [result] = judge_folder(folder).results
    assert result.goodput is not None
    assert round(result.goodput.share, 3) == 0.409
    assert execution.load(execution.dump(result)).goodput == result.goodput


def test_the_command_prints_the_parts_and_writes_their_names(tmp_path: Path) -> None:
    recorded.write(tmp_path / "r" / "worker-crash", recorded.worker_crash())
    recorded.write(tmp_path / "r" / "nothing", recorded.stamped([(0.0, began())]))
    done = called("goodput", tmp_path / "r", "--json", tmp_path / "goodput.json")
    assert done.exit_code == 0, done.output
    assert "worker-crash: goodput 40.9 % of 2.30 s, 1 step done again\n" in done.stdout
    assert "  lost work                   0.07 s     3.1 %  steps that were done again" in done.stdout
    assert "nothing: no attempt was ever started" in done.stdout
    assert DOCS.read_text().partition("latest/worker-crash\n")[2].partition("```")[0] in done.stdout
    written = json.loads((tmp_path / "goodput.json").read_text())
    parts = {part["part"]: part for part in written["experiments"][1]["parts"]}
    assert written["schema"] == 1
    assert parts["lost_work"]["ml_goodput"] == "WASTED_PROGRESS_FROM_DISRUPTION"
    assert sum(part["seconds"] for part in parts.values()) == pytest.approx(2.3)


def test_the_command_says_where_there_is_nothing_to_measure(tmp_path: Path) -> None:
    recorded.write(tmp_path / "nothing", recorded.stamped([(0.0, began())]))
    for folder, message in ((tmp_path / "nothing", "no run that started"), (tmp_path / "no", "no such directory")):
        done = called("goodput", folder)
        assert (done.exit_code, message in done.stderr) == (2, True)
