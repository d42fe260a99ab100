"""Faults of a node's own machine against real cables, a real firewall and real queues, in a network namespace."""

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.history.events import FaultInjected, FaultMissed, FaultObserved
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.run.preparation import prepare
from shaketable.clusters.processes import networks
from shaketable.suites.tests.chaos.test_faults_landing import AT, Stage, only
from shaketable.suites.tests.rigs.apart import NUMBER, ApartCluster, Machine, machine, why_no_firewall

NODE = {"node": NUMBER}
SAY = """
import socket, sys, time
peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    try: peer.sendto(b"x", (sys.argv[1], 9))
    except OSError: pass
    time.sleep(0.02)
"""
EVERY_S = 0.02
BY = [
    pytest.param(by, id="firewall" if by else "cable", marks=pytest.mark.skipif(bool(lacking), reason=lacking or "-"))
    for by, lacking in ((False, networks.why_not()), (True, why_no_firewall()))
]
by_cable_and_firewall = pytest.mark.parametrize("firewall", BY)
by_firewall = pytest.mark.parametrize("firewall", BY[1:])


@pytest.fixture
def there() -> Iterator[Machine]:
    with machine() as made:
        yield made


@pytest.fixture
def apart(tmp_path: Path, there: Machine, firewall: bool) -> Iterator[Stage]:
    """Its nodes are one machine, as far as its network goes."""
    with contextlib.closing(Stage(tmp_path)) as stage:
        stage.cluster.close()
        stage.cluster = ApartCluster(2, there, firewall=firewall)
        stage.scene = type(stage.scene)(
            stage.cluster, stage.collector, stage, stage.scene.directory, stage.scene.storage
        )
        yield stage


@contextlib.contextmanager
def talking(there: Machine) -> Iterator[None]:
    """Each of the two machines sends to the other."""
    over = threading.Event()

    def say() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            while not over.wait(EVERY_S):
                with contextlib.suppress(OSError):
                    peer.sendto(b"x", (there.cable.ip, 9))

    here = threading.Thread(target=say)
    other = subprocess.Popen([*there.cable.prefix, sys.executable, "-c", SAY, there.network.host])
    here.start()
    try:
        yield
    finally:
        over.set()
        here.join(10)
        other.kill()
        other.wait(10)


@by_cable_and_firewall
@pytest.mark.parametrize("direction", ["both", "in", "out"])
def test_a_partition_lands_when_packets_were_dropped_and_is_healed(
    direction: str, apart: Stage, there: Machine
) -> None:
    with talking(there):
        events = apart.play(FaultPlan("partition_node", NODE, AT, {"direction": direction}))
    (observed,) = only(events, FaultObserved)
    assert observed.evidence.endswith("packets dropped")
    assert there.defects() == []


@by_cable_and_firewall
def test_a_partition_that_nobody_met_is_no_evidence(apart: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FAULTS["partition_node"], "observe_within_s", 1.0)
    events = apart.play(FaultPlan("partition_node", NODE, AT))
    assert only(events, FaultInjected) and only(events, FaultMissed) and not only(events, FaultObserved)


@by_cable_and_firewall
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("partition_node", {}), ("unplug_node", {}), ("slow_network", {"kbit": 1000, "loss_percent": 5.0})],
)
def test_a_fault_of_the_network_that_does_nothing_is_missed(
    name: str, arguments: dict[str, Any], apart: Stage, there: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FAULTS[name], "inject", lambda self, scene, hit: None)
    monkeypatch.setattr(FAULTS[name], "observe_within_s", 1.0)
    with talking(there):
        events = apart.play(FaultPlan(name, NODE, AT, arguments))
    assert only(events, FaultMissed) and not only(events, FaultObserved)


@by_cable_and_firewall
def test_a_node_is_unplugged_after_somebody_has_tried_to_reach_it_in_vain(apart: Stage, there: Machine) -> None:
    with talking(there):
        events = apart.play(FaultPlan("unplug_node", NODE, AT))
    (observed,) = only(events, FaultObserved)
    assert observed.evidence.startswith("gone, ") and observed.evidence.endswith("packets dropped")


@by_cable_and_firewall
def test_two_cuts_of_one_cable_are_mended_one_by_one(apart: Stage, there: Machine) -> None:
    first, second = (apart.cluster.cut_off(NUMBER, "in") for _ in range(2))
    first.mend()
    assert there.defects()
    second.mend()
    assert there.defects() == []


@by_firewall
def test_a_slow_network_lands_by_the_counters_of_its_queue_and_its_rule(apart: Stage, there: Machine) -> None:
    with talking(there):
        events = apart.play(FaultPlan("slow_network", NODE, AT, {"kbit": 1000, "loss_percent": 20.0}))
    (observed,) = only(events, FaultObserved)
    assert "packets slowed down" in observed.evidence and "packets dropped" in observed.evidence
    assert there.defects() == []


@by_firewall
def test_latency_lands_or_names_the_module_that_the_kernel_lacks(apart: Stage, there: Machine) -> None:
    with talking(there):
        events = apart.play(FaultPlan("slow_network", NODE, AT, {"latency_ms": 20.0}))
    landed, missed = only(events, FaultObserved), only(events, FaultMissed)
    assert landed or "sch_netem" in missed[0].reason


@pytest.mark.parametrize("name", sorted(name for name, fault in FAULTS.items() if fault.apart))
def test_a_fault_of_a_machine_is_refused_where_nodes_are_processes_of_one(name: str) -> None:
    arguments = {"kbit": 1000} if name == "slow_network" else {}
    target = None if FAULTS[name].target_kind in ("driver", "cluster") else {"rank": 1}
    plan = Plan("t", Configuration(cluster="local"), (FaultPlan(name, target, AT, arguments),), Expect())
    what = "that are pods" if FAULTS[name].apart == "pods" else "of their own"
    with pytest.raises(ExperimentError, match=what):
        prepare(plan)
