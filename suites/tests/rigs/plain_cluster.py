"""A cluster of plain processes, for tests of the harness that need no Ray: a node is a process with a child, both real
and both mortal, and its own view of a node is whether they live. Workers and drivers are real processes as well."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from shaketable.chaos import procfs
from shaketable.clusters.own_nodes import put
from shaketable.clusters.protocol import LOOPBACK, ClusterError, Cut, Node, NodeState, Shape, Unsupported, Way

# dozens of them a second: without packages an interpreter is there in a third of the time
PYTHON = (sys.executable, "-S", "-c")
# its child is called what the kernel calls a raylet
NODE = """
import os, time
if os.fork():
    os.wait()
else:
    open("/proc/self/comm", "w").write("raylet")
    time.sleep(600)
"""
LOOK_S = 0.005
SLEEPER = "import time; print(flush=True); time.sleep(600)"


def sleeper() -> subprocess.Popen[bytes]:
    """Up when it is returned: a signal in the middle of an interpreter's start ends it otherwise than it should."""
    process = subprocess.Popen([*PYTHON, SLEEPER], start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def ignoring(sig: str) -> subprocess.Popen[bytes]:
    code = f"import signal, time; signal.signal(signal.{sig}, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    process = subprocess.Popen([*PYTHON, code], start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


class PlainCluster:
    kind = "plain"
    address = "nowhere"
    host = LOOPBACK
    sees_processes, has_newcomers, pods = True, False, None

    def __init__(self, nodes: int) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._pids: dict[int, list[int]] = {}
        self._draining: set[int] = set()
        self.left: list[str] = []
        # by themselves
        self.come: list[Node] = []
        for _ in range(nodes):
            self.add_node()

    def nodes(self) -> list[Node]:
        return [self.node(number) for number in self._processes if self.state(number) != "dead"]

    def node(self, number: int) -> Node:
        if number not in self._processes:
            raise ClusterError(f"there is no node {number}")
        return Node(number, f"hex{number}")

    def add_capacity(self, slice_: int | None = None, tier: str = "", host: int | None = None) -> list[Node]:
        assert slice_ is None, "there are no slices here"
        return [self.add_node()]

    def add_node(self) -> Node:
        number = len(self._processes) + 1
        process = subprocess.Popen([*PYTHON, NODE], start_new_session=True)
        self._processes[number] = process
        children = f"/proc/{process.pid}/task/{process.pid}/children"
        deadline_s = time.monotonic() + 60
        while not (child := open(children).read().split()) or procfs.name(int(child[0])) != "raylet":  # noqa: SIM115, PTH123
            assert time.monotonic() < deadline_s, "the node's child did not come"
            time.sleep(LOOK_S)
        self._pids[number] = [process.pid, *map(int, child)]
        return self.node(number)

    def newcomers(self) -> list[Node]:
        come, self.come = self.come, []
        return come

    def check_shared(self, directory: str) -> None:
        """One machine."""

    def first_pid(self, number: int) -> int | None:
        return self._processes[number].pid

    def on_machine(self, number: int, command: Sequence[str]) -> str:
        raise Unsupported(f"node {number} is a process of this machine")

    def cut_off(self, number: int, way: Way, share: float = 1.0) -> Cut:
        raise Unsupported(f"node {number} is a process of this machine")

    def kill_process(self, node_id: str, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    def process_gone(self, node_id: str, pid: int) -> bool:
        return procfs.gone(pid)

    def node_stopped(self, number: int) -> bool:
        pids = self.pids(number)
        return bool(pids) and all(map(procfs.stopped, pids))

    def put_file(self, node_id: str, path: Path, text: str) -> None:
        put(path, text)

    def has_file(self, node_id: str, path: Path) -> bool:
        return path.exists()

    def drop_file(self, node_id: str, path: Path) -> None:
        path.unlink(missing_ok=True)

    def pids(self, number: int) -> list[int]:
        return [pid for pid in self._pids[number] if not procfs.gone(pid)]

    def signal_node(self, number: int, sig: signal.Signals) -> list[int]:
        pids = self.pids(number)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)
        return pids

    def drain_node(self, number: int, deadline_s: float) -> None:
        self._draining.add(number)

    def state(self, number: int) -> NodeState:
        if not self.pids(number):
            return "dead"
        return "draining" if number in self._draining else "alive"

    def wait_state(self, number: int, state: NodeState, timeout_s: float) -> float:
        raise NotImplementedError

    def leftovers(self) -> list[str]:
        return list(self.left)

    def close(self) -> None:
        for number, process in self._processes.items():
            self.signal_node(number, signal.SIGKILL)
            process.wait(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PlainPool:
    """One cluster for each borrower."""

    def __init__(self) -> None:
        self.released = 0

    @contextlib.contextmanager
    def borrow(self, shape: Shape, *, faultless: bool = False) -> Iterator[PlainCluster]:
        with PlainCluster(shape.nodes) as cluster:
            try:
                yield cluster
            finally:
                self.released += 1
