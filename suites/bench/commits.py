"""What a commit costs once its uploads are done, which is one record of the run log; and whether it costs the same
after thousands of others. No cluster: the run log and the storage by themselves, as a driver uses them.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import obstore

from shaketable.runtime.checkpoints.store import delete, restore, upload
from shaketable.runtime.log.records import AttemptStarted, CheckpointDeleted, MemberRecord
from shaketable.runtime.log.run_log import RunLog, append_settled, open_run
from shaketable.runtime.log.run_state import checkpoint_name
from shaketable.runtime.storage.file import File
from shaketable.runtime.storage.files import CHECKPOINTS
from shaketable.runtime.storage.objects import ObjectPath
from shaketable.runtime.storage.store import RunPath
from shaketable.suites.bench.checkpoint_throughput import MIB, cp, fill, timed
from shaketable.suites.bench.figures import Sample
from shaketable.suites.bench.object_store import commit_of, s3_process, store_at
from shaketable.suites.bench.setting import Setting

# in a sample: its median
APPENDS = 30
BYTES = 1024 * MIB
MANY, SMALL_FILES, SMALL_BYTES, KEPT = 10_000, 16, 1024, 10
# a file system whose fsync costs nothing: what grows would be ours
MEMORY = Path("/dev/shm")
FILES = [File(path=f"shard-{n:03d}.bin", size=SMALL_BYTES, checksum=f"xxh3:{n:032x}") for n in range(SMALL_FILES)]


def local(setting: Setting, appends: int = APPENDS) -> Iterator[Sample]:
    """On the disk: from all uploads done to the durable record."""
    setting.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=setting.folder) as name:
        log, index = _begun(Path(name) / "run"), 0
        for _ in range(setting.repeat):
            times = [_append(log, index := index + 1) for _ in range(appends)]
            yield setting.sample("commit_ms", f"{SMALL_FILES} files, local storage", 1000 * statistics.median(times))


def in_object_store(setting: Setting, appends: int = APPENDS) -> Iterator[Sample]:
    """In round trips: over a plain put of as many bytes to the same server."""
    with s3_process() as bucket:
        log, store, index = _begun(ObjectPath(f"{bucket}/run")), store_at(bucket), 0
        for _ in range(setting.repeat):
            ours, trips = [], []
            for _ in range(appends):
                ours.append(_append(log, index := index + 1))
                began_s = time.perf_counter()
                obstore.put(store, f"trip-{index}", bytes(2048), use_multipart=False)
                trips.append(time.perf_counter() - began_s)
            ratio = statistics.median(ours) / statistics.median(trips)
            yield setting.sample("commit_round_trips", f"{SMALL_FILES} files, S3 server (moto)", ratio)


def growth(setting: Setting, count: int = MANY) -> Iterator[Sample]:
    """Upload, commit and deletion of the oldest: the last tenth of so many over the first. 1 is flat."""
    profile = f"{count} checkpoints of {SMALL_FILES} files of 1 KiB, {KEPT} kept, in memory"
    setting.folder.mkdir(parents=True, exist_ok=True)
    for _ in range(setting.repeat):
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else setting.folder) as name:
            times = _commits(Path(name), count)
        tenth = count // 10
        yield setting.sample("commit_growth_ratio", profile, sum(times[-tenth:]) / sum(times[:tenth]))


def restoring(setting: Setting, size: int = BYTES) -> Iterator[Sample]:
    """From the disk, against `cp`: above 1 is faster. (Neither has to be durable.)"""
    setting.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=setting.folder) as name:
        fill(Path(name, "source"), size, SMALL_FILES)
        run = Path(name, "run")
        (run / CHECKPOINTS).mkdir(parents=True)
        files = upload(Path(name, "source"), run / CHECKPOINTS / "one")
        for turn in range(setting.repeat):
            ours = timed(lambda _, to: restore(run, commit_of(files), to), run, Path(name, f"cache-{turn}"))
            theirs = timed(cp, run / CHECKPOINTS / "one", Path(name, f"cp-{turn}"))
            yield setting.sample(
                "restore_ratio_to_cp", f"{size // MIB} MiB in {SMALL_FILES} files, local storage", theirs / ours
            )


def _begun(run: RunPath) -> RunLog:
    log, _ = open_run(run, {"framework": "bench"})
    members = [MemberRecord(rank=0, node_id="n0")]
    append_settled(log, AttemptStarted(term=1, attempt=1, world_size=1, members=members, resume=None, first_index=1))
    return log


def _append(log: RunLog, index: int) -> float:
    record = commit_of(FILES, index, checkpoint_name(index, 1, 1))
    began_s = time.perf_counter()
    append_settled(log, record)
    return time.perf_counter() - began_s


def _commits(folder: Path, count: int) -> list[float]:
    fill(folder / "source", SMALL_FILES * SMALL_BYTES, SMALL_FILES)
    run = folder / "run"
    log, times = _begun(run), []
    for index in range(1, count + 1):
        name, old = checkpoint_name(index, 1, 1), checkpoint_name(index - KEPT, 1, 1)
        began_s = time.perf_counter()
        files = upload(folder / "source", run / CHECKPOINTS / name)
        append_settled(log, commit_of(files, index, name))
        if index > KEPT:
            append_settled(log, CheckpointDeleted(term=1, checkpoint=old))
            delete(run, [old])
        times.append(time.perf_counter() - began_s)
    return times
