"""Two machines, as far as addresses go: this one, and a network namespace with a loopback of its own, joined by a cable
(a veth pair). What is bound to one loopback cannot be reached from the other. Takes root and the right to make them.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from shaketable.clusters.processes.cluster import ProcessCluster
from shaketable.clusters.protocol import Shape


@dataclass(frozen=True, slots=True)
class TwoMachines:
    """`here` and `there`: how each reaches the other's. `prefix`: what a command is started with on the other one."""

    here: str
    there: str
    prefix: tuple[str, ...]

    @contextmanager
    def cluster(self, preload: Sequence[str] = (), **wrong: str) -> Iterator[ProcessCluster]:
        """Of two nodes: number 1 here, number 2 there. `wrong`: the address of the other `node`, or the `harness`."""
        ips, prefixes = {1: self.here, 2: wrong.get("node", self.there)}, {2: self.prefix}
        host = wrong.get("harness", self.here)
        with ProcessCluster(Shape(nodes=2), prefixes=prefixes, ips=ips, host=host, preload=preload) as cluster:
            yield cluster


def why_not() -> str:
    """What is lacking; empty: nothing."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    try:
        with two_machines():
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip()
        return f"no network namespace with a veth pair can be made here: {said}"


@contextmanager
def two_machines() -> Iterator[TwoMachines]:
    """Of addresses that are set aside for benchmarks (RFC 2544): nobody is called so."""
    number = secrets.randbelow(1 << 14)
    name, cable = f"shk-{number}", f"shk{number}"
    first = f"198.18.{number // 64}.{number % 64 * 4}".rpartition(".")
    here, there = (f"{first[0]}.{int(first[2]) + last}" for last in (1, 2))
    try:
        _ip("netns", "add", name)
        _ip("link", "add", f"{cable}h", "type", "veth", "peer", "name", f"{cable}t", "netns", name)
        _ip("addr", "add", f"{here}/30", "dev", f"{cable}h")
        _ip("link", "set", f"{cable}h", "up")
        _ip("-n", name, "addr", "add", f"{there}/30", "dev", f"{cable}t")
        _ip("-n", name, "link", "set", f"{cable}t", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        # to whatever else this machine is called
        _ip("-n", name, "route", "add", "default", "via", here)
        yield TwoMachines(here, there, ("ip", "netns", "exec", name))
    finally:
        # The pair would go with the namespace, but a while after this.
        for gone in (("link", "del", f"{cable}h"), ("netns", "del", name)):
            subprocess.run(["ip", *gone], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True)
