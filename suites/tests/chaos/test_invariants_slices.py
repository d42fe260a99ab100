"""slice-atomicity is judged from what the workers found, and what the controller says; each alone is enough."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history import events as h
from shaketable.chaos.history.view import History
from shaketable.chaos.invariants.slice_atomicity import slice_atomicity
from shaketable.chaos.plan import Configuration, Expect, Plan
from shaketable.chaos.simulation import player
from shaketable.suites.tests.rigs import recorded


@functools.cache
def healthy() -> tuple[h.AnyEvent, ...]:
    """Two slices of two hosts, s00 and s01, whose worker ids run against their node numbers."""
    configuration = Configuration(
        cluster="simulated",
        job_config={"steps": 5},
        nodes=4,
        num_workers=(4, 4),
        accelerator_type="TPU-V6E",
        topology="2x4",
    )
    plan = Plan("slices", configuration, (), Expect())
    return tuple(player.play(plan, arm(plan)).events)


def judged(change: Callable[[h.AnyEvent], h.AnyEvent] = lambda event: event) -> tuple[str, str]:
    finding = slice_atomicity(History([change(event) for event in healthy()]))
    return finding.status, finding.reason


def of_rank(rank: int, **said: Any) -> Callable[[h.AnyEvent], h.AnyEvent]:
    """The worker of `rank` finds something else."""

    def change(event: h.AnyEvent) -> h.AnyEvent:
        if isinstance(event, h.WorkerStarted) and event.rank == rank:
            return msgspec.structs.replace(event, **said)
        return event

    return change


def members(change: Callable[[list[dict[str, Any]]], None]) -> Callable[[h.AnyEvent], h.AnyEvent]:
    """The log has other members."""

    def changed(event: h.AnyEvent) -> h.AnyEvent:
        if not isinstance(event, h.LogRecord) or event.record.get("kind") != "attempt_started":
            return event
        listed = [dict(member) for member in event.record["members"]]
        change(listed)
        return msgspec.structs.replace(event, record={**event.record, "members": listed})

    return changed


def swap(a: int, b: int) -> Callable[[list[dict[str, Any]]], None]:
    def swapped(listed: list[dict[str, Any]]) -> None:
        listed[a]["node_id"], listed[b]["node_id"] = listed[b]["node_id"], listed[a]["node_id"]

    return swapped


def same(a: int, b: int) -> Callable[[list[dict[str, Any]]], None]:
    return lambda listed: listed[a].update(node_id=listed[b]["node_id"])


def test_whole_slices_in_order_are_what_is_wanted() -> None:
    assert judged() == ("PASS", "1 attempt on whole slices of 2 hosts")


def test_it_does_not_apply_where_there_are_no_slices() -> None:
    assert slice_atomicity(History(recorded.node_lost_and_back())).status == "NOT APPLICABLE"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (of_rank(1, slice="s01"), "has ranks 0 to 1 on slices s00, s01"),
        # which says more than that neither is in its place
        (of_rank(1, slice="s01", host="0"), "has ranks 0 to 1 on slices s00, s01"),
        (of_rank(0, host="1"), "has rank 0 on worker 1 of slice s00, not on 0"),
        (of_rank(2, topology="1x8"), "has rank 2 on a host of s01, topology '1x8'"),
        (of_rank(3, slice=""), "has rank 3 on a host of no slice, topology '2x4'"),
        (of_rank(3, pod_type="v5litepod-8"), "has rank 3 on a host of slice s01, which is v5litepod-8"),
    ],
)
def test_what_a_worker_found_is_enough(change: Callable[[h.AnyEvent], h.AnyEvent], reason: str) -> None:
    assert judged(change) == ("FAIL", f"attempt 1 (log record 2) {reason}")


def test_two_slices_of_one_name_are_one_slice_used_twice() -> None:
    def change(event: h.AnyEvent) -> h.AnyEvent:
        return msgspec.structs.replace(event, slice="s00") if isinstance(event, h.WorkerStarted) else event

    assert judged(change) == ("FAIL", "attempt 1 (log record 2) has slice s00 twice")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (members(swap(1, 2)), "has ranks 0 to 1 on slices s00, s01"),
        (members(same(1, 0)), "has node 00020002 twice"),
        (
            members(lambda listed: listed[3].update(node_id="stranger")),
            "has rank 3 on node stranger, which is in no usable slice",
        ),
    ],
)
def test_what_the_controller_says_is_enough(change: Callable[[h.AnyEvent], h.AnyEvent], reason: str) -> None:
    assert judged(change) == ("FAIL", f"attempt 1 (log record 2) {reason}")


def test_a_part_of_a_slice_is_no_slice_whatever_the_workers_say() -> None:
    def change(event: h.AnyEvent) -> h.AnyEvent:
        if not isinstance(event, h.LogRecord) or event.record.get("kind") != "attempt_started":
            return event
        record = {**event.record, "world_size": 3, "members": event.record["members"][:3]}
        return msgspec.structs.replace(event, record=record)

    assert judged(change)[1] == "attempt 1 (log record 2) has 3 workers, which is no whole number of slices of 2"


# ---- MEGASCALE_*


def test_the_slices_of_an_attempt_are_told_of_each_other_and_of_nothing_else() -> None:
    told = {e.rank: e.megascale for e in healthy() if isinstance(e, h.WorkerStarted) and e.megascale}
    assert [(of["MEGASCALE_NUM_SLICES"], of["MEGASCALE_SLICE_ID"]) for _, of in sorted(told.items())] == [
        ("2", "0"),
        ("2", "0"),
        ("2", "1"),
        ("2", "1"),
    ]
    assert len({of["MEGASCALE_COORDINATOR_ADDRESS"] for of in told.values()}) == 1


def megascale(**changed: str | None) -> Callable[[h.AnyEvent], h.AnyEvent]:
    """Rank 3 has other ones; None: lacks it."""

    def change(event: h.AnyEvent) -> h.AnyEvent:
        if not isinstance(event, h.WorkerStarted) or event.rank != 3:
            return event
        said = {**(event.megascale or {}), **{f"MEGASCALE_{name}": value for name, value in changed.items()}}
        kept = {name: value for name, value in said.items() if value is not None}
        return msgspec.structs.replace(event, megascale=kept)

    return change


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"NUM_SLICES": "3"}, "has rank 3 of 2 slices with MEGASCALE_NUM_SLICES=3"),
        ({"SLICE_ID": "0"}, "has rank 3 of 2 slices with MEGASCALE_SLICE_ID=0"),
        ({"TRANSPORT_TYPE": "grpc"}, "has rank 3 of 2 slices with MEGASCALE_TRANSPORT_TYPE=grpc"),
        ({"SLICE_ID": None}, "has rank 3 of 2 slices without MEGASCALE_SLICE_ID"),
        ({"COORDINATOR_ADDRESS": "z-gone"}, "has workers with different MEGASCALE_COORDINATOR_ADDRESS: "),
        ({"PORT": "z-gone"}, "has workers with different MEGASCALE_PORT: "),
    ],
)
def test_what_speaks_of_other_slices_is_found(changed: dict[str, str | None], reason: str) -> None:
    status, said = judged(megascale(**changed))
    assert status == "FAIL" and reason in said


def test_a_worker_without_jax_is_not_asked_what_else_its_host_has() -> None:
    assert judged(of_rank(3, megascale=None))[0] == "PASS"


def test_one_slice_is_told_of_no_others() -> None:
    configuration = Configuration(
        cluster="simulated",
        job_config={"steps": 5},
        nodes=2,
        num_workers=(2, 2),
        accelerator_type="TPU-V6E",
        topology="2x4",
    )
    plan = Plan("a slice", configuration, (), Expect())
    events = list(player.play(plan, arm(plan)).events)
    assert slice_atomicity(History(events)).status == "PASS"
    stale = of_rank(1, megascale={"MEGASCALE_NUM_SLICES": "1"})
    assert (
        "has rank 1 of 1 slice with MEGASCALE_NUM_SLICES=1" in slice_atomicity(History(list(map(stale, events)))).reason
    )
