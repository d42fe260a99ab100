"""Demand for missing slices as Ray's own AutoscalingCoordinator passes it on; its class runs here without an actor."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator import _AutoscalingCoordinatorActor

from shaketable.runtime.agent.loop import AgentSpec
from shaketable.runtime.driver.ray_placement import RayPlacement
from shaketable.runtime.driver.ray_reservations import SliceReservations
from shaketable.runtime.driver.slice_assignment import Allotment, SliceAssignment
from shaketable.runtime.driver.slice_demand import EXPIRES_AFTER_S, RENEWED_EVERY_S, Bundles, SliceDemand, bundle_of
from shaketable.runtime.tpu.slices import Count, WholeSlice
from shaketable.runtime.tpu.topology import slice_shape

TWO_HOSTS = slice_shape("TPU-V6E", "2x4", chips_per_host=4)
HEAD = {"TPU-v6e-8-head": 1.0}
WITHIN_S = 20.0


@dataclass
class InProcess:
    """`passed_on`: what an autoscaler was told, word by word."""

    passed_on: list[Bundles] = field(default_factory=list)

    def __post_init__(self) -> None:
        def told(bundles: Bundles, label_selectors: object = None) -> None:
            self.passed_on.append(bundles)

        self.ray: Any = _AutoscalingCoordinatorActor(send_resources_request=told, get_cluster_nodes=list)

    def request(self, bundles: Bundles, expire_after_s: float) -> None:
        self.ray.request_resources("run", bundles, expire_after_s)

    def cancel(self) -> None:
        self.ray.cancel_request("run")

    @property
    def expires_s(self) -> float:
        requests = self.ray._ongoing_reqs
        return float(requests["run"].expiration_time) if requests else 0.0


def demand(coordinator: Any, after_s: float = 0.0, renew_s: float = 60.0) -> SliceDemand:
    return SliceDemand(coordinator, HEAD, pytest.fail, after_s, renew_s)


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def test_all_slices_that_are_wanted_are_asked_for_while_one_is_missing_and_none_afterwards() -> None:
    coordinator = InProcess()
    asking = demand(coordinator)
    asking.want(3)
    until(lambda: coordinator.passed_on == [[HEAD] * 3])
    asking.want(2)
    until(lambda: coordinator.passed_on[1:] == [[HEAD] * 2])
    asking.want(0)
    until(lambda: coordinator.passed_on[2:] == [[]])
    asking.close(WITHIN_S)


def test_it_is_renewed_before_it_expires() -> None:
    assert 2 * RENEWED_EVERY_S < EXPIRES_AFTER_S, "one lost word is no end"
    coordinator = InProcess()
    asking = demand(coordinator, renew_s=0.05)
    asking.want(1)
    until(lambda: coordinator.expires_s)
    first_s = coordinator.expires_s
    until(lambda: coordinator.expires_s > first_s + 0.1)
    assert coordinator.passed_on == [[HEAD]], "and an autoscaler hears nothing new"
    asking.close(WITHIN_S)


def test_a_slice_that_is_soon_back_is_not_asked_for() -> None:
    coordinator = InProcess()
    asking = demand(coordinator, after_s=60.0)
    for slices in (2, 0, 2):
        asking.want(slices)
    asking.close(WITHIN_S)
    assert coordinator.passed_on == []


def test_what_is_wanted_meanwhile_does_not_put_it_off() -> None:
    coordinator = InProcess()
    asking = demand(coordinator, after_s=0.5)
    began_s = time.monotonic()
    while not coordinator.passed_on:
        assert time.monotonic() < began_s + WITHIN_S, "put off for ever"
        for slices in (1, 2):
            asking.want(slices)
            time.sleep(0.02)
    asking.close(WITHIN_S)


def test_giving_the_leases_back_withdraws_it() -> None:
    """Which is what the executor does on every ending: finished, failed, interrupted, fenced."""
    coordinator = InProcess()
    slices = SliceReservations(SliceAssignment(TWO_HOSTS, {"TPU": 4.0}), demand(coordinator))
    leases = RayPlacement(lambda _: None, AgentSpec("127.0.0.1", 1, b"", 0, 0), {"TPU": 4.0}, slices)
    slices.allotment.ask(1)
    assert slices.reserve(0.0) == []
    until(lambda: coordinator.passed_on == [[HEAD]])
    leases.close(WITHIN_S)
    assert coordinator.passed_on == [[HEAD], []]


def test_a_coordinator_that_cannot_be_reached_is_named_once_and_is_nobodys_failure() -> None:
    class Nowhere:
        asked = 0

        def request(self, bundles: Bundles, expire_after_s: float) -> None:
            self.asked += 1
            raise ImportError("No module named 'pyarrow'")

        def cancel(self) -> None:
            raise RuntimeError("Ray has been shut down")

    said: list[str] = []
    nowhere = Nowhere()
    asking = SliceDemand(nowhere, HEAD, said.append, after_s=0.0, renew_s=0.02)
    asking.want(1)
    until(lambda: nowhere.asked > 2)
    asking.close(WITHIN_S)
    (line,) = said
    assert "No module named 'pyarrow'" in line


def test_a_slice_of_several_hosts_is_one_bundle_as_an_autoscaler_adds_it() -> None:
    assert bundle_of(TWO_HOSTS) == HEAD
    assert bundle_of(slice_shape("TPU-V5E", "2x4")) == {"TPU": 8.0, "accelerator_type:TPU-V5LITEPOD": 0.001}


def test_wanted_are_those_that_are_held_too_but_only_while_one_is_missing() -> None:
    allotment = Allotment()
    assert allotment.wanted == 0
    for unit in (1, 2):
        allotment.ask(unit)
    assert allotment.wanted == 2
    allotment.give(Count((WholeSlice("a", ("a0", "a1")),)), 0.0)
    assert allotment.wanted == 2
    allotment.drop(2)
    assert allotment.wanted == 0
