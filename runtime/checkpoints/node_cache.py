"""Committed checkpoints on the nodes: fetched once per node, verified, published whole, kept across attempts.

A cached directory is handed to every worker of the node. One that somebody has changed since (the times or sizes of
its files tell) is fetched anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shaketable.runtime.checkpoints.node_disk import patient
from shaketable.runtime.checkpoints.verify import fetch
from shaketable.runtime.errors import StorageError
from shaketable.runtime.log.records import CheckpointCommitted
from shaketable.runtime.storage.retries import retrying
from shaketable.runtime.storage.store import RunPath

# for another process of this node to restore the same run
RESTORE_TIMEOUT_S = 1800.0
_POLL_S = 0.005
# the one asked for and the one before: a cache that keeps all fills the disk of the node
_KEPT = 2
_RESTORING = ".restoring-"
# the time that fetched files bear (2001); who writes to one changes it
_FETCHED_NS = 1_000_000_000_000_000_000
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def restore(
    run_path: RunPath,
    commit: CheckpointCommitted,
    cache_dir: Path,
    *,
    run_id: str = "",
    timeout_s: float = RESTORE_TIMEOUT_S,
) -> Path:
    """The checkpoint as a local directory, every file compared with the commit. Later calls return the same one.

    CheckpointCorrupt: the storage has something else than was committed. StorageUnavailable: the storage has failed for
    too long. NodeUnfit: this node does not see the run, or its own disk has failed for too long.
    """
    cache = cache_dir / _key(run_path)
    published = cache / f"{commit.checkpoint}-{_content(commit)}"

    def once() -> Path:
        if not _is_whole(published, commit):
            cache.mkdir(parents=True, exist_ok=True)
            with _alone(cache, timeout_s):
                if not _is_whole(published, commit):
                    _publish(run_path, commit, cache, published, run_id)
        return published

    return retrying("restore", patient(cache, once))


def _publish(run_path: RunPath, commit: CheckpointCommitted, cache: Path, published: Path, run_id: str) -> None:
    # of a process that was killed: only we hold the lock
    for stale in cache.glob(_RESTORING + "*"):
        shutil.rmtree(stale)
    fetched = cache / f"{_RESTORING}{uuid.uuid4().hex}"
    try:
        fetch(run_path, commit, fetched, run_id)
        for file in commit.files:
            os.utime(fetched / file.path, ns=(_FETCHED_NS, _FETCHED_NS))
        _evict(cache, published)
        fetched.rename(published)
    finally:
        shutil.rmtree(fetched, ignore_errors=True)


def _evict(cache: Path, published: Path) -> None:
    others = [path for path in cache.iterdir() if path.is_dir() and path != published and path.name[0] != "."]
    newest_first = sorted(others, key=lambda path: path.name, reverse=True)
    for old in [published, *newest_first[_KEPT - 1 :]]:
        if old.exists():
            shutil.rmtree(old)


def _is_whole(published: Path, commit: CheckpointCommitted) -> bool:
    """Published, and nobody has touched its files since."""
    try:
        stats = [(published / file.path).stat() for file in commit.files]
    except FileNotFoundError:
        return False
    same = (
        stat.st_size == file.size and stat.st_mtime_ns == _FETCHED_NS
        for stat, file in zip(stats, commit.files, strict=True)
    )
    return published.is_dir() and all(same)


def _content(commit: CheckpointCommitted) -> str:
    """A run that was removed and begun again uses the same names for other bytes."""
    listed = "\0".join(f"{file.path}\0{file.size}\0{file.checksum}" for file in commit.files)
    return hashlib.sha256(listed.encode()).hexdigest()[:16]


def _key(run_path: RunPath) -> str:
    """Never another run's cache, nor one from before a power cut, which may have torn files (they are not synced)."""
    boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
    place = run_path.resolve() if isinstance(run_path, Path) else run_path
    return hashlib.sha256(f"{place}\0{boot}".encode()).hexdigest()[:32]


@contextmanager
def _alone(cache: Path, timeout_s: float) -> Iterator[None]:
    """One process of this node at a time. The lock goes with its holder, however that dies."""
    deadline_s = time.monotonic() + timeout_s
    with (cache / ".lock").open("ab") as file:
        while not _locked(file.fileno()):
            if time.monotonic() > deadline_s:
                raise StorageError(
                    f"waited {timeout_s:g} s for another process of this node to restore into {cache};"
                    " check whether the storage is slow or that process hangs"
                )
            time.sleep(_POLL_S)
        yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
