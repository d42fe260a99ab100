"""Where a run is kept: a directory, a disk of its own, a bucket behind the gateway. Each is there while it is needed,
and nothing but files is left of it, however the harness ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import from_url

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment.configuration import configuration
from shaketable.chaos.faults import arming
from shaketable.chaos.faults.deny_writes import DenyWrites
from shaketable.chaos.faults.fill_disk import BALLAST, FillDisk
from shaketable.chaos.history.collector import Collector
from shaketable.chaos.injection.fault import Scene
from shaketable.chaos.injection.targets import ResolvedTarget
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.storage.place import DISK_BYTES, Storage, storage_for
from shaketable.clusters.protocol import ClusterError
from shaketable.suites.tests.rigs.disk import can_mount
from shaketable.suites.tests.rigs.plain_cluster import PlainCluster

WITHIN_S = 30.0


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    if not can_mount():
        pytest.skip("mounting takes root and the right to")
    directory = tmp_path / "storage"
    directory.mkdir()
    return directory


def wait_for(predicate: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + WITHIN_S
    while not predicate() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return predicate()


def scene_of(directory: Path, tmp_path: Path) -> Scene:
    collector = Collector(tmp_path / "witness")
    collector.close()
    drivers: Any = None
    return Scene(PlainCluster(0), collector, drivers, tmp_path, Storage(str(directory), directory))


def test_a_bucket_is_reached_through_the_gateway_and_the_environment_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("moto")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "my own")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with storage_for(Configuration(storage="s3"), tmp_path) as storage:
        assert storage.directory is None and storage.gateway is not None
        assert os.environ["AWS_ACCESS_KEY_ID"] == "shaketable"
        endpoint = os.environ["AWS_ENDPOINT_URL"]
        assert endpoint == os.environ["AWS_ENDPOINT_URL_S3"] == storage.gateway.endpoint
        store = from_url(storage.path, client_options={"allow_http": True}, config={"endpoint": endpoint})
        obstore.put(store, "log/1", b"x")
        assert bytes(obstore.get(store, "log/1").bytes()) == b"x" and storage.gateway.requests == 2
    assert os.environ["AWS_ACCESS_KEY_ID"] == "my own" and "AWS_ENDPOINT_URL" not in os.environ
    with pytest.raises(BaseError):
        obstore.get(store, "log/1")


def test_a_disk_is_small_and_its_files_stay_where_it_was(disk: Path) -> None:
    with storage_for(Configuration(storage="disk"), disk) as storage:
        assert disk.is_mount() and storage.path == str(disk)
        assert os.statvfs(disk).f_blocks * os.statvfs(disk).f_frsize == DISK_BYTES
        (disk / "run").mkdir()
        (disk / "run" / "1.json").write_text("{}")
    assert not disk.is_mount() and (disk / "run" / "1.json").read_text() == "{}"
    assert [path.name for path in disk.parent.iterdir()] == ["storage"]


def test_a_full_disk_takes_no_byte_until_it_is_healed(disk: Path, tmp_path: Path) -> None:
    fault, hit = FillDisk(), ResolvedTarget()
    with storage_for(Configuration(storage="disk"), disk):
        scene = scene_of(disk, tmp_path)
        assert fault.observe(scene, hit) is None
        fault.inject(scene, hit)
        assert fault.observe(scene, hit) == "0 of 64 MiB free"
        with pytest.raises(OSError, match="No space left"):
            (disk / "record").write_bytes(b"x")
        fault.heal(scene, hit)
        (disk / "record").write_bytes(b"x")


def test_only_a_disk_of_its_own_is_filled(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no disk of its own"):
        FillDisk().inject(scene_of(tmp_path, tmp_path), ResolvedTarget())
    assert not (tmp_path / BALLAST).exists()


def test_without_the_right_to_write_nothing_new_is_taken_until_it_is_healed(tmp_path: Path) -> None:
    log = tmp_path / "storage" / "run" / "log"
    log.mkdir(parents=True)
    (log / "1").write_text("one")
    fault, hit, scene = DenyWrites(), ResolvedTarget(), scene_of(tmp_path / "storage", tmp_path)
    assert fault.observe(scene, hit) is None
    fault.inject(scene, hit)
    try:
        assert "2 directories" in (fault.observe(scene, hit) or "")
        with pytest.raises(PermissionError):
            (log / "2").write_text("two")
        with pytest.raises(PermissionError):
            (log / "1").unlink()
        assert (log / "1").read_text() == "one"
    finally:
        fault.heal(scene, hit)
    (log / "2").write_text("two")
    # once more does nothing
    fault.heal(scene, hit)


KILLED = """
import sys, time
from pathlib import Path
from typing import Any
from shaketable.chaos.plan import Configuration
from shaketable.chaos.storage.place import storage_for
with storage_for(Configuration(storage="disk"), Path(sys.argv[1])):
    print("mounted", flush=True)
    time.sleep(60)
"""


def test_a_disk_is_unmounted_when_the_harness_is_killed(disk: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(disk)], stdout=subprocess.PIPE) as harness:
        assert harness.stdout is not None and harness.stdout.readline() == b"mounted\n"
        assert disk.is_mount()
        harness.send_signal(signal.SIGKILL)
    assert wait_for(lambda: not disk.is_mount())


def test_a_fault_that_cannot_land_in_this_storage_is_refused_before_anything_is_done() -> None:
    plan = Plan("t", Configuration(), (FaultPlan("hurt_storage", None, {"step": 1}),), Expect())
    with pytest.raises(ExperimentError, match="lands where a run is kept in storage: s3, not directory"):
        arming.arm(plan)


def test_a_storage_that_is_not_known_is_refused() -> None:
    with pytest.raises(ExperimentError, match="'gcs' is not known"):
        configuration({"storage": "gcs"})
