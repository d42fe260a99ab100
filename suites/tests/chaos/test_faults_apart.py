"""Faults of a node's own machine against a real firewall and real queues, in a network namespace."""

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
from shaketable.chaos.faults.slow_network import DEVICE
from shaketable.chaos.history.events import FaultInjected, FaultMissed, FaultObserved
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.run.preparation import prepare
from shaketable.suites.tests.chaos.test_faults_landing import AT, Stage, only
from shaketable.suites.tests.rigs.apart import ApartCluster, why_not
from shaketable.suites.tests.rigs.two_machines import TwoMachines, two_machines

takes_namespaces = pytest.mark.skipif(bool(why_not()), reason=why_not() or "there are two machines")
NODE = {"node": 2}
SAY = """
import socket, sys, time
peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    try: peer.sendto(b"x", (sys.argv[1], 9))
    except OSError: pass
    time.sleep(0.02)
"""
EVERY_S = 0.02


@pytest.fixture
def machines() -> Iterator[TwoMachines]:
    with two_machines() as machines:
        yield machines


@pytest.fixture
def apart(tmp_path: Path, machines: TwoMachines) -> Iterator[Stage]:
    """Its nodes are one machine, as far as its network goes."""
    with contextlib.closing(Stage(tmp_path)) as stage:
        stage.cluster.close()
        stage.cluster = ApartCluster(2, machines)
        stage.scene = type(stage.scene)(
            stage.cluster, stage.collector, stage, stage.scene.directory, stage.scene.storage
        )
        yield stage


@contextlib.contextmanager
def talking(machines: TwoMachines) -> Iterator[None]:
    """Each of the two machines sends to the other."""
    over = threading.Event()

    def say() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            while not over.wait(EVERY_S):
                with contextlib.suppress(OSError):
                    peer.sendto(b"x", (machines.there, 9))

    here = threading.Thread(target=say)
    there = subprocess.Popen([*machines.prefix, sys.executable, "-c", SAY, machines.here])
    here.start()
    try:
        yield
    finally:
        over.set()
        here.join(10)
        there.kill()
        there.wait(10)


def rules(machines: TwoMachines) -> list[str]:
    listed = subprocess.run([*machines.prefix, "iptables", "-S"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if "DROP" in line]


@takes_namespaces
@pytest.mark.parametrize("direction", ["both", "in", "out"])
def test_a_partition_lands_when_packets_were_dropped_and_is_healed(
    direction: str, apart: Stage, machines: TwoMachines
) -> None:
    with talking(machines):
        events = apart.play(FaultPlan("partition_node", NODE, AT, {"direction": direction}))
    (observed,) = only(events, FaultObserved)
    assert observed.evidence.endswith("packets dropped")
    assert rules(machines) == []


@takes_namespaces
def test_a_partition_that_nobody_met_is_no_evidence(
    apart: Stage, monkeypatch: pytest.MonkeyPatch, machines: TwoMachines
) -> None:
    monkeypatch.setattr(FAULTS["partition_node"], "observe_within_s", 1.0)
    events = apart.play(FaultPlan("partition_node", NODE, AT))
    assert only(events, FaultInjected) and only(events, FaultMissed) and not only(events, FaultObserved)


@takes_namespaces
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("partition_node", {}), ("unplug_node", {}), ("slow_network", {"kbit": 1000, "loss_percent": 5.0})],
)
def test_a_fault_of_the_network_that_does_nothing_is_missed(
    name: str, arguments: dict[str, Any], apart: Stage, machines: TwoMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    named_as_on_docker(machines)
    monkeypatch.setattr(FAULTS[name], "inject", lambda self, scene, hit: None)
    monkeypatch.setattr(FAULTS[name], "observe_within_s", 1.0)
    with talking(machines):
        events = apart.play(FaultPlan(name, NODE, AT, arguments))
    assert only(events, FaultMissed) and not only(events, FaultObserved)


@takes_namespaces
def test_a_node_is_unplugged_after_somebody_has_tried_to_reach_it_in_vain(apart: Stage, machines: TwoMachines) -> None:
    with talking(machines):
        events = apart.play(FaultPlan("unplug_node", NODE, AT))
    (observed,) = only(events, FaultObserved)
    assert observed.evidence.startswith("gone, ") and observed.evidence.endswith("packets dropped")


@takes_namespaces
def test_a_slow_network_lands_by_the_counters_of_its_queue_and_its_rule(apart: Stage, machines: TwoMachines) -> None:
    named_as_on_docker(machines)
    with talking(machines):
        events = apart.play(FaultPlan("slow_network", NODE, AT, {"kbit": 1000, "loss_percent": 20.0}))
    (observed,) = only(events, FaultObserved)
    assert "packets slowed down" in observed.evidence and "packets dropped" in observed.evidence
    assert rules(machines) == []


@takes_namespaces
def test_latency_lands_or_names_the_module_that_the_kernel_lacks(apart: Stage, machines: TwoMachines) -> None:
    named_as_on_docker(machines)
    with talking(machines):
        events = apart.play(FaultPlan("slow_network", NODE, AT, {"latency_ms": 20.0}))
    landed, missed = only(events, FaultObserved), only(events, FaultMissed)
    assert landed or "sch_netem" in missed[0].reason


def named_as_on_docker(machines: TwoMachines) -> None:
    listed = subprocess.run(
        [*machines.prefix, "ip", "-o", "-4", "route"], capture_output=True, text=True, check=True
    ).stdout
    device = listed.partition(" dev ")[2].split()[0]
    subprocess.run([*machines.prefix, "ip", "link", "property", "add", "dev", device, "altname", DEVICE], check=True)


@pytest.mark.parametrize("name", sorted(name for name, fault in FAULTS.items() if fault.apart))
def test_a_fault_of_a_machine_is_refused_where_nodes_are_processes_of_one(name: str) -> None:
    arguments = {"kbit": 1000} if name == "slow_network" else {}
    target = None if FAULTS[name].target_kind in ("driver", "cluster") else {"rank": 1}
    plan = Plan("t", Configuration(cluster="local"), (FaultPlan(name, target, AT, arguments),), Expect())
    with pytest.raises(ExperimentError, match="machines of their own"):
        prepare(plan)
