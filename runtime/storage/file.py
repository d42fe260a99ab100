"""A file of a checkpoint as the run log describes it. Pure."""

from __future__ import annotations

import msgspec


class File(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a checkpoint: path inside it, bytes, checksum ("xxh3:<32 hex digits>"), permission bits (None: not
    known, the record is older)."""

    path: str
    size: int
    checksum: str
    mode: int | None = None
