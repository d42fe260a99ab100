"""The budget contract, case by case, through `shake()` on the simulated cluster (docs/semantics.md, "Cases")."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shaketable import (
    add_node,
    after,
    drain_node,
    event,
    freeze_node,
    hang_worker,
    node,
    raise_in_worker,
    randomly,
    rank,
    relaunch_driver,
    shake,
    sigkill_driver,
    sigkill_node,
    sigkill_worker,
    step,
)
from shaketable.chaos.history.events import (
    AttemptEnded,
    AttemptStarted,
    FaultInjected,
    FaultObserved,
    LogRecord,
    NodeJoined,
    NodeQuarantined,
    RunEnded,
)
from shaketable.chaos.plan import FaultPlan
from shaketable.suites.gate.shake import ShakeFailed, Shaken
from shaketable.suites.mutants import MUTANTS
from shaketable.suites.mutants.patches import applied

pytestmark = pytest.mark.budget
JOB = "shaketable.workloads:hash_chain"
QUARANTINE = {"failures": 2, "within_s": 300.0, "for_s": 60.0}
SLOW = {"step_s": 0.5}
WATCH = {"hang_timeout_s": 3.0, "first_step_timeout_s": 20.0}


@dataclass(frozen=True)
class Case:
    """`causes`: of the attempts in their order; None: not looked at."""

    faults: list[FaultPlan]
    charged: dict[str, int] = field(default_factory=dict)
    outcome: str = "finished"
    causes: list[str] | None = None
    steps_lost: int | None = None
    job: dict[str, Any] = field(default_factory=dict)
    configuration: dict[str, Any] = field(default_factory=dict)


def killed(*steps: int) -> list[FaultPlan]:
    """The worker of rank 0, at each of these steps."""
    first, *others = steps
    return [
        sigkill_worker(rank(0), at=step(first)),
        *(sigkill_worker(rank(0), at=step(s, after=n)) for n, s in enumerate(others)),
    ]


def stillborn(times: int) -> list[FaultPlan]:
    """So often the node of rank 0 is lost before the worker is in the training function."""
    faults = [sigkill_node(rank(0), at=event("attempt_started"))]
    return [*faults, *(sigkill_node(rank(0), at=event("attempt_started", after=n)) for n in range(times - 1))]


def flapping(*steps: int) -> list[FaultPlan]:
    """The worker on node 2, at each of these steps."""
    first, *others = steps
    return [
        sigkill_worker(node(2), at=step(first)),
        *(sigkill_worker(node(2), at=step(s, after=n)) for n, s in enumerate(others)),
    ]


def ladder(*tiers: tuple[int, ...]) -> list[dict[str, Any]]:
    """Of each its nodes, `max_failures`, and `max_preemption_failures`; an empty market is left after 20 s."""
    keys, names = ("nodes", "max_failures", "max_preemption_failures"), ("spot", "spare", "on-demand")
    return [
        {"name": name, "capacity_timeout_s": 20.0, **dict(zip(keys, tier, strict=False))}
        for name, tier in zip(names, tiers, strict=False)
    ]


FAILURES, PREEMPTIONS, STARTS = "max_failures", "max_preemption_failures", "max_start_failures"
CASES: dict[str, Case] = {
    "exactly at the budget": Case(killed(8, 16), {FAILURES: 2}, configuration={"max_failures": 2}),
    "one beyond the budget": Case(killed(8, 16), {FAILURES: 2}, "failed", configuration={"max_failures": 1}),
    "unlimited": Case(killed(5, 10, 15, 20, 25), {FAILURES: 5}, configuration={"max_failures": -1}),
    "none": Case(killed(8), {FAILURES: 1}, "failed"),
    "a hang": Case(
        [hang_worker(rank(1), at=step(12))],
        {FAILURES: 1},
        causes=["hung", "finished"],
        configuration={"max_failures": 1, **WATCH},
    ),
    "a hang in C code": Case(
        [hang_worker(rank(1), at=step(12), where="c")],
        {FAILURES: 1},
        causes=["hung", "finished"],
        configuration={"max_failures": 1, **WATCH},
    ),
    "a hang in the data loader": Case(
        [hang_worker(rank(1), at=step(12), where="loader")],
        {FAILURES: 1},
        causes=["hung", "finished"],
        configuration={"max_failures": 1, **WATCH},
    ),
    "a hang beyond the budget": Case(
        [hang_worker(rank(1), at=step(12))], {FAILURES: 1}, "failed", configuration=dict(WATCH)
    ),
    "staggered preemptions": Case(
        [drain_node(rank(2), at=step(8), deadline_s=30), drain_node(rank(1), at=step(11, after=0), deadline_s=30)],
        {PREEMPTIONS: 1},
        causes=["preempted", "finished"],
        steps_lost=0,
        job={"step_s": 0.5},
        configuration={"notice_window_s": 6.0},
    ),
    "early reclaim": Case(
        [drain_node(rank(1), at=step(8), deadline_s=60), sigkill_node(rank(1), at=after(0))],
        {PREEMPTIONS: 1},
        causes=["preempted", "finished"],
        configuration={"notice_window_s": 6.0},
    ),
    "a bug during a preemption": Case(
        [drain_node(rank(1), at=step(8), deadline_s=60), raise_in_worker(rank(1), at=after(0))],
        {FAILURES: 1},
        causes=["worker_error", "finished"],
        configuration={"max_failures": 1, "notice_window_s": 20.0},
    ),
    "rank 0 is preempted": Case([drain_node(rank(0), at=step(8), deadline_s=30)], {PREEMPTIONS: 1}, steps_lost=0),
    "a notice shorter than the checkpoint": Case(
        [drain_node(rank(1), at=step(8), deadline_s=0.5)],
        {PREEMPTIONS: 1},
        causes=["preempted", "finished"],
        job={"step_s": 0.5, "checkpoint_every": 5},
    ),
    "a notice that never comes true": Case(
        [drain_node(rank(1), at=step(8), deadline_s=3600)],
        {PREEMPTIONS: 1},
        steps_lost=0,
        causes=["preempted", "finished"],
    ),
    "a replacement that comes in time": Case(
        [drain_node(rank(1), at=step(8), deadline_s=30), add_node(at=after(0))],
        {PREEMPTIONS: 1},
        steps_lost=0,
        causes=["preempted", "finished"],
        job=dict(SLOW),
        configuration={"nodes": 2, "num_workers": (2, 2)},
    ),
    "a replacement that is waited for": Case(
        [drain_node(rank(1), at=step(8), deadline_s=30), add_node(at=after(0))],
        {PREEMPTIONS: 1},
        steps_lost=0,
        causes=["preempted", "finished"],
        job=dict(SLOW),
        configuration={"nodes": 2, "num_workers": (1, 2), "replacement_wait_s": 20.0},
    ),
    "a replacement that does not come": Case(
        [drain_node(rank(1), at=step(8), deadline_s=12), add_node(at=event("attempt_ended", after=0))],
        {PREEMPTIONS: 1},
        steps_lost=0,
        causes=["preempted", "finished"],
        job=dict(SLOW),
        configuration={"nodes": 2, "num_workers": (2, 2)},
    ),
    "two workers die in one ending": Case(
        [sigkill_worker(randomly(2), at=step(12))], {FAILURES: 1}, configuration={"max_failures": 1}
    ),
    "a resize": Case([add_node(at=step(5))], job={"full_world": 3, "short_step_s": 0.5}, configuration={"nodes": 2}),
    "a driver crash": Case(
        [sigkill_driver(at=step(12)), relaunch_driver(at=after(0))], causes=["driver_lost", "finished"]
    ),
    "budgets survive the driver": Case(
        [
            sigkill_worker(rank(0), at=step(8)),
            sigkill_driver(at=step(16, after=0)),
            relaunch_driver(at=after(1)),
            sigkill_worker(rank(0), at=step(24, after=2)),
        ],
        {FAILURES: 2},
        "failed",
        configuration={"max_failures": 1},
    ),
    "a frozen node that comes back": Case(
        [freeze_node(rank(1), at=step(12), until=event("attempt_started", after=0))],
        {FAILURES: 1},
        configuration={"max_failures": 1},
    ),
    "fallback on a spent budget": Case(
        killed(8, 16), {FAILURES: 2}, configuration={"tiers": ladder((2, 1), (2, 0)), "num_workers": (1, 2)}
    ),
    "fallback on an empty market": Case(
        [sigkill_node(node(1), at=step(12)), sigkill_node(node(2), at=step(20, after=0))],
        {FAILURES: 2},
        configuration={"tiers": ladder((2, 5), (2, 0)), "num_workers": (1, 2)},
    ),
    "fallback on preemptions": Case(
        [drain_node(rank(0), at=step(8), deadline_s=30)],
        {PREEMPTIONS: 1},
        steps_lost=0,
        configuration={"tiers": ladder((2, 5, 0), (2, 0)), "num_workers": (1, 2)},
    ),
    "two steps down the ladder": Case(
        killed(8, 16), {FAILURES: 2}, configuration={"tiers": ladder((1, 0), (1, 0), (1, 0)), "num_workers": (1, 1)}
    ),
    "the ladder exhausted": Case(
        killed(8, 16), {FAILURES: 2}, "failed", configuration={"tiers": ladder((1, 0), (1, 0)), "num_workers": (1, 1)}
    ),
    "a driver crash on the second tier": Case(
        [
            sigkill_worker(rank(0), at=step(8)),
            sigkill_driver(at=step(16, after=0)),
            relaunch_driver(at=after(1)),
            sigkill_worker(rank(0), at=step(24, after=2)),
        ],
        {FAILURES: 2},
        "failed",
        configuration={"tiers": ladder((1, 0), (1, 0)), "num_workers": (1, 1)},
    ),
    "start failures up to their limit": Case(
        stillborn(2),
        {STARTS: 2},
        causes=["start_failed", "start_failed", "finished"],
        configuration={"nodes": 4, "num_workers": (1, 1), "max_start_failures": 2},
    ),
    "one start failure too many": Case(
        stillborn(2),
        {STARTS: 2},
        "failed",
        causes=["start_failed", "start_failed"],
        configuration={"nodes": 4, "num_workers": (1, 1), "max_start_failures": 1},
    ),
    "as many as the limit within the window": Case(
        killed(8, 32), {FAILURES: 2}, job={"step_s": 1.0}, configuration={"max_failures": 1, "budget_window_s": 15.0}
    ),
    "one beyond the limit within the window": Case(
        killed(8, 12),
        {FAILURES: 2},
        "failed",
        job={"step_s": 1.0},
        configuration={"max_failures": 1, "budget_window_s": 15.0},
    ),
    "the window goes on over a driver crash": Case(
        [
            sigkill_worker(rank(0), at=step(8)),
            sigkill_driver(at=step(10, after=0)),
            relaunch_driver(at=after(1)),
            sigkill_worker(rank(0), at=step(12, after=2)),
        ],
        {FAILURES: 2},
        "failed",
        job={"step_s": 1.0},
        configuration={"max_failures": 1, "budget_window_s": 60.0},
    ),
    "a flapping node": Case(
        flapping(8, 16),
        {FAILURES: 2},
        causes=["worker_death", "worker_death", "finished"],
        configuration={"num_workers": (2, 2), "max_failures": -1, "node_quarantine": QUARANTINE},
    ),
    "a flapping node that nothing can replace": Case(
        flapping(8, 16),
        {FAILURES: 2},
        configuration={"nodes": 2, "num_workers": (2, 2), "max_failures": -1, "node_quarantine": QUARANTINE},
    ),
    "a flapping node and a driver crash": Case(
        [*flapping(8, 16), sigkill_driver(at=step(20, after=1)), relaunch_driver(at=after(2))],
        {FAILURES: 2},
        configuration={"num_workers": (2, 2), "max_failures": -1, "node_quarantine": QUARANTINE},
    ),
    "a crash loop": Case(
        [],
        {FAILURES: 4},
        "failed",
        job={"fail_at": 12},
        configuration={"max_failures": -1, "max_failures_without_progress": 3},
    ),
}


def shaken(case: Case, tmp_path: Path, seed: int = 0, cluster: str = "simulated") -> Shaken:
    faults, configuration = case.faults or [FaultPlan("reached", None, step(2))], dict(case.configuration)
    if "tiers" in configuration:
        configuration["nodes"] = sum(tier["nodes"] for tier in configuration["tiers"])
    return shake(
        JOB,
        {"steps": 40, **case.job},
        cluster=cluster,
        faults=faults,
        outcome=case.outcome,  # type: ignore[arg-type]
        charged=case.charged,
        steps_lost=case.steps_lost,
        storage_path=tmp_path,
        seed=seed,
        **configuration,
    )


def ends(shaken: Shaken) -> list[AttemptEnded]:
    return [each for each in shaken.events if isinstance(each, AttemptEnded)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_each_case_is_charged_as_the_contract_says(name: str, seed: int, tmp_path: Path) -> None:
    case = CASES[name]
    result = shaken(case, tmp_path, seed)
    if case.causes is not None:
        assert [end.cause for end in ends(result)] == case.causes


@pytest.mark.parametrize("seed", range(10))
def test_a_hang_is_found_within_its_limit_and_a_second(seed: int, tmp_path: Path) -> None:
    result = shaken(CASES["a hang"], tmp_path, seed)
    (hung,) = (each.at_s for each in result.events if isinstance(each, FaultObserved))
    end = ends(result)[0]
    assert end.rank == 1 and "rank 1" in end.detail
    assert end.at_s - hung <= 3.0 + 1.0


def test_the_tiers_that_attempts_run_on_are_those_of_the_ladder(tmp_path: Path) -> None:
    result = shaken(CASES["two steps down the ladder"], tmp_path)
    records = [each.record for each in result.events if isinstance(each, LogRecord)]
    assert [r["tier"] for r in records if r["kind"] == "attempt_started"] == ["spot", "spare", "on-demand"]
    assert [r["tier"] for r in records if r["kind"] == "tier_changed"] == ["spare", "on-demand"]


def members(shaken: Shaken) -> list[set[int]]:
    """The numbers of the nodes of each attempt."""
    numbers = {each.node_id: each.node for each in shaken.events if isinstance(each, NodeJoined)}
    starts = (each for each in shaken.events if isinstance(each, AttemptStarted))
    return [{numbers[member.node_id] for member in start.members} for start in starts]


@pytest.mark.parametrize("name", ["a replacement that comes in time", "a replacement that is waited for"])
def test_a_replacement_in_time_makes_one_move_of_the_whole_world(name: str, tmp_path: Path) -> None:
    result = shaken(CASES[name], tmp_path)
    assert members(result) == [{1, 2}, {1, 3}]
    (came,) = (each.at_s for each in result.events if isinstance(each, NodeJoined) and each.node == 3)
    first, second = (each.at_s for each in result.events if isinstance(each, AttemptStarted))
    assert first < came < second <= came + 5.0, "it is warmed, and then everybody moves"


def test_a_node_that_nothing_replaces_is_left_in_time(tmp_path: Path) -> None:
    result = shaken(CASES["a replacement that does not come"], tmp_path)
    (notice,) = (each.at_s for each in result.events if isinstance(each, FaultInjected) and each.deadline_s == 12)
    assert notice + 12 - 8 <= ends(result)[0].at_s <= notice + 12, "it trains until then, and loses nothing"


def test_a_node_that_is_quarantined_is_used_no_more_and_named(tmp_path: Path) -> None:
    result = shaken(CASES["a flapping node"], tmp_path)
    assert members(result) == [{1, 2}, {1, 2}, {1, 3}]
    (quarantined,) = (each for each in result.events if isinstance(each, NodeQuarantined))
    starts = [
        each.record
        for each in result.events
        if isinstance(each, LogRecord) and each.record["kind"] == "attempt_started"
    ]
    assert f"node {quarantined.node_id[:8]} is quarantined for another " in starts[-1]["reason"]


def test_a_node_that_nothing_can_replace_is_waited_for_and_comes_back_in_its_time(tmp_path: Path) -> None:
    result = shaken(CASES["a flapping node that nothing can replace"], tmp_path)
    assert members(result) == [{1, 2}] * 3
    third = [each for each in result.events if isinstance(each, AttemptStarted)][2]
    assert 60.0 <= third.at_s - ends(result)[1].at_s <= 65.0


def test_the_next_driver_does_not_use_a_quarantined_node_either(tmp_path: Path) -> None:
    result = shaken(CASES["a flapping node and a driver crash"], tmp_path)
    assert members(result) == [{1, 2}, {1, 2}, {1, 3}, {1, 3}]


@pytest.mark.parametrize(
    ("mutant", "case"),
    [
        ("replacement-not-awaited", "a replacement that comes in time"),
        ("start-failure-not-charged", "one start failure too many"),
        ("budget-window-ignored", "as many as the limit within the window"),
        ("budget-window-forgotten-by-a-new-driver", "the window goes on over a driver crash"),
        ("charged-by-the-driver-s-own-clock", "as many as the limit within the window"),
        ("quarantine-ignored", "a flapping node"),
        ("quarantine-one-too-late", "a flapping node"),
        ("quarantine-never-ends", "a flapping node that nothing can replace"),
        ("quarantine-forgotten-by-a-new-driver", "a flapping node and a driver crash"),
    ],
)
def test_the_cases_see_what_can_be_wrong_over_time(mutant: str, case: str, tmp_path: Path) -> None:
    with applied(mutant), pytest.raises(ShakeFailed) as failed:
        shaken(CASES[case], tmp_path)
    assert any(name in str(failed.value) for name in MUTANTS[mutant].caught_by)


def test_the_last_word_of_an_exhausted_ladder_is_true(tmp_path: Path) -> None:
    result = shaken(CASES["the ladder exhausted"], tmp_path)
    (ended,) = (each for each in result.events if isinstance(each, RunEnded))
    assert str(ended.error).startswith("max_failures is 0 on tier 'spare' and 1 were charged; the last by an attempt")
