"""The node's own disk: where agents keep what they restore and what they stage. One that takes nothing is the node's
defect and not an outage of the storage, so the run goes on without the node (promise storage-10).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from shaketable.runtime.errors import NodeDiskFailed, StorageUnavailable
from shaketable.runtime.storage import retries

# a disk that is full may be freed by whoever filled it
PATIENCE_S = 10.0
# what a checkpoint takes at least
_PROBE = bytes(64 * 1024)

Done = TypeVar("Done")


def check_disk(directory: Path) -> None:
    """Make `directory` and write a little there. Raises NodeDiskFailed if that fails for PATIENCE_S."""

    def probe() -> None:
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / f".probe-{uuid.uuid4().hex}"
        try:
            file.write_bytes(_PROBE)
        finally:
            file.unlink(missing_ok=True)

    retries.retrying("disk", patient(directory, probe))


def patient(directory: Path, call: Callable[[], Done]) -> Callable[[], Done]:
    """`call` for `retrying`: its OSError may be tried again for PATIENCE_S, counted from the first, and is
    NodeDiskFailed then. `directory` is where it writes."""
    first_s: float | None = None

    def once() -> Done:
        nonlocal first_s
        try:
            return call()
        except OSError as error:
            first_s = time.monotonic() if first_s is None else first_s
            what = f"this node's own disk takes nothing in {directory}: {error}. Free space there"
            if time.monotonic() - first_s >= min(PATIENCE_S, retries.timeout_s() / 2):
                raise NodeDiskFailed(what) from error
            raise StorageUnavailable(what) from error

    return once
