"""The files of all ranks as one checkpoint. Pure.

Ranks write into one directory: shards under names of their own, or the same bytes under the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

import msgspec

from shaketable.runtime.errors import ConflictingShards
from shaketable.runtime.storage.file import File

Owners = dict[str, tuple[int, File]]


def merge_files(votes: Mapping[int, Sequence[File]]) -> list[File]:
    """`votes`: rank -> what it uploaded. ConflictingShards: one path with different bytes, or a file where another has
    a directory."""
    owners: Owners = {}
    for rank, files in sorted(votes.items()):
        for file in files:
            first, known = owners.setdefault(file.path, (rank, file))
            if (known.size, known.checksum) != (file.size, file.checksum):
                what = f"with different bytes ({known.size} of {known.checksum}, {file.size} of {file.checksum})"
                _refuse(file.path, f"both wrote {file.path!r} of one checkpoint, {what}", first, rank)
            owners[file.path] = first, _as_private_as(known, file)
    _check_directories(owners)
    return [file for _, (_, file) in sorted(owners.items())]


def _check_directories(owners: Owners) -> None:
    """An object store takes `model` beside `model/shard`; no file system does, so it could never be restored."""
    for path, (rank, _) in owners.items():
        parts = path.split("/")
        for end in range(1, len(parts)):
            above = "/".join(parts[:end])
            if above in owners:
                first = owners[above][0]
                _refuse(above, f"wrote a file {above!r} and a file {path!r} below that name", first, rank)


def _as_private_as(known: File, file: File) -> File:
    if known.mode is None or file.mode is None or known.mode == file.mode:
        return known
    return msgspec.structs.replace(known, mode=known.mode & file.mode)


def _refuse(path: str, what: str, first: int, rank: int) -> NoReturn:
    raise ConflictingShards(
        f"ranks {first} and {rank} {what}. Report it from one rank only, or put the rank into the file's name",
        path,
        (first, rank),
    )
