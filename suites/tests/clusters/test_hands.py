"""What the harness's actor does on a node, without Ray: below a process that is called raylet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shaketable.clusters import marked
from shaketable.clusters.attached.node_agents import act

GONE_WITHIN_S = 20.0

# A raylet with a worker that leads a session of its own and has a child there, and whoever does the deed.
RAYLET = """
import subprocess, sys, time
sleep = "import time; time.sleep(600)"
begin = f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {sleep!r}])"
parent = f"{begin}; print(child.pid, flush=True); child.wait()"
worker = subprocess.Popen([sys.executable, "-c", parent], start_new_session=True, stdout=subprocess.PIPE, text=True)
print(worker.pid, worker.stdout.readline().strip(), flush=True)
for line in sys.stdin:
    code = f"from shaketable.clusters.attached.node_agents import act; print(act({line.strip()}), flush=True)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout.strip().splitlines()[-1], flush=True)
"""


class Node:
    def __init__(self, folder: Path, name: str = "raylet") -> None:
        (folder / name).symlink_to(sys.executable)
        # by its link it does not find its own environment
        paths = os.pathsep.join(sys.path)
        self.raylet = subprocess.Popen(
            [str(folder / name), "-c", RAYLET],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        assert self.raylet.stdin is not None and self.raylet.stdout is not None
        self._ask, self._answers = self.raylet.stdin, self.raylet.stdout
        self.worker, self.child = map(int, self._answers.readline().split())

    def act(self, action: str, argument: object = ()) -> str:
        self._ask.write(f"{action!r}, {argument!r}\n")
        self._ask.flush()
        return self._answers.readline().strip()

    def close(self) -> None:
        for pid in (self.worker, self.child, self.raylet.pid):
            if not marked.gone(pid):
                os.kill(pid, signal.SIGKILL)
        self.raylet.wait()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.close()


def gone(*pids: int) -> bool:
    deadline = time.monotonic() + GONE_WITHIN_S
    while not all(map(marked.gone, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return all(map(marked.gone, pids))


def test_a_worker_of_the_node_is_killed_and_nothing_else(node: Node) -> None:
    assert node.act("gone", [node.child]) == "False"
    assert node.act("kill", [node.child]) == "True"
    assert gone(node.child) and not marked.gone(node.raylet.pid)
    assert node.act("gone", [node.child]) == "True"
    assert node.act("kill", [node.child]).endswith(f"process {node.child} is gone already, or not of this node")


def test_what_is_not_below_the_raylet_is_refused(node: Node) -> None:
    said = node.act("kill", [node.worker, os.getpid()])
    assert said.endswith(f"process {os.getpid()} is gone already, or not of this node")
    assert not marked.gone(node.worker)


def test_a_node_is_killed_with_all_that_is_below_its_raylet(node: Node) -> None:
    assert node.act("kill_node") == ""
    assert gone(node.raylet.pid, node.worker, node.child)


def test_where_no_raylet_is_nothing_is_killed(tmp_path: Path) -> None:
    node = Node(tmp_path, "bash")
    try:
        assert node.act("kill_node").endswith("which is no raylet")
        assert not marked.gone(node.worker)
    finally:
        node.close()


def test_a_node_says_whether_it_sees_a_directory(tmp_path: Path) -> None:
    assert act("sees", str(tmp_path)) and not act("sees", str(tmp_path / "nowhere"))


def test_a_file_is_left_on_the_node_whole_and_taken_away_again(tmp_path: Path) -> None:
    asked = tmp_path / "hang-7"
    assert act("put", [str(asked), "python"]) and act("sees", str(asked))
    assert [path.name for path in tmp_path.iterdir()] == ["hang-7"] and asked.read_text() == "python"
    assert act("drop", str(asked)) and not act("sees", str(asked))
    assert act("drop", str(asked)), "it may have been taken meanwhile"
