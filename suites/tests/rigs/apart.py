"""A cluster of plain processes whose nodes are one machine of their own, as far as its network goes: a network
namespace, which is on a cable. What faults do to it is done by the real programs."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from shaketable.clusters.containers.firewall import Rule
from shaketable.clusters.processes import networks
from shaketable.clusters.processes.networks import Cable, Network
from shaketable.clusters.protocol import ClusterError, Cut, Way
from shaketable.suites.tests.rigs.plain_cluster import PlainCluster

NUMBER = 2


def why_no_firewall() -> str:
    """What is lacking; empty: nothing."""
    return networks.why_not() or ("" if shutil.which("iptables") else "iptables is not installed")


@dataclass(frozen=True, slots=True)
class Machine:
    """`cable`: of the machine; `network.host`: what this one is called there."""

    network: Network
    cable: Cable

    def run(self, command: Sequence[str]) -> str:
        done = subprocess.run([*self.cable.prefix, *command], capture_output=True, text=True)
        if done.returncode:
            raise ClusterError(done.stderr.strip())
        return done.stdout

    def defects(self) -> list[str]:
        """What is left of cuts."""
        rules = self.run(["iptables", "-S"]).splitlines() if shutil.which("iptables") else []
        hub = ["tc", "-n", self.network.hub, "qdisc"]
        there = subprocess.run(hub, capture_output=True, text=True, check=True).stdout.splitlines()
        queues = [line for line in (*self.run(["tc", "qdisc"]).splitlines(), *there) if "tbf" in line]
        return [*queues, *(rule for rule in rules if "DROP" in rule)]


@contextmanager
def machine() -> Iterator[Machine]:
    network = Network()
    try:
        yield Machine(network, network.add(NUMBER))
    finally:
        network.close()


@dataclass(slots=True)
class _FirewallCut:
    rule: Rule

    def dropped(self) -> int:
        return self.rule.met()

    def mend(self) -> None:
        self.rule.remove()


class ApartCluster(PlainCluster):
    """Node 2 is cut off by its cable, as processes are, or by its `firewall`, as containers are."""

    def __init__(self, nodes: int, machine: Machine, *, firewall: bool) -> None:
        self._machine, self._firewall = machine, firewall
        super().__init__(nodes)

    def on_machine(self, number: int, command: Sequence[str]) -> str:
        return self._machine.run(command)

    def cut_off(self, number: int, way: Way, share: float = 1.0) -> Cut:
        if not self._firewall:
            return self._machine.network.cut(number, way)
        rule = Rule(functools.partial(self.on_machine, number), way, share)
        rule.add()
        return _FirewallCut(rule)
