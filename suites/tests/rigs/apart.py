"""A cluster of plain processes whose nodes have a firewall of their own: that of a network namespace, the same one for
all. What faults do to the machine of a node is done by the real programs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from shaketable.clusters.protocol import ClusterError
from shaketable.suites.tests.rigs import two_machines
from shaketable.suites.tests.rigs.plain_cluster import PlainCluster
from shaketable.suites.tests.rigs.two_machines import TwoMachines

PROGRAMS = ("iptables", "tc")


def why_not() -> str:
    """What is lacking; empty: nothing."""
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"{' and '.join(lacking)} not installed" if lacking else two_machines.why_not()


class ApartCluster(PlainCluster):
    def __init__(self, nodes: int, machines: TwoMachines) -> None:
        self._machines = machines
        super().__init__(nodes)

    def on_machine(self, number: int, command: Sequence[str]) -> str:
        done = subprocess.run([*self._machines.prefix, *command], capture_output=True, text=True)
        if done.returncode:
            raise ClusterError(f"node {number}: {done.stderr.strip()}")
        return done.stdout
