"""One node of a cluster of processes: one `shaketable.runtime.agent.node` in a session of its own, with its directory.

Its file in the registry is written by itself; here it is only read (`runtime/transport/node_words.py` says what is in
it). A node that was killed is found dead after `KILLED_NOTICED_S`, as Ray finds it after 14 s; a frozen one after
`FROZEN_NOTICED_S`, as after 62 s: later than a driver's own `heartbeat_timeout_s` in the catalogue.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shaketable.clusters import marked
from shaketable.clusters.marked import MARK
from shaketable.clusters.protocol import LOOPBACK, ClusterError, NodeState

KILLED_NOTICED_S = 1.0
FROZEN_NOTICED_S = 10.0
ANSWER_S = 5.0
LOG_LINES_SHOWN = 12


@dataclass(slots=True)
class NodeProcess:
    """`leaving`: told to go (SIGTERM, SIGKILL), so no longer in the harness's book. `ended_s`, `stopped_s`: since when
    it has been seen so."""

    number: int
    node_id: str
    mark: str
    directory: Path
    registry: Path
    process: subprocess.Popen[bytes]
    leaving: bool = False
    ended_s: float | None = None
    stopped_s: float | None = None
    held: list[socket.socket] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.directory / "node.log"

    @property
    def dead(self) -> Path:
        return self.registry / f"{self.node_id}.dead"

    def running(self) -> bool:
        return self.process.poll() is None

    def entry(self) -> dict[str, Any] | None:
        """What it says of itself; None: nothing yet."""
        path = self.registry / f"{self.node_id}.json"
        return json.loads(path.read_bytes()) if path.exists() else None

    def state(self) -> NodeState:
        """In the registry."""
        entry = self.entry()
        if entry is None or self.dead.exists():
            return "dead"
        return "draining" if entry["draining"] else "alive"

    def check_starting(self) -> None:
        """Raises ClusterError, with the end of its log, when it has already given up."""
        if not self.running():
            lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
            raise ClusterError(
                f"node {self.number} ended with code {self.process.returncode} instead of running. The end of its"
                f" log:\n{chr(10).join(lines)}"
            )

    def as_new(self) -> bool:
        """Nobody holds a place of it, and it does not leave. What runs have put on its disk is removed."""
        entry = self.entry()
        if self.leaving or not self.running() or entry is None or entry["held"] or self.state() != "alive":
            return False
        shutil.rmtree(self.directory / "shaketable", ignore_errors=True)
        return True

    def end(self) -> None:
        """With everything that there is of it. Raises ClusterError."""
        try:
            marked.kill_all(self.mark)
        except marked.ProcessesRemain as error:
            raise ClusterError(f"node {self.number}: {error}") from error
        self.process.wait()
        self.let_go()
        for path in (self.registry / f"{self.node_id}.json", self.dead):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.directory)

    def look(self, now: float) -> None:
        """Find it dead, some time after it has ended or stopped."""
        if self.dead.exists():
            return
        stopped = marked.stopped(self.process.pid)
        self.ended_s = None if self.running() else (self.ended_s or now)
        self.stopped_s = (self.stopped_s or now) if stopped else None
        for since_s, noticed_s in ((self.ended_s, KILLED_NOTICED_S), (self.stopped_s, FROZEN_NOTICED_S)):
            if since_s is not None and now >= since_s + noticed_s:
                self.dead.touch()

    # ---- over its socket

    def drain(self, deadline_s: float) -> None:
        """Raises ClusterError where it does not answer."""
        self._asked({"type": "drain", "deadline_wall_s": time.time() + deadline_s}).close()

    def hold(self, amounts: Mapping[str, float], who: str) -> None:
        """Somebody holds a place there, until `let_go`."""
        self.held.append(self._asked({"type": "lease", "run": who, "unit": 0, "place": 0, "amounts": dict(amounts)}))

    def let_go(self) -> None:
        for sock in self.held:
            sock.close()
        self.held.clear()

    def _asked(self, word: dict[str, Any]) -> socket.socket:
        entry = self.entry()
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(ANSWER_S)
        try:
            sock.connect(entry["socket"] if entry else "")
            sock.sendall(json.dumps(word).encode() + b"\n")
            answer = sock.recv(4096)
        except OSError as error:
            sock.close()
            raise ClusterError(f"node {self.number} does not answer within {ANSWER_S:g} s: {error}") from error
        if json.loads(answer or b"{}").get("type") not in ("draining", "granted"):
            sock.close()
            raise ClusterError(f"node {self.number} refused to {word['type']}: {answer.decode(errors='replace')}")
        return sock


def start(
    number: int,
    mark: str,
    directory: Path,
    registry: Path,
    amounts: Mapping[str, float],
    labels: Mapping[str, str],
    environment: Mapping[str, str],
    preload: Sequence[str],
    prefix: Sequence[str],
    ip: str = LOOPBACK,
) -> NodeProcess:
    """Start it and return at once; whether it comes up is seen in the registry."""
    directory.mkdir(parents=True)
    node_id = uuid.uuid4().hex
    extra = {**environment, MARK: mark}
    spec = {
        "node_id": node_id,
        "number": number,
        "ip": ip,
        "registry": str(registry),
        "directory": str(directory),
        "amounts": dict(amounts),
        "labels": dict(labels),
        "environment": extra,
        "preload": list(preload),
    }
    command = [*prefix, sys.executable, "-m", "shaketable.runtime.agent.node", json.dumps(spec)]
    with (directory / "node.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env={**os.environ, "PYTHONPATH": _import_path(), **extra},
            start_new_session=True,
        )
    return NodeProcess(number, node_id, mark, directory, registry, process)


def _import_path() -> str:
    """This process's, absolute, for the node has another directory; and this package, wherever it was imported from."""
    import shaketable

    root = str(Path(next(iter(shaketable.__path__))).parent)
    given = [str(Path(entry).absolute()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return os.pathsep.join(dict.fromkeys([*given, root]))
