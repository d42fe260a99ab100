"""Reading a committed checkpoint back after the run, whatever subject wrote it: every byte of it, and what a
hash-chain job says about itself in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import xxhash

from shaketable.chaos.errors import ChaosError
from shaketable.chaos.history.events import (
    MOST_FILES,
    AnyEvent,
    CheckpointDeleted,
    CheckpointProbed,
    CheckpointQuarantined,
    Committed,
    Stepped,
)
from shaketable.chaos.workloads import chain_checkpoint
from shaketable.chaos.workloads.chain_checkpoint import CorruptCheckpoint

BLOCK_BYTES = 1 << 20


class Unreadable(ChaosError):
    """A checkpoint that was committed and cannot be read back; says what is missing or broken."""


def committed(events: Sequence[AnyEvent]) -> list[Committed]:
    """The commits that must still be there, each once."""
    gone = (CheckpointDeleted, CheckpointQuarantined)
    deleted = {event.checkpoint for event in events if isinstance(event, gone)}
    commits = {event.checkpoint: event for event in events if isinstance(event, Committed)}
    return [commit for name, commit in commits.items() if name not in deleted]


def has_digests(events: Sequence[AnyEvent]) -> bool:
    return any(isinstance(event, Stepped) and event.digest is not None for event in events)


def probed(commit: Committed, directory: Path, *, digests: bool) -> CheckpointProbed:
    """What came out of reading `directory`, the checkpoint's content."""
    try:
        read = read_all(directory)
        step, digest = _chain_state(directory) if digests else (None, None)
    except (Unreadable, CorruptCheckpoint, OSError) as error:
        return broken(commit, str(error))
    few = len(read) <= MOST_FILES
    return CheckpointProbed(
        checkpoint=commit.checkpoint,
        index=commit.index,
        ok=True,
        step=step,
        digest=digest,
        files=sorted(read) if few else None,
        read=read if few else None,
    )


def broken(commit: Committed, reason: str) -> CheckpointProbed:
    return CheckpointProbed(checkpoint=commit.checkpoint, index=commit.index, ok=False, reason=reason)


def quarantined(checkpoint: str, files: list[str]) -> CheckpointProbed:
    """Of one that the run has given up as corrupt: which of its files are still there."""
    index = int(checkpoint.partition("-")[0])
    return CheckpointProbed(checkpoint=checkpoint, index=index, ok=False, reason="quarantined", files=files)


def read_all(directory: Path) -> dict[str, tuple[int, str]]:
    """Size and checksum of every file, by its relative path: storage that lists a file need not be able to give it."""
    if not directory.is_dir():
        raise Unreadable(f"{directory}: no such directory")
    files = [path for path in directory.rglob("*") if path.is_file()]
    if not files:
        raise Unreadable(f"{directory}: no file in it")
    return {str(path.relative_to(directory)): _measured(path) for path in sorted(files)}


def _measured(path: Path) -> tuple[int, str]:
    """As the log of the bundled runtime writes checksums."""
    size, digest = 0, xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            size += len(block)
            digest.update(block)
    return size, f"xxh3:{digest.hexdigest()}"


def _chain_state(directory: Path) -> tuple[int | None, str | None]:
    """Step and digest of a hash-chain checkpoint, verified by the job's own checksum; None for other jobs'."""
    if not any(directory.glob("state*.json")):
        return None, None
    state = chain_checkpoint.read(directory)
    return state.step, state.digest
