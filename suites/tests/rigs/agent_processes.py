"""A run without Ray: the real driver, executor, agents, fork servers and workers; only the placement is another. Each
unit is one agent process of this machine; on nodes named in `BLIND`, with an empty disk mounted over the storage.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shaketable.runtime import ray_internals
from shaketable.runtime.agent.checkpoint_io import Place
from shaketable.runtime.agent.loop import AgentLoop, AgentSpec, Leave
from shaketable.runtime.controller import events as ev
from shaketable.runtime.driver import executor as executing
from shaketable.runtime.transport.wire import ChannelClosed, connect

STARTS_AGAIN_S = 0.5


class AgentProcesses:
    """In the place of `Leases`. Node n<k> has unit k."""

    blind: tuple[str, ...] = ()
    storage = folder = Path()

    def __init__(self, post: Callable[..., None], spec: AgentSpec, *_: Any) -> None:
        self._post, self._spec, self._agents = post, spec, 0
        # agent -> unit
        self._units: dict[int, int] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, guarded: object = None) -> None:
        self.look_at_nodes()

    def look_at_nodes(self) -> None:
        self._post(ev.NodesChanged(tuple(ev.NodeView(f"n{k}", alive=True) for k in range(1, 9)), ()))

    def request(self, unit: int, *_: object) -> None:
        self._post(ev.UnitPlaced(unit, (f"n{unit}",)))
        self._start_agent(unit)

    def _start_agent(self, unit: int, after_s: float = 0.0) -> None:
        self._agents += 1
        node, spec = f"n{unit}", replace(self._spec, agent=self._agents, unit=unit)
        self._units[spec.agent] = unit
        live = [sys.executable, "-m", __name__, node, str(self.folder / node), str(after_s), spec.host]
        live += [str(spec.port), spec.secret.hex(), str(spec.agent), str(unit)]
        hidden = f'mount -t tmpfs none {self.storage} && exec "$@"'
        command = ["unshare", "-m", "sh", "-c", hidden, "sh", *live] if node in self.blind else live
        self._processes[spec.agent] = subprocess.Popen(command, env={**os.environ})

    def retry(self, agent: int) -> None:
        self._start_agent(self._units[agent], STARTS_AGAIN_S)

    def lost(self, agent: int) -> None:
        """Probed when asked for."""

    def probe(self, unit: int) -> None:
        self._start_agent(unit)

    def release(self, unit: int) -> None:
        """Its agent leaves when it is told to."""

    def close(self, timeout_s: float) -> None:
        for process in self._processes.values():
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def without_ray(monkeypatch: pytest.MonkeyPatch, storage: Path, folder: Path, *blind: str) -> None:
    """From here on trainers run on agent processes; those of the nodes `blind` do not see the storage."""
    monkeypatch.setattr(AgentProcesses, "blind", blind)
    monkeypatch.setattr(AgentProcesses, "storage", storage)
    monkeypatch.setattr(AgentProcesses, "folder", folder)
    monkeypatch.setattr(executing, "Leases", AgentProcesses)
    monkeypatch.setattr(ray_internals, "node_ip", lambda: "127.0.0.1")
    monkeypatch.setattr("ray.is_initialized", lambda: True)


def main(node: str, folder: str, after_s: str, host: str, port: str, secret: str, agent: str, unit: str) -> None:
    time.sleep(float(after_s))
    spec = AgentSpec(host, int(port), bytes.fromhex(secret), int(agent), int(unit))
    try:
        AgentLoop(connect(host, spec.port, spec.secret), spec, Place(node, "127.0.0.1", Path(folder))).run()
    except (Leave, ChannelClosed, OSError) as error:
        print(f"agent {agent} on {node} leaves: {error}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
