"""Checkpoint directories: into the storage, onto the nodes, and away again.

Readers believe only the run log: a directory is a checkpoint once a record lists its files with their checksums.
So nothing here says what is committed; it moves bytes, makes them durable, and compares them with such a record.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from shaketable.runtime.checkpoints.node_cache import restore
from shaketable.runtime.checkpoints.verify import verify
from shaketable.runtime.errors import StorageError, StorageUnavailable
from shaketable.runtime.storage.file import File
from shaketable.runtime.storage.files import CHECKPOINTS, store_at
from shaketable.runtime.storage.hashing import reading
from shaketable.runtime.storage.store import Check, RunPath, Source, checked

__all__ = ["delete", "left_of", "restore", "stage", "upload", "verify"]


def upload(source: Path, destination: RunPath, rank: int = 0, check: Check = lambda: None) -> list[File]:
    """Copy the files of `source` into `destination`, durably: what to list in the commit.

    Ranks may upload into one destination at once: a name appears only with a whole file behind it. Empty directories
    are not kept. The directory above `destination` is there, or the storage is not. `check` is called now and then and
    may raise. StorageError: something could not be read or written, or leads out of `source`.
    """
    try:
        with reading(source):
            found = list(_walk(source))
        return store_at(destination.parent).upload(found, destination.name, rank, check)
    except (FileNotFoundError, StorageError) as error:
        kind = StorageUnavailable if isinstance(error, StorageUnavailable) else StorageError
        raise kind(f"the checkpoint in {source} could not be written to {destination}: {error}") from error


def stage(source: Path, staging: Path, *, take: bool = True) -> Path:
    """Take the entries of `source` over into a new directory below `staging` and return that.

    Moved where both are on one file system, so that it costs nothing; copied otherwise, and without
    `take`. Not durable: a staged
    checkpoint counts only once it is uploaded.
    """
    target = staging / uuid.uuid4().hex
    try:
        target.mkdir(parents=True)
        for entry in sorted(source.iterdir()):
            (_move if take else _copy_entry)(entry, target / entry.name)
    except OSError as error:
        raise StorageError(
            f"the checkpoint in {source} could not be staged in {staging}: {error}. Check the rights and the free space"
        ) from error
    return target


def _move(entry: Path, target: Path) -> None:
    try:
        entry.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_entry(entry, target)


def delete(run_path: RunPath, checkpoints: Iterable[str]) -> None:
    """Remove checkpoints whose deletion is in the log. What a kill leaves of them, `left_of` finds."""
    store_at(run_path).remove_directories([f"{CHECKPOINTS}/{checked(name, run_path)}" for name in checkpoints])


def left_of(run_path: RunPath, deleted: Iterable[str]) -> list[str]:
    """The checkpoints among these, recorded as deleted, whose files are still there, or some of them."""
    return sorted(set(deleted).intersection(store_at(run_path).directories(CHECKPOINTS)))


def _walk(source: Path, below: str = "") -> Iterator[Source]:
    """Every file. Links are followed to files inside `source`, and nowhere else."""
    for entry in sorted(os.scandir(source / below), key=lambda entry: entry.name):
        path, where = below + entry.name, Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(source, path + "/")
        elif not entry.is_file():
            raise StorageError(
                f"{where} is neither a file nor a real directory (a pipe, a link?); a checkpoint holds only these"
            )
        elif entry.is_symlink() and not where.resolve().is_relative_to(source.resolve()):
            raise StorageError(f"{where} is a link out of the checkpoint directory; put the file itself there")
        elif not _is_text(path):
            raise StorageError(f"the file name {path!r} cannot be recorded; use names that are UTF-8")
        else:
            stat = entry.stat()
            yield Source(path, where, stat.st_size, stat.st_mode & 0o777)


def _is_text(path: str) -> bool:
    """False for names of bytes that are no UTF-8: JSON could not say them."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _copy_entry(entry: Path, target: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        # `upload` judges where links lead
        shutil.copytree(entry, target, symlinks=True)
    else:
        shutil.copy2(entry, target, follow_symlinks=False)
