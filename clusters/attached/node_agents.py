"""What the harness does on the machines of a cluster that it did not start: by an actor without resources on each node,
pinned to it, which is there before it is needed (on a busy machine Ray takes ten seconds to start a process).

`python -m shaketable.clusters.attached.node_agents ADDRESS FD NODE...` is their driver, for as long as its standard
input is open. It answers each line of JSON with one on the descriptor FD (Ray itself writes to a driver's output,
unasked). What runs on the nodes is of its main module, so that it travels by value, and needs nothing that is not
Python's own.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from shaketable.clusters.protocol import ClusterError

READY_S = 90.0
# on a node that has joined since, the actor has to start first
DONE_S = 30.0
ANSWER_S = DONE_S + 15.0
END_S = 20.0
Action = Literal["kill", "gone", "kill_node", "stop_node", "sees", "put", "drop", "leave"]
# "put": the path and the text
Argument = Sequence[int] | Sequence[str] | str


class NodeAgents:
    """The harness's side."""

    def __init__(self, address: str, node_ids: Sequence[str]) -> None:
        self._lock, self._address = threading.Lock(), address
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `close`)
        read, write = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, address, str(write), *node_ids],
            stdin=subprocess.PIPE,
            stdout=self._said,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=[write],
            start_new_session=True,
            env=_environment(),
        )
        os.close(write)
        self._answers = os.fdopen(read)
        try:
            self._answer(READY_S)
        except BaseException:
            self.close()
            raise

    def on(self, node_id: str, action: Action, argument: Argument = ()) -> bool:
        """Done on that node, and what came of it. Raises ClusterError where it could not be done."""
        with self._lock:
            assert self._process.stdin is not None
            # then there is no answer either
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps([node_id, action, argument]) + "\n")
                self._process.stdin.flush()
            return bool(self._answer(ANSWER_S))

    def _answer(self, within_s: float) -> Any:
        readable, _, _ = select.select([self._answers], [], [], within_s)
        line = self._answers.readline() if readable else ""
        if not line:
            why = "ended" if readable else f"did not answer within {within_s:g} s"
            raise ClusterError(f"the harness's own driver on the cluster at {self._address} {why}: {self._last()}")
        said = json.loads(line)
        if "error" in said:
            raise ClusterError(said["error"])
        return said["came"]

    def _last(self) -> str:
        """Of what it printed."""
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def close(self) -> None:
        """It disconnects when its input ends, as any driver that is done."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
        self._said.close()


def _environment() -> dict[str, str]:
    import shaketable

    root = str(Path(next(iter(shaketable.__path__))).parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}


# ---- on the nodes


def act(action: Action, argument: Argument) -> bool:
    """Runs in a Ray worker of the node, whose parent is the raylet, and touches nothing that is not below it."""
    import os
    import signal
    from pathlib import Path

    def stat(pid: int) -> list[str]:
        """State, parent, ...; empty for a process that is gone."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return []
        return [] if fields[0] in "ZXx" else fields

    def family(root: int) -> list[int]:
        """The root first."""
        parents = {int(p.name): stat(int(p.name)) for p in Path("/proc").iterdir() if p.name.isdigit()}
        found = [root]
        for parent in found:
            found += [pid for pid, fields in parents.items() if fields and int(fields[1]) == parent]
        return found

    if action == "sees":
        return Path(str(argument)).exists()
    if action == "put":
        path, text = map(str, argument)
        written = Path(path).with_name(f".{Path(path).name}")
        written.write_text(text)
        written.rename(path)
        return True
    if action == "drop":
        Path(str(argument)).unlink(missing_ok=True)
        return True
    if action == "gone":
        return not any(stat(int(pid)) for pid in argument)
    raylet = os.getppid()
    if Path(f"/proc/{raylet}/comm").read_text().strip() != "raylet":
        raise RuntimeError(f"the parent of a Ray worker is process {raylet}, which is no raylet")
    below = family(raylet)
    pids = below if action in ("kill_node", "stop_node") else [int(pid) for pid in argument]
    if strangers := [pid for pid in pids if pid not in below]:
        raise RuntimeError(f"process {strangers[0]} is gone already, or not of this node")
    # itself last
    for pid in sorted(pids, key=lambda pid: pid == os.getpid()):
        os.kill(pid, signal.SIGSTOP if action == "stop_node" else signal.SIGKILL)
    return True


# ---- the driver


class ShaketableHand:
    def act(self, action: Action, argument: Argument) -> bool:
        return act(action, argument)


def main(address: str, answers: str, *node_ids: str) -> None:
    ray = importlib.import_module("ray")
    pinned = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    ray.init(address, log_to_driver=False, logging_level="ERROR")
    hand = ray.remote(num_cpus=0, max_restarts=0)(ShaketableHand)

    def start(node_id: str) -> Any:
        return hand.options(scheduling_strategy=pinned(node_id, soft=False)).remote()

    node_agents = {node_id: start(node_id) for node_id in node_ids}
    ray.get([each.act.remote("sees", "/") for each in node_agents.values()], timeout=READY_S)

    def done(node_id: str, action: Action, argument: Argument) -> bool:
        if action == "leave":
            # a node that drains waits for whoever is on it
            there = node_agents.pop(node_id, None)
            if there is not None:
                ray.kill(there)
            return there is not None
        if node_id not in node_agents:
            node_agents[node_id] = start(node_id)
        doing = node_agents[node_id].act.remote(action, argument)
        # Who ends or stops with its node cannot tell of it: others have to.
        return action in ("kill_node", "stop_node") or bool(ray.get(doing, timeout=DONE_S))

    with os.fdopen(int(answers), "w", buffering=1) as out:
        print(json.dumps({"came": True}), file=out)
        for line in sys.stdin:
            node_id, action, argument = json.loads(line)
            try:
                answer: dict[str, Any] = {"came": done(node_id, action, argument)}
            except ray.exceptions.RayError as error:
                last = (str(error).strip().splitlines() or [repr(error)])[-1]
                answer = {"error": f"{action} on node {node_id[:8]}: {last}"}
            print(json.dumps(answer), file=out)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
