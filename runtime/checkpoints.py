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
from pathlib import Path, PurePosixPath

from shaketable.runtime import objectfiles, objects
from shaketable.runtime.collection import stored_checkpoints
from shaketable.runtime.errors import StorageError
from shaketable.runtime.hashing import copy_hashed
from shaketable.runtime.nodecache import restore
from shaketable.runtime.objects import ObjectPath
from shaketable.runtime.records import File
from shaketable.runtime.storage import CHECKPOINTS, RunPath, fsync_directory, make_directory
from shaketable.runtime.transfer import each, explained, inside, verify

__all__ = ["delete", "finish_deletes", "restore", "stage", "upload", "verify"]

_PARTIAL, _DELETING = ".partial-", ".deleting-"


def upload(source: Path, destination: RunPath, rank: int = 0) -> list[File]:
    """Copy the files of `source` into `destination`, durably: what to list in the commit.

    Ranks may upload into one destination at once: a name appears only with a whole file behind it. Empty directories
    are not kept. StorageError: something could not be read or written, or leads out of `source`.
    """
    with explained(f"the checkpoint in {source} could not be written to {destination}"):
        found = list(_walk(source))
        if isinstance(destination, ObjectPath):
            return objectfiles.upload(found, destination)
        make_directory(destination)
        directories = _make_directories(destination, [path for path, _, _ in found])
        temporary = destination / f"{_PARTIAL}{rank}-{uuid.uuid4().hex}"

        def copy(item: tuple[str, Path, int], buffer: memoryview) -> File:
            path, entry, _ = item
            partial = temporary.with_name(f"{temporary.name}-{uuid.uuid4().hex}")
            try:
                size, checksum = copy_hashed(entry, partial, buffer, durable=True)
                partial.rename(destination / path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
            return File(path=path, size=size, checksum=checksum)

        files = each(found, copy, [size for _, _, size in found])
        for directory in [*directories, destination.parent]:
            fsync_directory(directory)
        return files


def stage(source: Path, staging: Path) -> Path:
    """Take the entries of `source` over into a new directory below `staging` and return that.

    Moved where both are on one file system, so that it costs nothing; copied otherwise. Not durable: a staged
    checkpoint counts only once it is uploaded.
    """
    target = staging / uuid.uuid4().hex
    with explained(f"the checkpoint in {source} could not be staged in {staging}"):
        target.mkdir(parents=True)
        for entry in sorted(source.iterdir()):
            try:
                entry.rename(target / entry.name)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _copy_entry(entry, target / entry.name)
    return target


def delete(run_path: RunPath, checkpoint: str) -> None:
    """Remove a checkpoint whose deletion is in the log. What a kill leaves of it, `finish_deletes` removes."""
    stored = inside(run_path / CHECKPOINTS, checkpoint)
    if isinstance(stored, ObjectPath):
        objects.remove_all(stored)
        return
    deleting = stored.with_name(_DELETING + checkpoint)
    with explained(f"the deleted checkpoint {stored} could not be removed"):
        if stored.exists():
            shutil.rmtree(deleting, ignore_errors=True)  # of a delete that was interrupted
            stored.rename(deleting)
        if deleting.exists():
            shutil.rmtree(deleting)


def finish_deletes(run_path: RunPath, deleted: Iterable[str]) -> list[str]:
    """Remove what earlier terms recorded as deleted and had no time to remove; the names of it."""
    present = {name.removeprefix(_DELETING) for name in stored_checkpoints(run_path)}
    left = sorted(present.intersection(deleted))
    for checkpoint in left:
        delete(run_path, checkpoint)
    return left


def _walk(source: Path, below: str = "") -> Iterator[tuple[str, Path, int]]:
    """(path inside, where, size) of every file. Links are followed to files inside `source`, and nowhere else."""
    for entry in sorted(os.scandir(source / below), key=lambda entry: entry.name):
        path, where = below + entry.name, Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(source, path + "/")
        elif not entry.is_file():
            raise StorageError(
                f"{where} is neither a file nor a real directory (a pipe, a link?); a checkpoint holds only these"
            )
        elif entry.is_symlink() and not where.resolve().is_relative_to(source.resolve()):
            raise StorageError(
                f"{where} is a link out of the checkpoint directory; put the file itself there"
            )
        elif not _is_text(path):
            raise StorageError(f"the file name {path!r} cannot be recorded; use names that are UTF-8")
        else:
            yield path, where, entry.stat().st_size


def _is_text(path: str) -> bool:
    """False for names of bytes that are no UTF-8: JSON could not say them."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _make_directories(destination: Path, paths: Iterable[str]) -> list[Path]:
    """All directories that these files need, made; the deepest first, as they have to be synced."""
    inner = {parent for path in paths for parent in PurePosixPath(path).parents}
    ordered = sorted(
        {destination, *(destination / parent for parent in inner)}, key=lambda path: len(path.parts)
    )
    for directory in ordered:
        directory.mkdir(exist_ok=True)
    return ordered[::-1]


def _copy_entry(entry: Path, target: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.copytree(entry, target, symlinks=True)  # `upload` judges where links lead
    else:
        shutil.copy2(entry, target, follow_symlinks=False)
