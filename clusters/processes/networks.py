"""Networks of their own for nodes that are processes of this machine: each in a network namespace, on a cable (a veth
pair) to a bridge that leads nowhere else. Takes root.

The bridge is in a namespace too, and this machine on one more cable to it. So what nodes say to each other never passes
the machine's own firewall, which forwards nothing where Docker has been started.

A cable is cut in one way by a queue into which no packet fits (tbf, which every kernel of a distribution has): what is
sent is dropped and counted, and nobody's socket is closed. `python -m shaketable.clusters.processes.networks NAME`
removes what is left of one network: the watchdog's last act.
"""

from __future__ import annotations

import functools
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from shaketable.clusters.protocol import ClusterError, Cut, Way

# what a node calls its end of the cable, as containers do
DEVICE = "eth0"
# in the hub: the bridge, and this machine's cable
BRIDGE, HOST_END = "br0", "host"
# of addresses that are set aside for benchmarks (RFC 2544): nobody is called so
SUBNETS = 512
MOST_NODES = 250
BLACK_HOLE = ("tbf", "rate", "8bit", "burst", "10b", "limit", "10b")
NAMESPACES = Path("/run/netns")


@functools.cache
def why_not() -> str:
    """What is lacking; empty: nothing."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    try:
        network = Network()
        try:
            cable = network.add(1)
            network.cut(1, "in").mend()
            return "" if _reaches(network.host, cable) else f"a firewall of this machine keeps {cable.ip} from it"
        finally:
            network.close()
    except (OSError, ClusterError) as error:
        return f"no network namespace can be made here: {error}"


def _reaches(host: str, cable: Cable) -> bool:
    """Whether a node on that cable reaches this machine."""
    with socket.create_server((host, 0)) as server:
        asked = ("-c", "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)")
        command = [*cable.prefix, sys.executable, "-I", "-S", *asked, host, str(server.getsockname()[1])]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@dataclass(frozen=True, slots=True)
class Cable:
    """`ip`: of the node; `prefix`: what a command is started with to be on it."""

    ip: str
    prefix: tuple[str, ...]


@dataclass(slots=True)
class Network:
    """`name`: of this machine's own cable, and what the names of all else begin with. `hub`: the namespace of the
    bridge. `host`: what this machine is called there."""

    name: str = field(init=False)
    host: str = field(init=False)
    # how many cuts there are of each cable and way
    _cuts: Counter[tuple[int, Way]] = field(default_factory=Counter, init=False)
    _changing: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        """The first subnet that no other network here has: two hubs of one name there cannot be."""
        first = secrets.randbelow(SUBNETS)
        for number in (*range(first, SUBNETS), *range(first)):
            self.name = f"shk{number}"
            self.host = self._address(number, 1)
            if not (NAMESPACES / self.hub).exists() and self._made():
                return
        raise ClusterError(f"all {SUBNETS} subnets of this machine are taken: `ip netns del` removes namespaces shk*")

    @property
    def hub(self) -> str:
        return f"{self.name}-hub"

    def _made(self) -> bool:
        try:
            _run("ip", "netns", "add", self.hub)
        except ClusterError:
            if (NAMESPACES / self.hub).exists():
                # somebody else was quicker
                return False
            raise
        try:
            _run("ip", "-n", self.hub, "link", "add", BRIDGE, "type", "bridge", "mcast_snooping", "0")
            _run("ip", "-n", self.hub, "link", "set", BRIDGE, "up")
            _run("ip", "link", "add", self.name, "type", "veth", "peer", "name", HOST_END, "netns", self.hub)
            _quiet("link", "set", self.name)
            self._plug(HOST_END)
            _run("ip", "addr", "add", f"{self.host}/24", "dev", self.name)
            _run("ip", "link", "set", self.name, "up")
        except ClusterError:
            remove(self.name)
            raise
        return True

    def _plug(self, end: str) -> None:
        _quiet("-n", self.hub, "link", "set", end)
        _run("ip", "-n", self.hub, "link", "set", end, "master", BRIDGE, "up")

    @staticmethod
    def _address(subnet: int, last: int) -> str:
        return f"198.{18 + subnet // 256}.{subnet % 256}.{last}"

    def add(self, number: int) -> Cable:
        """For node `number`, from 1."""
        if number > MOST_NODES:
            raise ClusterError(f"node {number}: a network has room for {MOST_NODES} nodes")
        name, ip = self._namespace(number), self._address(int(self.name.removeprefix("shk")), number + 1)
        _run("ip", "netns", "add", name)
        end = self._end(number)
        _run("ip", "-n", self.hub, "link", "add", end, "type", "veth", "peer", "name", DEVICE, "netns", name)
        _quiet("-n", name, "link", "set", DEVICE)
        self._plug(end)
        _run("ip", "-n", name, "addr", "add", f"{ip}/24", "dev", DEVICE)
        for device in (DEVICE, "lo"):
            _run("ip", "-n", name, "link", "set", device, "up")
        # to whatever else this machine is called
        _run("ip", "-n", name, "route", "add", "default", "via", self.host)
        return Cable(ip, ("ip", "netns", "exec", name))

    def _namespace(self, number: int) -> str:
        return f"{self.name}-{number}"

    def _end(self, number: int) -> str:
        """The hub's end of the cable."""
        return f"n{number}"

    # -- cuts

    def cut(self, number: int, way: Way) -> Cut:
        with self._changing:
            self._cuts[number, way] += 1
            if self._cuts[number, way] == 1:
                self._tc(number, way, "qdisc", "add", "dev", self._sender(number, way), "root", *BLACK_HOLE)
        return _CableCut(self, number, way, self.dropped(number, way))

    def mend(self, number: int, way: Way) -> None:
        with self._changing:
            self._cuts[number, way] -= 1
            if self._cuts[number, way] == 0:
                self._tc(number, way, "qdisc", "del", "dev", self._sender(number, way), "root")

    def dropped(self, number: int, way: Way) -> int:
        shown = self._tc(number, way, "-s", "-j", "qdisc", "show", "dev", self._sender(number, way))
        return sum(each["drops"] for each in json.loads(shown) if each["kind"] == BLACK_HOLE[0])

    def _sender(self, number: int, way: Way) -> str:
        """A queue is where packets leave: what goes in to the node leaves from the hub."""
        return DEVICE if way == "out" else self._end(number)

    def _tc(self, number: int, way: Way, *arguments: str) -> str:
        return _run("tc", "-n", self._namespace(number) if way == "out" else self.hub, *arguments)

    def close(self) -> None:
        remove(self.name)


@dataclass(slots=True)
class _CableCut:
    network: Network
    number: int
    way: Way
    before: int
    mended: bool = False

    def dropped(self) -> int:
        return self.network.dropped(self.number, self.way) - self.before

    def mend(self) -> None:
        if not self.mended:
            self.mended = True
            self.network.mend(self.number, self.way)


def remove(name: str) -> None:
    """Nothing if there is nothing. What is in a namespace goes with it, after a while. The hub goes last: as long as
    its name is there, nobody else takes the subnet."""
    subprocess.run(["ip", "link", "del", name], capture_output=True, check=False)
    for namespace in sorted(NAMESPACES.glob(f"{name}-*")):
        subprocess.run(["ip", "netns", "del", namespace.name], capture_output=True, check=False)


def _quiet(*device: str) -> None:
    """What the kernel says of itself over IPv6 is nobody's packet."""
    _run("ip", *device, "addrgenmode", "none")


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"`{' '.join(command)}` exited with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    remove(sys.argv[1])
