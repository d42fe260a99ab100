"""Networks of nodes that are processes: cut off without a word, for real, and gone with the cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.exploration.real_schedules import OF_THE_NETWORK, draw_real, without_networks
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.run import engine
from shaketable.chaos.run.preparation import prepare
from shaketable.clusters.conformance import eventually
from shaketable.clusters.local.pool import ClusterPool
from shaketable.clusters.processes import networks
from shaketable.clusters.processes.networks import Network
from shaketable.clusters.protocol import ClusterError
from shaketable.suites.gate import catalogue
from shaketable.suites.gate.execution import trials

takes_networks = pytest.mark.skipif(bool(networks.why_not()), reason=networks.why_not() or "there are networks")
GONE_WITHIN_S = 30.0


@pytest.fixture(scope="module")
def pool() -> Iterator[ClusterPool]:
    with ClusterPool() as pool:
        yield pool


def plan_of(name: str) -> Plan:
    (entry,) = catalogue.select([name])
    (trial,) = trials(entry, {"cluster": "processes"})
    return trial.prepared.plan


def left(name: str) -> list[str]:
    # of shk1, and not of shk12, which may be another test's
    namespaces = [path.name for path in networks.NAMESPACES.glob(f"{name}-*")]
    return [*namespaces, *(path.name for path in Path("/sys/class/net").glob(name))]


@takes_networks
@pytest.mark.parametrize("name", ["partition-worker", "half-open"])
def test_a_run_survives_a_node_that_is_cut_off(name: str, pool: ClusterPool, tmp_path: Path) -> None:
    judgement = engine.execute(prepare(plan_of(name)), tmp_path, pool=pool).judgement
    assert judgement.verdict == "PASS", judgement.reason


@takes_networks
@pytest.mark.parametrize("name", sorted(OF_THE_NETWORK.values()))
def test_a_cut_that_is_none_is_invalid(
    name: str, pool: ClusterPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FAULTS[name], "inject", lambda self, scene, hit: None)
    monkeypatch.setattr(FAULTS[name], "observe_within_s", 0.3)
    made = Configuration(cluster="processes", nodes=2, num_workers=2, job_config={"steps": 12, "step_s": 0.02})
    plan = Plan("t", made, (FaultPlan(name, {"rank": 1}, {"step": 2}),), Expect(within_s=60.0))
    judgement = engine.execute(prepare(plan), tmp_path, pool=pool).judgement
    assert judgement.verdict == "INVALID" and "no evidence that it landed" in judgement.reason


HARNESS = """
import sys, time
from shaketable.clusters.processes.cluster import ProcessCluster
from shaketable.clusters.processes.networks import Network
from shaketable.clusters.protocol import Shape
with ProcessCluster(Shape(nodes=2), network=Network()) as cluster:
    print(cluster._network.name, flush=True)
    time.sleep(600) if sys.argv[1] == "stay" else None
"""


@takes_networks
@pytest.mark.parametrize("how", ["stay", "leave"])
def test_nothing_of_a_network_is_left(how: str) -> None:
    """Neither by a harness that is killed, nor by one that ends."""
    with subprocess.Popen([sys.executable, "-c", HARNESS, how], stdout=subprocess.PIPE, text=True) as harness:
        assert harness.stdout is not None
        name = harness.stdout.readline().strip()
        assert name.startswith("shk")
        if how == "stay":
            assert len(left(name)) == 4, "a hub, two namespaces and this machine's cable"
            harness.send_signal(signal.SIGKILL)
    eventually(lambda: left(name), lambda found: not found, GONE_WITHIN_S, "nothing is left")


@takes_networks
def test_two_networks_of_one_machine_are_two() -> None:
    first, second = Network(), Network()
    try:
        assert first.name != second.name and first.host != second.host
    finally:
        first.close()
        second.close()
    assert not left(first.name) and not left(second.name)


@takes_networks
def test_a_network_that_cannot_be_made_whole_leaves_no_half(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def refused(*device: str) -> None:
        made.append(device[-1])
        raise ClusterError("no")

    monkeypatch.setattr(networks, "_quiet", refused)
    with pytest.raises(ClusterError, match="no"):
        Network()
    assert made and not left(made[0])


@takes_networks
def test_nodes_reach_each_other_on_a_machine_that_forwards_nothing() -> None:
    """As Docker leaves it: it sets the policy to DROP, and lets bridges pass the firewall."""
    machine = f"shaketable-test-{os.getpid()}"
    namespace = ("ip", "netns", "exec", machine)
    subprocess.run(["ip", "netns", "add", machine], check=True)
    try:
        if subprocess.run([*namespace, "iptables", "-P", "FORWARD", "DROP"], capture_output=True).returncode:
            pytest.skip("no iptables here")
        if not Path("/proc/sys/net/bridge/bridge-nf-call-iptables").exists():
            pytest.skip("bridges do not pass the firewall here: br_netfilter is not loaded")
        done = subprocess.run([*namespace, sys.executable, "-c", TALKING], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
    finally:
        subprocess.run(["ip", "netns", "del", machine], check=True)


TALKING = """
import subprocess, sys
from shaketable.clusters.processes.networks import Network
network = Network()
try:
    first, second = network.add(1), network.add(2)
    listening = "import socket; server = socket.create_server(('', 7777)); print('there', flush=True); server.accept()"
    with subprocess.Popen([*second.prefix, sys.executable, "-c", listening], stdout=subprocess.PIPE) as server:
        server.stdout.readline()
        calling = f"import socket; socket.create_connection(('{second.ip}', 7777), 5)"
        try:
            subprocess.run([*first.prefix, sys.executable, "-c", calling], check=True)
        finally:
            server.kill()
finally:
    network.close()
"""


@takes_networks
def test_a_machine_that_lets_no_node_speak_to_it_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "_reaches", lambda host, cable: False)
    assert "a firewall of this machine keeps 198." in networks.why_not.__wrapped__()


def test_who_may_make_none_is_told_so_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "why_not", lambda: "network namespaces take root")
    plan = Plan(
        "t", Configuration(cluster="processes"), (FaultPlan("unplug_node", {"rank": 1}, {"step": 2}),), Expect()
    )
    with pytest.raises(ExperimentError, match=r"unplug_node\) needs .*take root; use cluster: containers"):
        prepare(plan)
    entries, notes = catalogue.suited(catalogue.catalogue(), {"cluster": "processes"})
    assert "half-open" not in {entry.name for entry in entries}
    assert any("half-open" in note and "take root" in note for note in notes)


def test_some_schedules_cut_nodes_off_and_simulation_makes_the_nearest_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(lacking: str) -> list[Plan]:
        monkeypatch.setattr(networks, "why_not", lambda: lacking)
        return [draw_real(3, number).plan for number in range(60)]

    plain, cut = drawn("no root"), drawn("")
    assert not set(OF_THE_NETWORK.values()) & {fault.name for plan in plain for fault in plan.faults}
    assert set(OF_THE_NETWORK.values()) <= {fault.name for plan in cut for fault in plan.faults}
    assert [without_networks(plan) for plan in cut] == plain
