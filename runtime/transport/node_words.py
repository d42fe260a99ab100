"""What nodes without Ray say and are told: words over a Unix socket, and a file in the registry of each.

A node (`agent/node.py`) keeps `<registry>/<node id>.json`, whole at every moment, with what it is and who holds places
of it. Who finds a node dead creates `<registry>/<node id>.dead`; a node that finds that of itself ends. A connection to
its socket is the lease of one place: it is asked for by the first word, and given back by closing.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import msgspec

_READ_BYTES = 1 << 16
LOOPBACK = "127.0.0.1"
ENTRY, DEAD = ".json", ".dead"


class Lease(msgspec.Struct, frozen=True, tag="lease"):
    """Asks for a place. `amounts`: of CPU, and of TPU chips."""

    run: str
    unit: int
    place: int
    amounts: dict[str, float]


class Granted(msgspec.Struct, frozen=True, tag="granted"):
    """The place is held as long as this connection is open."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    why: str


class Start(msgspec.Struct, frozen=True, tag="start"):
    """An agent in this place, instead of the one that is there. `environment`: of its driver."""

    host: str
    port: int
    secret: str
    agent: int
    unit: int
    place: int
    environment: dict[str, str]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The agent could not be started."""

    agent: int
    why: str


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """The node will be taken then, seconds since 1970. It ends by itself as soon as nobody holds a place of it."""

    deadline_wall_s: float


class Draining(msgspec.Struct, frozen=True, tag="draining"):
    """It is in the registry."""


AnyWord = Lease | Granted | Refused | Start | Failed | Drain | Draining
_decode = msgspec.json.Decoder(AnyWord).decode


class Words:
    """One end of a connection, a word a line. `send` and `receive` raise OSError where it is broken."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._rest = b""

    def send(self, word: AnyWord) -> None:
        self.sock.sendall(msgspec.json.encode(word) + b"\n")

    def receive(self) -> list[AnyWord]:
        """Those that are there, at least some bytes of one. Raises EOFError where the other end has closed."""
        data = self.sock.recv(_READ_BYTES)
        if not data:
            raise EOFError
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [_decode(line) for line in lines]

    def answer(self, timeout_s: float) -> AnyWord:
        """The next word. Raises TimeoutError, or EOFError."""
        self.sock.settimeout(timeout_s)
        while not (words := self.receive()):
            pass
        return words[0]

    def close(self) -> None:
        self.sock.close()


def connect(path: str, timeout_s: float) -> Words:
    """Raises OSError where nobody listens there."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(timeout_s)
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return Words(sock)


# ---- the registry


class Held(msgspec.Struct, frozen=True):
    """A place that somebody holds, and the pid of the agent in it; 0: there is none now."""

    run: str
    unit: int
    amounts: dict[str, float]
    agent_pid: int = 0


class NodeEntry(msgspec.Struct, frozen=True):
    """`amounts`: all of its CPU and TPU chips. `deadline_wall_s`: of its drain, 0 for none."""

    node_id: str
    number: int
    pid: int
    socket: str
    amounts: dict[str, float]
    labels: dict[str, str]
    draining: bool = False
    deadline_wall_s: float = 0.0
    held: tuple[Held, ...] = ()
    # its address, at which the other nodes reach it
    ip: str = LOOPBACK

    def free(self, name: str) -> float:
        return self.amounts.get(name, 0.0) - sum(held.amounts.get(name, 0.0) for held in self.held)


def write_entry(registry: Path, entry: NodeEntry) -> None:
    path = registry / f"{entry.node_id}{ENTRY}"
    temporary = path.with_suffix(".new")
    temporary.write_bytes(msgspec.json.encode(entry))
    temporary.replace(path)


def read_entries(registry: Path) -> list[tuple[NodeEntry, bool]]:
    """Every node there has ever been and whether it is alive, in the order of their numbers."""
    names = {path.name for path in registry.iterdir()}
    found = []
    for name in names:
        if name.endswith(ENTRY):
            entry = msgspec.json.decode((registry / name).read_bytes(), type=NodeEntry)
            found.append((entry, f"{entry.node_id}{DEAD}" not in names))
    return sorted(found, key=lambda each: each[0].number)


def is_dead(registry: Path, node_id: str) -> bool:
    return (registry / f"{node_id}{DEAD}").exists()


def mark_dead(registry: Path, node_id: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        # the whole cluster may have been taken down
        (registry / f"{node_id}{DEAD}").touch()
