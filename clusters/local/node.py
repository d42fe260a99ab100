"""One node of a local cluster: one `ray start --block` in a session of its own, with a directory of its own.

Every port is 0: Ray 2.60 then lets the kernel choose and publishes the choice, so that no two nodes can ever collide,
whoever started them (ports.py has the exceptions). The directory of its own matters as much: Ray's choice of socket and
log names in a shared one is a race between nodes that start together.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shaketable.clusters import marked
from shaketable.clusters.local.ports import client_server
from shaketable.clusters.marked import MARK
from shaketable.clusters.own_nodes import Started
from shaketable.clusters.protocol import TIER_LABEL, ClusterError

# Ray refuses less than 75 MiB
OBJECT_STORE_BYTES = 80_000_000
LOG = "ray-start.log"
LOG_LINES_SHOWN = 12
MOST_TRIES = 3
TOO_SLOW = "The current node timed out during startup"
ANY_PORT = tuple(
    f"--{name}=0"
    for name in (
        "node-manager-port",
        "object-manager-port",
        "min-worker-port",
        "max-worker-port",
        "dashboard-agent-listen-port",
        "dashboard-agent-grpc-port",
        "metrics-export-port",
        "runtime-env-agent-port",
    )
)
# What a harness may have in its own environment and a node must not take over.
NOT_INHERITED = frozenset({"RAY_ADDRESS", "RAY_TMPDIR", "RAY_NAMESPACE", "RAY_JOB_ID", "PYTHONSTARTUP", MARK})

HINTS = {
    "No space left on device": "free some space there, or set TMPDIR to a larger file system",
    "Too many open files": "raise the limit, for example with `ulimit -n 65536`",
    "Address already in use": "another program took a port; try again",
    "Cannot allocate memory": "free some memory: a node needs about 0.25 GiB",
    TOO_SLOW: "the machine is too busy, for Ray gives a node 30 s: try again, or ask for fewer (--var nodes=2)",
    "AF_UNIX path": "set TMPDIR to a shorter path: Unix socket paths end at 107 characters",
}


@dataclass(slots=True)
class NodeProcess:
    number: int
    mark: str
    directory: Path
    process: Started
    arguments: list[str]
    tries: int = 1
    # known once Ray's own view shows the node
    node_id: str = ""
    # told to go (SIGTERM, SIGKILL): no longer in the harness's book
    leaving: bool = field(default=False)

    @property
    def log(self) -> Path:
        return self.directory / LOG

    def running(self) -> bool:
        return self.process.poll() is None

    def check_starting(self) -> None:
        """Raises ClusterError, with the end of its log and what to do, when `ray start` has already given up."""
        if not self.running():
            raise ClusterError(
                f"node {self.number}: `ray start` ended with code {self.process.poll()} "
                f"instead of running. {hint(self.tail())}\n{self.tail()}"
            )

    def gave_up_too_soon(self) -> bool:
        """Whether `ray start` has ended only because it was not seen by the head within the 30 s it has
        (ray/_private/node.py), which a cold or busy machine may need."""
        return not self.running() and self.tries < MOST_TRIES and TOO_SLOW in self.tail()

    def tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LOG_LINES_SHOWN:]) or "(its log is empty)"


# number, mark, directory, arguments of `ray start`, environment
Start = Callable[[int, str, Path, list[str], Mapping[str, str]], NodeProcess]


def hint(log: str) -> str:
    found = [advice for sign, advice in HINTS.items() if sign in log]
    return f"What to do: {found[0]}." if found else "The end of its log:"


def environment(mark: str, extra: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    # Any plain `ray.init()` on this machine leaves ~/.ray/auth_token, whereupon `ray start --head` demands the token
    # from every client, also from those that run with the default mode. So the mode is said, and it is the harness's.
    kept.setdefault("RAY_AUTH_MODE", "disabled")
    return kept | {"RAY_USAGE_STATS_ENABLED": "0", **extra, MARK: mark}


def command(arguments: list[str]) -> list[str]:
    """Of a Python: but for the directory."""
    start = ["-m", "ray.scripts.scripts", "start", "--block", *arguments, *ANY_PORT]
    return [*start, f"--object-store-memory={OBJECT_STORE_BYTES}", "--num-gpus=0"]


def head_arguments(port: int = 0, ip: str = "") -> list[str]:
    """`ip`: empty for the one that Ray finds."""
    head = ["--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false", "--dashboard-port=0"]
    return head + ([f"--node-ip-address={ip}"] if ip else []) + client_server()


def worker_arguments(address: str, cpus: int, tier: str = "") -> list[str]:
    labels = [f"--labels={TIER_LABEL}={tier}"] if tier else []
    return [f"--address={address}", f"--num-cpus={cpus}", *labels]


def start(number: int, mark: str, directory: Path, arguments: list[str], extra: Mapping[str, str]) -> NodeProcess:
    """Start it and return at once; whether it comes up is seen in Ray's own view."""
    directory.mkdir(parents=True)
    with (directory / LOG).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *command(arguments), f"--temp-dir={directory}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=environment(mark, extra),
            start_new_session=True,
        )
    return NodeProcess(number, mark, directory, process, arguments)


def start_again(node: NodeProcess, extra: Mapping[str, str], start: Start) -> NodeProcess:
    """Another process in the place of one that has ended, with what that one left removed."""
    marked.kill_all(node.mark)
    shutil.rmtree(node.directory)
    again = start(node.number, node.mark, node.directory, node.arguments, extra)
    again.tries = node.tries + 1
    return again
