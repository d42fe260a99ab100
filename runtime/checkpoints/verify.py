"""Reading committed checkpoints, every byte compared with the commit.

A difference is believed only when the storage gives it twice, and only while the run's own log is there: a bad read
must not condemn a good checkpoint, and a node that does not see the storage must not condemn anything.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shaketable.runtime.errors import CheckpointCorrupt
from shaketable.runtime.log.presence import check_presence
from shaketable.runtime.log.records import CheckpointCommitted
from shaketable.runtime.storage.file import File
from shaketable.runtime.storage.files import CHECKPOINTS, store_at
from shaketable.runtime.storage.hashing import Buffer, CannotWrite, each
from shaketable.runtime.storage.store import RunPath, checked

_READS = 2


def verify(run_path: RunPath, commit: CheckpointCommitted, run_id: str = "") -> None:
    """Read the whole checkpoint where it is stored. CheckpointCorrupt names the first file that differs; RunNotFound:
    this process does not see the run (`run_id`, where it is known)."""
    store = store_at(run_path)

    def check(file: File, buffer: Buffer) -> None:
        key = _key(commit, file)
        _believe(run_path, run_id, commit, file, lambda: store.checksum(key, file.size, buffer))

    each(commit.files, check, [file.size for file in commit.files])


def fetch(run_path: RunPath, commit: CheckpointCommitted, target: Path, run_id: str = "") -> None:
    """Copy a committed checkpoint into the new directory `target`, comparing every file with the commit. Raises as
    `verify`, and OSError where `target` cannot be written: what the storage says of its own files has other names."""
    store = store_at(run_path)

    def copy(file: File, buffer: Buffer) -> None:
        key, to = _key(commit, file), target / checked(file.path, run_path)

        def download() -> tuple[int, str]:
            again = to.exists()
            to.unlink(missing_ok=True)
            return store.download(key, to, file, buffer, again=again)

        _believe(run_path, run_id, commit, file, download)

    target.mkdir(parents=True)
    for directory in {(target / checked(file.path, run_path)).parent for file in commit.files}:
        directory.mkdir(parents=True, exist_ok=True)
    each(commit.files, copy, [file.size for file in commit.files])


def _key(commit: CheckpointCommitted, file: File) -> str:
    return f"{CHECKPOINTS}/{commit.checkpoint}/{file.path}"


def _believe(
    run_path: RunPath, run_id: str, commit: CheckpointCommitted, file: File, read: Callable[[], tuple[int, str]]
) -> None:
    """Compare what is read with the commit. Only a second reading makes a difference CheckpointCorrupt."""
    seen = ""
    for _ in range(_READS):
        try:
            size, checksum = read()
        except CannotWrite:
            raise
        except FileNotFoundError:
            seen = "no such file"
            continue
        if (size, checksum) == (file.size, file.checksum):
            return
        seen = f"{size} bytes, {checksum}"
    check_presence(run_path, run_id)
    expected = f"{file.size} bytes, {file.checksum}"
    raise CheckpointCorrupt(
        f"checkpoint {commit.checkpoint} is corrupt: {file.path!r} was committed with {expected}, read {_READS} times"
        f" and found: {seen}. Restore the file, or resume from an earlier commit",
        commit.checkpoint,
        file.path,
        expected,
        seen,
    )
