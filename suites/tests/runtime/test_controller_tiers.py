"""The ladder of tiers in the controller: when the run moves, what it asks for then, and where the ladder ends."""

from __future__ import annotations

from typing import Any

import pytest

from shaketable.runtime.config import FailureConfig, RunConfig, ScalingConfig, Tier
from shaketable.runtime.controller import Controller, State
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.scaling import Bounds
from shaketable.runtime.errors import ConfigurationError, LogViolation
from shaketable.runtime.log import records as rec
from shaketable.runtime.log.run_state import RunState, apply, fold
from shaketable.runtime.trainer import ElasticTrainer
from shaketable.suites.tests.rigs import log_examples as log
from shaketable.suites.tests.rigs.controller_world import opened, settings
from shaketable.suites.tests.runtime.test_controller import records


def tier(name: str, failures: int = 0, timeout_s: float | None = None, preemptions: int = -1) -> Tier:
    return Tier(name, {"kind": name}, failures, preemptions, timeout_s)


SPOT, SPARE, LAST = tier("spot", 1), tier("spare", 0, 30.0), tier("on-demand", 0)


def begun(*tiers: Tier, run: RunState | None = None, **changed: Any) -> tuple[Controller, list[ev.Command]]:
    controller = Controller(settings(**{"bounds": Bounds(1, 1), "tiers": tiers, **changed}), run or opened())
    return controller, controller.handle(ev.Begin(), 0.0)


def asked(commands: list[ev.Command]) -> list[tuple[int, str]]:
    return [(c.unit, c.selector[0][1]) for c in commands if isinstance(c, ev.RequestUnit)]


def crash(controller: Controller, at_s: float) -> list[ev.Command]:
    """An attempt on a new agent of the unit that was asked for last, and its worker's death."""
    if controller.state is State.BACKOFF:
        controller.handle(ev.TimerFired("backoff"), at_s)
    if controller.state is State.WAITING:
        unit = max(controller.capacity.units)
        controller.handle(ev.AgentReady(int(at_s), unit, f"n{unit}"), at_s)
    number = controller.run.last_attempt
    controller.handle(ev.WorkerEntered(number, 0), at_s)
    return controller.handle(ev.WorkerFailed(number, 0, "killed by SIGKILL", signal=9), at_s)


def test_the_first_tier_s_nodes_are_asked_for() -> None:
    assert asked(begun(SPOT, LAST)[1]) == [(1, "spot")]
    assert [c for c in begun()[1] if isinstance(c, ev.RequestUnit)] == [ev.RequestUnit(1)]


def test_a_spent_budget_moves_the_run_and_what_it_holds_is_given_back() -> None:
    controller, _ = begun(SPOT, LAST)
    assert not [r for r in records(crash(controller, 10.0)) if isinstance(r, rec.TierChanged)]
    commands = crash(controller, 20.0)
    (moved,) = (r for r in records(commands) if isinstance(r, rec.TierChanged))
    assert moved.tier == "on-demand"
    assert moved.reason.startswith("max_failures is 1 on tier 'spot' and 2 were charged; the last by an attempt")
    assert ev.ReleaseUnit(1) in commands
    assert asked(commands) == [(2, "on-demand")]
    assert controller.run.spent["max_failures"] == 0


def test_the_last_tier_s_spent_budget_ends_the_run_and_the_error_names_it() -> None:
    controller, _ = begun(tier("spot"), LAST)
    crash(controller, 10.0)
    crash(controller, 20.0)
    assert controller.state is State.FAILED
    assert str(controller.run.error).startswith("max_failures is 0 on tier 'on-demand' and 1 were charged")


def test_an_attempt_says_on_which_tier_it_runs() -> None:
    controller, _ = begun(SPOT, LAST)
    controller.handle(ev.AgentReady(1, 1, "n1"), 1.0)
    assert controller.run.started[-1].tier == "spot"


def test_an_empty_market_moves_the_run_whatever_was_given_back_and_asked_for_again_meanwhile() -> None:
    controller, commands = begun(SPARE, LAST, bounds=Bounds(2, 2), unit_wait_s=5.0)
    assert ev.SetTimer("capacity", 30.0) in commands
    controller.handle(ev.AgentReady(1, 1, "n1"), 1.0)
    controller.handle(ev.TimerFired("unit_wait"), 6.0)
    assert controller.state is State.BACKOFF
    moved = controller.handle(ev.TimerFired("capacity"), 30.0)
    assert records(moved)[0].tier == "on-demand"  # type: ignore[union-attr]
    assert asked(controller.handle(ev.TimerFired("backoff"), 31.0))[0][1] == "on-demand"


def test_the_time_after_which_a_few_workers_are_given_back_begins_anew_on_the_next_tier() -> None:
    controller, _ = begun(SPARE, LAST, bounds=Bounds(2, 2), unit_wait_s=300.0)
    assert ev.SetTimer("unit_wait", 301.0) in controller.handle(ev.AgentReady(1, 1, "n1"), 1.0)
    assert ev.SetTimer("unit_wait", None) in controller.handle(ev.TimerFired("capacity"), 30.0)


def test_the_next_tier_is_asked_at_once_and_has_all_of_its_own_time() -> None:
    controller, _ = begun(SPARE, tier("other", 0, 30.0), LAST)
    moved = controller.handle(ev.TimerFired("capacity"), 30.0)
    assert asked(moved) == [(2, "other")]
    assert ev.SetTimer("capacity", 60.0) in moved


def test_the_time_without_capacity_counts_from_its_beginning() -> None:
    controller, _ = begun(SPARE, LAST, bounds=Bounds(2, 2))
    later = controller.handle(ev.AgentReady(1, 1, "n1"), 10.0)
    assert not [c for c in later if isinstance(c, ev.SetTimer) and c.timer == "capacity"]


def test_capacity_in_time_disarms_the_timer() -> None:
    controller, _ = begun(SPARE, LAST)
    assert ev.SetTimer("capacity", None) in controller.handle(ev.AgentReady(1, 1, "n1"), 29.0)


def test_without_capacity_on_the_last_tier_the_run_fails_and_says_so() -> None:
    controller, _ = begun(SPOT, run=apply(opened(), rec.TierChanged(term=1, tier="spare", reason="")))
    assert controller.state is State.WAITING
    controller, _ = begun(SPARE)
    controller.handle(ev.TimerFired("capacity"), 30.0)
    assert controller.state is State.FAILED
    assert controller.run.error == (
        "fewer than 1 workers could be had on tier 'spare' for 30 s, and that is the last tier"
    )


def test_the_next_driver_goes_on_where_the_log_says_and_at_the_top_if_that_tier_is_no_more() -> None:
    run = apply(opened(), rec.TierChanged(term=1, tier="on-demand", reason=""))
    run = apply(run, rec.Opened(term=2, configuration={}))
    assert asked(begun(SPOT, LAST, run=run)[1]) == [(1, "on-demand")]
    assert asked(begun(SPOT, SPARE, run=run)[1]) == [(1, "spot")]


def test_a_driver_that_died_between_the_charge_and_the_move_leaves_the_move_to_its_successor() -> None:
    started = rec.AttemptStarted(term=1, attempt=1, world_size=1, members=[], resume=None, first_index=1)
    ended = rec.AttemptEnded(term=1, attempt=1, cause="worker_death", account="max_failures")
    run = opened()
    for record in (started, ended, rec.Opened(term=2, configuration={})):
        run = apply(run, record)
    _, commands = begun(tier("spot"), LAST, run=run)
    assert asked(commands) == [(1, "on-demand")]


def test_where_no_checkpoint_can_be_trusted_the_next_tier_is_no_new_beginning() -> None:
    lost: list[rec.AnyRecord] = [log.opened(), log.started(1), log.committed(1), log.ended(1), log.quarantined(1)]
    run = fold(enumerate([*lost, log.opened(2)], 1))
    controller, _ = begun(tier("spot"), LAST, run=run)
    assert controller.state is State.FAILED
    assert "every checkpoint of this run is corrupt" in str(controller.run.error)


def test_a_failure_beside_the_last_checkpoint_s_corruption_moves_the_run_and_ends_it() -> None:
    kept: list[rec.AnyRecord] = [log.opened(), log.started(1), log.committed(1), log.ended(1, "resized", None)]
    run = fold(enumerate([*kept, log.opened(2)], 1))
    controller, _ = begun(tier("spot"), LAST, run=run, bounds=Bounds(2, 2))
    for rank in (0, 1):
        controller.handle(ev.AgentReady(rank + 1, rank + 1, f"n{rank}"), 1.0)
    for rank in (0, 1):
        controller.handle(ev.WorkerEntered(2, rank), 1.1)
    controller.handle(ev.WorkerFailed(2, 1, "boom", "Traceback"), 1.2)
    controller.handle(ev.CheckpointCorrupt(2, 0, "000001-t1-a1", "bad"), 1.3)
    for rank in (0, 1):
        controller.handle(ev.WorkersStopped(2, rank), 1.4)
    assert controller.run.tier == "on-demand"
    assert controller.state is State.FAILED


def test_a_reopened_run_begins_at_the_top_with_fresh_budgets() -> None:
    run = apply(opened(), rec.TierChanged(term=1, tier="on-demand", reason=""))
    run = apply(run, rec.RunFailed(term=1, error="x"))
    run = apply(run, rec.Opened(term=2, configuration={}, reopened=True))
    assert run.tier == ""


def test_a_crash_loop_ends_the_run_on_whatever_tier_it_is() -> None:
    limits = {"max_failures_without_progress": 1}
    controller, _ = begun(tier("spot"), tier("spare"), LAST, limits=limits)
    crash(controller, 10.0)
    crash(controller, 20.0)
    assert controller.state is State.FAILED
    assert "max_failures_without_progress is 1 and 2 were charged" in str(controller.run.error)


def test_a_move_is_refused_within_an_attempt_and_to_the_tier_that_the_run_is_on() -> None:
    started = rec.AttemptStarted(term=1, attempt=1, world_size=1, members=[], resume=None, first_index=1)
    move = rec.TierChanged(term=1, tier="spare", reason="")
    with pytest.raises(LogViolation, match="still open"):
        apply(apply(opened(), started), move)
    with pytest.raises(LogViolation, match="is on tier 'spare' already"):
        apply(apply(opened(), move), move)


def test_wrong_tiers_are_named() -> None:
    with pytest.raises(ConfigurationError, match="not all different"):
        FailureConfig(tiers=[Tier("spot"), Tier("spot")])
    with pytest.raises(ConfigurationError, match="set these on each Tier"):
        FailureConfig(max_failures=3, tiers=[Tier("spot")])
    with pytest.raises(ConfigurationError, match="capacity_timeout_s is -1"):
        Tier("spot", capacity_timeout_s=-1)
    with pytest.raises(ConfigurationError, match="empty"):
        Tier("")


def test_there_are_tiers_of_whole_slices() -> None:
    slices = ScalingConfig(num_workers=4, use_tpu=True, topology="4x4", accelerator_type="TPU-V6E")
    run = RunConfig(name="r", storage_path="/nowhere", failure_config=FailureConfig(tiers=[Tier("spot")]))
    ElasticTrainer(print, scaling_config=slices, run_config=run)
    controller, commands = begun(SPOT, LAST, bounds=Bounds(4, 4), agents_per_unit=4, on_slices=True)
    for failure in (1, 2):
        for place in range(4) if controller.attempt is None else ():
            controller.handle(ev.AgentReady(place + 1, 1, f"n{place}", place), 1.0)
        for rank in range(4):
            controller.handle(ev.WorkerEntered(failure, rank), 2.0)
        commands = controller.handle(ev.WorkerFailed(failure, 0, "killed by SIGKILL", signal=9), 3.0)
        for rank in (1, 2, 3):
            commands = controller.handle(ev.WorkersStopped(failure, rank), 3.0)
        if controller.state is State.BACKOFF:
            controller.handle(ev.TimerFired("backoff"), 4.0)
    assert ev.ReleaseUnit(1) in commands
    assert asked(commands) == [(2, "on-demand")]
