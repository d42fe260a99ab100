"""Which slices count: against an oracle on random clusters, and hole by hole in words."""

from __future__ import annotations

import random
from collections import Counter
from typing import get_args

import msgspec
import pytest

from shaketable.runtime.driver.slice_assignment import EXCLUDED_S, Allotment
from shaketable.runtime.tpu import slices
from shaketable.runtime.tpu.slices import Count, Flaw, Host, LeftOut, WholeSlice, count
from shaketable.runtime.tpu.topology import SliceShape, slice_shape
from shaketable.suites.tests.rigs import slice_oracle

V6E_4X4 = slice_shape("TPU-V6E", "4x4")
PRECEDENCE = [flaw for flaw in get_args(Flaw) if flaw != "excluded"]
# explained
ALL = 1_000_000


def check(shape: SliceShape, hosts: list[Host], which: str) -> int:
    """Counted as by the oracle; returns how many are whole."""
    counted = count(hosts, shape, explained=ALL)
    whole = slice_oracle.whole(hosts, shape)
    assert {each.name: each.node_ids for each in counted.whole} == whole, which
    assert {each.name for each in counted.skipped} == slice_oracle.claims(hosts, shape) - whole.keys()
    for each in counted.skipped:
        assert each.flaw == min(slice_oracle.flaws(hosts, shape, each.name), key=PRECEDENCE.index)
        assert each.detail
    assert [each.name for each in counted.whole] == sorted(whole)
    assert counted.broken == len(counted.skipped)
    return len(whole)


@pytest.mark.parametrize(
    "clusters", [3_000, pytest.param(100_000, marks=pytest.mark.on_demand)], ids=lambda number: f"{number}"
)
def test_the_slices_that_count_are_those_of_the_oracle(clusters: int) -> None:
    wholes = Counter[int]()
    for seed in range(clusters):
        shape, hosts = slice_oracle.cluster(random.Random(seed))
        wholes[check(shape, hosts, f"cluster {seed}")] += 1
    # they are of every kind
    assert min(wholes[number] for number in range(5)) > clusters / 100


# ---- hole by hole


def slice_of(name: str, shape: SliceShape = V6E_4X4) -> list[Host]:
    chips = float(shape.chips_per_host)
    return [
        Host(f"{name}{place}" * 28, name, str(place), shape.topology, shape.pod_type, chips, chips)
        for place in range(shape.hosts)
    ]


def but(hosts: list[Host], at: int, **changed: object) -> list[Host]:
    return [*hosts[:at], msgspec.structs.replace(hosts[at], **changed), *hosts[at + 1 :]]


def only_flaw(hosts: list[Host], shape: SliceShape = V6E_4X4) -> LeftOut:
    counted = count(hosts, shape)
    assert counted.whole == ()
    (skipped,) = counted.skipped
    return skipped


def test_a_whole_slice_counts_with_its_hosts_by_worker_id_in_whatever_order_ray_shows_them() -> None:
    a, b = slice_of("a"), slice_of("b")
    mixed = [b[3], a[1], a[0], b[1], b[0], a[3], b[2], a[2]]
    counted = count(mixed, V6E_4X4)
    assert [each.name for each in counted.whole] == ["a", "b"]
    assert counted.whole[0].node_ids == tuple(host.node_id for host in a)
    assert counted.skipped == ()


HOLES = [
    ({"alive": False}, "missing", "worker 2 is missing, node a2a2a2a2 is dead"),
    ({"draining": True}, "draining", "worker 2 (node a2a2a2a2) is draining"),
    ({"free": 3.0}, "busy", "worker 2 (node a2a2a2a2) has 1 of 4 chips in use by others"),
    ({"chips": 8.0, "free": 8.0}, "chips", "worker 2 (node a2a2a2a2) has 8 chips, not 4"),
    ({"worker": "1"}, "duplicate", "2 hosts are worker 1"),
    ({"worker": "4"}, "unknown", "worker 4 (node a2a2a2a2) is none of the workers 0 to 3"),
    ({"worker": ""}, "unknown", "worker (no id) (node a2a2a2a2) is none of the workers 0 to 3"),
    ({"topology": "2x8"}, "topology", "worker 2 (node a2a2a2a2) is of topology 2x8, not 4x4"),
    ({"topology": ""}, "topology", "worker 2 (node a2a2a2a2) is of topology (none), not 4x4"),
    ({"lacks": "kind=spot"}, "labels", "worker 2 (node a2a2a2a2) is not labelled kind=spot"),
    ({"pod_type": "v6e-8"}, "foreign", "worker 2 (node a2a2a2a2) is of v6e-8, not v6e-16"),
    ({"slice": "b"}, "missing", "worker 2 is missing"),
]


@pytest.mark.parametrize(("changed", "flaw", "detail"), HOLES, ids=[f"{flaw}-{d[:24]}" for _, flaw, d in HOLES])
def test_a_slice_with_one_host_that_is_not_right_does_not_count_and_it_is_said_why(
    changed: dict[str, object], flaw: str, detail: str
) -> None:
    found = [each for each in count(but(slice_of("a"), 2, **changed), V6E_4X4).skipped if each.name == "a"]
    assert found == [LeftOut("a", flaw, detail)]  # type: ignore[arg-type]  # one of Flaw
    assert str(found[0]) == f"slice a does not count: {detail}"


def test_a_slice_of_another_topology_with_the_same_pod_type_is_not_the_same_slice() -> None:
    other = slice_shape("TPU-V6E", "2x8")
    assert other.pod_type == V6E_4X4.pod_type
    assert only_flaw(slice_of("a", other)).flaw == "topology"
    assert [each.name for each in count(slice_of("a", other), other).whole] == ["a"]


def test_a_head_alone_is_no_slice() -> None:
    """What Ray 2.60 reserves by: worker 0 and the pod type (H12)."""
    counted = count([*slice_of("a")[:1], *slice_of("b")], V6E_4X4)
    assert [each.name for each in counted.whole] == ["b"]
    assert [(each.name, each.flaw) for each in counted.skipped] == [("a", "missing")]


def test_one_host_too_many_spoils_a_slice() -> None:
    extra = msgspec.structs.replace(slice_of("a")[0], node_id="x" * 56)
    assert only_flaw([*slice_of("a"), extra]).flaw == "duplicate"
    assert only_flaw([*slice_of("a"), msgspec.structs.replace(extra, worker="4")]).flaw == "unknown"
    assert only_flaw([*slice_of("a"), msgspec.structs.replace(extra, pod_type="v4-8")]).flaw == "foreign"


def test_a_host_that_took_a_dead_ones_place_makes_the_slice_whole_again() -> None:
    new = msgspec.structs.replace(slice_of("a")[1], node_id="n" * 56)
    (whole,) = count([*but(slice_of("a"), 1, alive=False), new], V6E_4X4).whole
    assert whole.node_ids[1] == new.node_id


def test_chips_that_are_held_by_this_run_are_free_to_it() -> None:
    """Whoever asks adds them to what Ray calls free: half of it free, half of it ours is all of it."""
    assert count(but(slice_of("a"), 0, free=2.0 + 2.0), V6E_4X4).whole


def test_slices_of_other_hardware_and_nodes_without_chips_are_passed_over_in_silence() -> None:
    others = [*slice_of("old", slice_shape("TPU-V4", "2x2x2")), Host("cpu", "", "", "", "", 0.0, 0.0)]
    assert count(others, V6E_4X4) == Count((), (), 0)


def test_a_slice_whose_hosts_are_all_dead_is_past() -> None:
    assert count([msgspec.structs.replace(host, alive=False) for host in slice_of("a")], V6E_4X4).skipped == ()


def test_2x4_of_two_hosts_is_not_2x4_of_one_and_the_reason_says_who_decides() -> None:
    two, one = slice_shape("v6e", "2x4", 4), slice_shape("v6e", "2x4", 8)
    skipped = count(slice_of("a", two), one).skipped
    assert {each.flaw for each in skipped} == {"unknown", "chips"}
    assert "has 4 chips, not 8; ScalingConfig(chips_per_host=...) says which" in skipped[0].detail
    assert only_flaw(slice_of("a", one), two).flaw == "missing"


def test_hosts_of_one_host_slices_are_told_apart_by_their_node_whatever_their_labels() -> None:
    shape = slice_shape("v6e", "2x2")
    same_name = [
        msgspec.structs.replace(host, node_id=f"{number}" * 56) for number in (1, 2) for host in slice_of("a", shape)
    ]
    unnamed = [msgspec.structs.replace(host, node_id="3" * 56, slice="", worker="") for host in slice_of("a", shape)]
    assert len(count([*same_name, *unnamed], shape).whole) == 3


def test_what_is_wrong_for_good_is_said_before_what_passes() -> None:
    """Of a host that is both mislabelled and busy, the label is the news."""
    worse = slice_of("a")
    for at, flaw in ((3, {"free": 0.0}), (2, {"draining": True}), (1, {"chips": 8.0}), (0, {"topology": "2x8"})):
        worse = but(worse, at, **flaw)
        assert only_flaw(worse).flaw == {3: "busy", 2: "draining", 1: "chips", 0: "topology"}[at]


def test_so_many_are_explained_and_the_rest_is_counted() -> None:
    many = [host for number in range(20) for host in but(slice_of(f"s{number:02}"), 0, free=0.0)]
    counted = count(many, V6E_4X4)
    assert (len(counted.skipped), counted.broken) == (slices.SHOWN, 20)
    reasons = Allotment().reasons(counted, 0.0)
    assert reasons[0].startswith("slice s00 does not count: worker 0 (node s000s000) has 4 of 4 chips in use")
    assert reasons[-1] == "and 15 more do not count" and len(reasons) == slices.SHOWN + 1


# ---- who gets which


def whole(*names: str) -> Count:
    return Count(tuple(WholeSlice(name, (f"{name}0", f"{name}1")) for name in names))


def test_units_get_slices_in_the_order_in_which_they_asked_and_no_slice_twice() -> None:
    allotment = Allotment()
    for unit in (5, 3):
        allotment.ask(unit)
    assert [(unit, s.name) for unit, s in allotment.give(whole("a"), 0.0)] == [(5, "a")]
    assert allotment.give(whole("a"), 1.0) == []
    assert [(unit, s.name) for unit, s in allotment.give(whole("a", "b"), 2.0)] == [(3, "b")]


def test_what_is_given_back_can_be_given_again() -> None:
    allotment = Allotment()
    allotment.ask(1)
    allotment.give(whole("a"), 0.0)
    allotment.drop(1)
    allotment.ask(2)
    assert [unit for unit, _ in allotment.give(whole("a"), 1.0)] == [2]


def test_a_unit_that_is_given_back_while_it_waits_gets_nothing() -> None:
    allotment = Allotment()
    allotment.ask(1)
    allotment.drop(1)
    assert allotment.give(whole("a"), 0.0) == []


def test_a_slice_that_could_not_be_had_is_passed_over_for_a_while_and_another_taken() -> None:
    allotment = Allotment()
    allotment.ask(1)
    allotment.give(whole("a", "b"), 0.0)
    allotment.exclude(1, 10.0)
    allotment.wait_again(1)
    assert allotment.reasons(whole("a"), 11.0) == ("slice a does not count: it could not be had a moment ago",)
    assert [s.name for _, s in allotment.give(whole("a", "b"), 11.0)] == ["b"]
    allotment.ask(2)
    assert allotment.give(whole("a", "b"), 10.0 + EXCLUDED_S - 0.1) == []
    assert [s.name for _, s in allotment.give(whole("a", "b"), 10.0 + EXCLUDED_S)] == ["a"]


def test_a_slice_that_was_repaired_is_another_one_and_not_excluded() -> None:
    allotment = Allotment()
    allotment.ask(1)
    allotment.give(whole("a"), 0.0)
    allotment.exclude(1, 0.0)
    allotment.wait_again(1)
    repaired = Count((WholeSlice("a", ("a0", "new")),))
    assert [s.node_ids for _, s in allotment.give(repaired, 1.0)] == [("a0", "new")]
