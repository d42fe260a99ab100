"""The process tree (docs/architecture.md), with real processes: nobody outlives his agent."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shaketable.runtime.agent.loop import start_server
from shaketable.runtime.transport import messages as msg
from shaketable.runtime.transport import wire
from shaketable.runtime.transport.wire import Channel

READY_WITHIN_S = 60.0
# An agent reduced to its process tree: a fork server, one worker, and a grandchild that has left the worker's session.
_AGENT = """
import os, pickle, subprocess, sys, json
import cloudpickle
from shaketable.runtime.transport import messages as msg, wire
from shaketable.runtime.backends.base import Backend
from shaketable.runtime.transport.wire import Channel

def train():
    import subprocess, time, os, json
    grandchild = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    open(sys.argv[1] + ".tmp", "w").write(json.dumps([os.getpid(), grandchild.pid]))
    os.rename(sys.argv[1] + ".tmp", sys.argv[1])
    if len(sys.argv) > 2:
        return
    while True:
        signal.pause()

import signal
target = sys.argv[1]
finish = len(sys.argv) > 2
def function(target=target, finish=finish):
    import sys
    sys.argv = ["x", target] + (["finish"] if finish else [])
    train()

ours, theirs = wire.pair()
# imported, not run as the main module, so that a mutant can be planted in it
main = "from shaketable.runtime.agent import forkserver; forkserver.main()"
command = [sys.executable, "-c", main, str(theirs.fileno()), str(os.getpid())]
server = subprocess.Popen(command, pass_fds=[theirs.fileno()])
theirs.close()
forks = Channel(ours)
def until(kind):
    while True:
        forks.wait(None)
        for message in forks.receive():
            if isinstance(message, kind):
                return message
forks.send(msg.Warm(preload=["shaketable.runtime.agent.worker"], sys_path=sys.path))
until(msg.Ready)
mine, child = wire.pair()
forks.send_with_fd(msg.ForkChild(attempt=1), child.fileno())
child.close()
fork = msg.Fork(term=1, attempt=1, rank=0, world_size=1, local_rank=0, local_world_size=1, node_rank=0, first_index=1,
                resume=None)
worker = Channel(mine)
worker.send(msg.Task(fork=fork, task=cloudpickle.dumps((Backend(), function, None)), name="t", node_id="n",
                     node_ip="127.0.0.1", run_path="/tmp", staging="/tmp"))
worker.drain()
print(json.dumps([server.pid, until(msg.Forked).pid]), flush=True)
entering = []
while not any(isinstance(message, msg.Contribution) for message in entering):
    worker.wait(None)
    entering += worker.receive()
worker.send(msg.Delivery(attempt=1, round=1, data=b""))
print(until(msg.Reaped).status, flush=True)
sys.stdin.read()
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: object, name: str, deadline_s: float) -> None:
    assert callable(condition)
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"{name}: not within {deadline_s} s"
        time.sleep(0.005)


class Tree:
    """The agent, its fork server, the worker and the grandchild, all running."""

    def __init__(self, directory: Path, *, finish: bool = False) -> None:
        said = directory / "pids"
        command = [sys.executable, "-c", _AGENT, str(said), *(["finish"] if finish else [])]
        self.agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.agent.stdout is not None
        self.guard, self.worker = json.loads(self.agent.stdout.readline())
        self.server = int(Path(f"/proc/{self.worker}/stat").read_text().rsplit(")", 1)[1].split()[1])
        wait_until(said.exists, "the worker is in its function", 20)
        pid, self.grandchild = json.loads(said.read_text())
        assert pid == self.worker

    def reaped(self) -> int:
        """Waits for the fork server's word that the worker and all below it are gone; its wait status."""
        assert self.agent.stdout is not None
        return int(self.agent.stdout.readline())

    def alive(self) -> list[int]:
        return [pid for pid in (self.guard, self.server, self.worker, self.grandchild) if alive(pid)]


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    tree = Tree(tmp_path)
    yield tree
    tree.agent.kill()
    tree.agent.wait()
    for pid in tree.alive():
        os.kill(pid, signal.SIGKILL)


def test_nothing_of_an_agent_is_alive_a_second_after_it_was_sigkilled(tree: Tree) -> None:
    assert len(tree.alive()) == 4
    tree.agent.kill()
    wait_until(lambda: not tree.alive(), "guard, fork server, worker and grandchild are gone", 1.0)


def test_a_killed_worker_takes_its_grandchild_along_before_it_counts_as_reaped(tree: Tree) -> None:
    os.kill(tree.worker, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(tree.reaped()) == -signal.SIGKILL
    assert tree.alive() == [tree.guard, tree.server]


@pytest.mark.parametrize("which", ["server", "guard"])
def test_all_below_it_die_with_a_fork_server_or_its_guard(tree: Tree, which: str) -> None:
    os.kill(getattr(tree, which), signal.SIGKILL)
    wait_until(lambda: not tree.alive(), "guard, fork server, worker and grandchild are gone", 1.0)


def test_nothing_is_alive_a_second_after_agent_and_fork_server_were_killed_together(tree: Tree) -> None:
    # so that it does nothing more
    os.kill(tree.server, signal.SIGSTOP)
    tree.agent.kill()
    # unless its guard was quicker
    with contextlib.suppress(ProcessLookupError):
        os.kill(tree.server, signal.SIGKILL)
    wait_until(lambda: not tree.alive(), "guard, worker and grandchild are gone", 1.0)


def test_a_fork_server_that_stands_still_does_not_outlive_its_agent(tree: Tree) -> None:
    os.kill(tree.server, signal.SIGSTOP)
    tree.agent.kill()
    wait_until(lambda: not tree.alive(), "guard, fork server, worker and grandchild are gone", 1.0)


def test_a_worker_that_finishes_leaves_no_grandchild(tmp_path: Path) -> None:
    tree = Tree(tmp_path, finish=True)
    assert os.waitstatus_to_exitcode(tree.reaped()) == 0
    assert tree.alive() == [tree.guard, tree.server]
    tree.agent.kill()
    tree.agent.wait()
    wait_until(lambda: not tree.alive(), "the fork server is gone", 1.0)


def test_a_fork_server_imports_what_only_its_own_node_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """On another machine the driver's folders may not be there."""
    import shaketable

    monkeypatch.setenv("PYTHONPATH", str(Path(next(iter(shaketable.__path__))).parent))
    ours, theirs = wire.pair()
    server = start_server(theirs.fileno(), ["/nowhere"])
    theirs.close()
    forks = Channel(ours)
    try:
        forks.send(msg.Warm(preload=["shaketable.runtime.agent.worker"], sys_path=["/nowhere"]))
        forks.wait(READY_WITHIN_S)
        assert [type(message) for message in forks.receive()] == [msg.Ready]
    finally:
        ours.close()
        server.kill()
        server.wait(READY_WITHIN_S)
