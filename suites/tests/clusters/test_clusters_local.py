"""What only the local cluster promises: several side by side, marked processes, a watchdog, and clear refusals."""

from __future__ import annotations

import functools
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from shaketable.clusters import machine, marked, versions
from shaketable.clusters.local import cluster as local
from shaketable.clusters.local import node
from shaketable.clusters.local.cluster import LocalCluster
from shaketable.clusters.local.pool import ClusterPool
from shaketable.clusters.protocol import ClusterError, Shape
from shaketable.clusters.watchdog import Watchdog, harness_lives
from shaketable.suites.tests.rigs.autoscaling_cluster import autoscaling_cluster
from shaketable.suites.tests.rigs.local_clusters import UNREAD

GONE_S = 30.0
SLEEP = "import time; time.sleep(600)"
# A child that leads its own session and has lost its parent, and one more that also cleared its environment.
ORPHANS = f"""
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=True)
child = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {SLEEP!r}], env={{}}); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
"""


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def mark() -> Iterator[str]:
    mark = f"test-{os.getpid()}-{time.monotonic_ns()}:"
    yield mark
    marked.kill_all(mark)


def run_orphans(mark: str) -> None:
    """Under a mark, start three processes that outlive their parent, and wait until all three are found."""
    subprocess.run([sys.executable, "-c", ORPHANS], env={**os.environ, marked.MARK: f"{mark}1"}, check=True)
    assert within(GONE_S, lambda: len(marked.find(mark)) == 3)


def test_processes_are_found_after_setsid_and_without_parent_and_without_environment(mark: str) -> None:
    run_orphans(mark)
    assert len(marked.find(f"{mark}1")) == 3
    assert marked.find(f"{mark}11") == {}, "node 11 is not node 1"


def test_sigstop_stops_all_and_sigkill_ends_the_stopped(mark: str) -> None:
    run_orphans(mark)
    stopped = marked.stop_all(f"{mark}1")
    assert [one.state for one in marked.find(mark).values()] == ["T", "T", "T"]
    assert sorted(marked.kill_all(mark)) == sorted(stopped)
    assert marked.find(mark) == {}


def test_the_watchdog_cleans_up_when_its_pipe_ends(mark: str, tmp_path: Path) -> None:
    run_orphans(mark)
    directory = tmp_path / "cluster"
    directory.mkdir()
    Watchdog(mark, directory).close()
    assert marked.find(mark) == {}
    assert not directory.exists()


def test_the_harness_lives_until_its_pipe_ends_or_it_is_no_longer_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert harness_lives(os.getppid(), 0.0)
        assert not harness_lives(os.getpid(), 0.0), "a fork of it holds the pipe open"
        os.close(writing)
        assert not harness_lives(os.getppid(), GONE_S)


# What `ray start` does, without Ray. A head says where it listens; the first one gives up when somebody looks whether
# it is alive. A worker node comes up where it was told of the second.
AS_RAY_START = """
import pathlib, sys, time
here, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
if "--head" in arguments:
    given_up = here.parent / "given-up"
    first = not given_up.exists()
    given_up.touch()
    (here / "session_2").mkdir()
    (here / "session_2" / "gcs_server_port_1").write_text("1001" if first else "1002")
    while first:
        if (here.parent / "looked").exists():
            sys.exit(TOO_SLOW)
        time.sleep(0.01)
if "--head" in arguments or arguments[0].endswith(":1002"):
    (here / "up").touch()
time.sleep(600)
"""


class SeenAsUp:
    """Instead of Ray's own view."""

    directory = Path()

    def __init__(self, address: str) -> None:
        pass

    def nodes(self) -> list[SimpleNamespace]:
        (self.directory / "looked").touch()
        up = [file.parent for file in self.directory.glob("*/up")]
        return [SimpleNamespace(temp_dir=str(at), node_id=f"node-{at.name}", state="alive") for at in up]


def test_nodes_begin_again_with_a_head_that_gave_up(monkeypatch: pytest.MonkeyPatch) -> None:
    program = f"TOO_SLOW = {node.TOO_SLOW!r}{AS_RAY_START}"
    started: list[int] = []

    def start(
        number: int, mark: str, directory: Path, arguments: list[str], extra: Mapping[str, str]
    ) -> node.NodeProcess:
        directory.mkdir(parents=True)
        with (directory / node.LOG).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-S", "-c", program, str(directory), *arguments],
                stderr=log,
                env=node.environment(mark, extra),
                start_new_session=True,
            )
        started.append(number)
        monkeypatch.setattr(SeenAsUp, "directory", directory.parent)
        return node.NodeProcess(number, mark, directory, process, arguments)

    monkeypatch.setattr(node, "start", start)
    monkeypatch.setattr(local, "RayView", SeenAsUp)
    monkeypatch.setattr(local, "NODE_ALIVE_S", 10.0)
    with LocalCluster(Shape(nodes=2)) as cluster:
        assert cluster.address.endswith(":1002")
        assert [(one.number, one.node_id) for one in cluster.nodes()] == [(1, "node-1"), (2, "node-2")]
        assert len(marked.find(f"{cluster.id}:")) == 3
    assert started == [0, 1, 2, 0, 1, 2]


HARNESS = """
import sys
from shaketable.clusters.local.cluster import LocalCluster
from shaketable.clusters.protocol import Shape
cluster = LocalCluster(Shape(nodes=0))
print(cluster.id, cluster.directory, flush=True)
sys.stdin.read()
"""


def test_nothing_is_left_of_a_cluster_whose_harness_dies() -> None:
    """By SIGKILL; by Ctrl-C, and with nodes, in `test_clusters_processes.py`: the watchdog is the same."""
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert harness.stdout is not None
    identity, directory = harness.stdout.readline().split()
    assert len(marked.find(f"{identity}:")) > 5
    harness.kill()
    harness.communicate()
    assert within(GONE_S, lambda: not marked.find(f"{identity}:") and not Path(directory).exists())


def test_a_pool_gives_a_clean_cluster_of_the_right_size_and_throws_a_dirty_one_away() -> None:
    with ClusterPool(functools.partial(LocalCluster, arguments=UNREAD)) as pool:
        with pool.borrow(Shape(nodes=0)) as cluster:
            first = cluster.id
        with pool.borrow(Shape(nodes=1)) as cluster:
            assert (cluster.id, len(cluster.nodes())) == (first, 1)
        with pool.borrow(Shape(nodes=0)) as cluster:
            assert (cluster.id, len(cluster.nodes()), cluster.defects()) == (first, 0, [])
            stray = subprocess.Popen([sys.executable, "-c", SLEEP], env={**os.environ, marked.MARK: f"{first}:0"})
        assert stray.wait(GONE_S) == -signal.SIGKILL
        with pool.borrow(Shape(nodes=0)) as cluster:
            assert cluster.id != first
            last = cluster
        assert last.pids(0) != []
        pool.close_idle()
        assert last.pids(0) == []


DEMANDING = """
import sys, ray
ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
group = ray.util.placement_group([{"CPU": 1}])
assert ray.util.get_current_placement_group() is None
ray.get(group.ready(), timeout=90)
"""


@pytest.mark.on_demand
def test_a_pending_placement_group_makes_the_autoscaling_cluster_grow() -> None:
    with autoscaling_cluster(most_nodes=1) as address:
        subprocess.run([sys.executable, "-c", DEMANDING, address], check=True, timeout=120)


def test_a_node_that_cannot_start_is_named_with_the_end_of_its_log() -> None:
    broken = {"RAY_health_check_period_ms": "not a number"}
    with pytest.raises(ClusterError, match="node 0"):
        LocalCluster(Shape(nodes=0), environment=broken)


def test_a_directory_that_holds_something_is_refused_and_kept(tmp_path: Path) -> None:
    full = Path(f"/tmp/shk-test-{os.getpid()}")
    full.mkdir()
    (full / "precious").touch()
    with pytest.raises(ClusterError, match="is not empty"):
        machine.prepare(full)
    (full / "precious").unlink()
    full.rmdir()


def test_a_directory_too_long_for_sockets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="too long for Ray's Unix sockets"):
        machine.prepare(tmp_path / ("x" * 60))


def test_a_full_disk_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "FREE_BYTES_NEEDED", 10**18)
    with pytest.raises(ClusterError, match="free some space"):
        machine.prepare(None)


def test_the_directory_of_a_cluster_is_not_in_a_virtualenv_where_ray_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(root := Path(tempfile.mkdtemp(dir="/tmp"))))
    for virtualenv, inside in ((root, False), (tmp_path, True)):
        monkeypatch.setenv("VIRTUAL_ENV", str(virtualenv))
        made = machine.prepare(None)
        assert made.is_relative_to(root) == inside
        made.rmdir()
    root.rmdir()


def test_too_few_open_files_are_refused_with_the_command_that_helps() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        with pytest.raises(ClusterError, match="ulimit -n 65536"):
            machine.check_open_files()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_ray_outside_the_tested_range_is_refused() -> None:
    assert [versions.supports(version) for version in ("2.59.1", "2.60.0", "2.60.3", "2.61.0", "3.0.0")] == [
        False,
        True,
        True,
        False,
        False,
    ]


def test_a_missing_ray_is_refused_with_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed_ray", lambda: None)
    with pytest.raises(ClusterError, match=r'pip install "ray>=2.60,<2.61"'):
        versions.check_ray()


@pytest.mark.on_demand
def test_a_node_that_ray_gave_too_little_time_to_start_is_started_again() -> None:
    """`ray start` gives its raylet 30 s to be seen: here that stands still for longer, as on a machine without air."""
    with LocalCluster(Shape(nodes=1)) as cluster, ThreadPoolExecutor(1) as pool:
        joining = pool.submit(cluster.add_node)

        def frozen() -> bool:
            raylets = [pid for pid in marked.find(f"{cluster.id}:2") if marked.name(pid) == "raylet"]
            for pid in raylets:
                os.kill(pid, signal.SIGSTOP)
            return bool(raylets)

        assert within(GONE_S, frozen)
        node = joining.result(timeout=local.NODE_ALIVE_S)
        assert cluster.state(node.number) == "alive"
        assert "stray" not in "".join(cluster.defects())


def test_a_node_that_a_busy_machine_could_not_start_says_so() -> None:
    log = "RuntimeError: The current node timed out during startup. This could happen because ..."
    assert "the machine is too busy" in node.hint(log) and "--var nodes=2" in node.hint(log)
    assert node.hint("something else") == "The end of its log:"
