"""The files of all ranks as one checkpoint. Pure.

Ranks write into one directory: shards under names of their own, or the same bytes under the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shaketable.runtime.errors import ConflictingShards
from shaketable.runtime.records import File


def merge_files(votes: Mapping[int, Sequence[File]]) -> list[File]:
    """`votes`: rank -> what it uploaded. ConflictingShards: one path with different bytes."""
    owners: dict[str, tuple[int, File]] = {}
    for rank, files in sorted(votes.items()):
        for file in files:
            first, known = owners.setdefault(file.path, (rank, file))
            if known != file:
                raise ConflictingShards(
                    f"ranks {first} and {rank} both wrote {file.path!r} of one checkpoint, with different bytes"
                    f" ({known.size} of {known.checksum}, {file.size} of {file.checksum}). Report it from one rank"
                    " only, or put the rank into the file's name",
                    file.path,
                    (first, rank),
                )
    return [file for _, (_, file) in sorted(owners.items())]
