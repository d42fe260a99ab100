"""Whether this process sees the run at all: the first record of its log, read through the process's own path.

A node without the mount, or with another endpoint, finds nothing where the run is, or something else. What it would say
of files is then worth nothing, and what it would write is lost (promise storage-9).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from shaketable.runtime.errors import RunNotFound, StorageUnavailable
from shaketable.runtime.log.run_state import FIRST_NUMBER
from shaketable.runtime.storage import objects
from shaketable.runtime.storage.files import records_of
from shaketable.runtime.storage.retries import retrying
from shaketable.runtime.storage.store import RunPath

# a network file system may show a new file late
_APPEARS_S = 3.0


class _First(msgspec.Struct):
    id: str = ""


def check_presence(run_path: RunPath, run_id: str = "") -> None:
    """RunNotFound unless the run's first record is there, and is `run_id` where that is known. StorageUnavailable: the
    storage does not answer."""
    records = records_of(run_path)

    def found() -> bytes:
        data = records.get(FIRST_NUMBER)
        if data is None:
            raise _NotYet(f"{records.where(FIRST_NUMBER)} is not there")
        return data

    try:
        first = msgspec.json.decode(retrying("get", found, _APPEARS_S), type=_First)
    except (_NotYet, msgspec.DecodeError) as error:
        raise RunNotFound(f"{_UNFIT.format(run_path)}: {error}") from error
    if run_id and first.id != run_id:
        raise RunNotFound(f"{_UNFIT.format(run_path)}: {records.where(FIRST_NUMBER)} is of another run ({first.id})")


class _NotYet(StorageUnavailable):
    """The storage answers, and has no such record."""


_UNFIT = (
    "this node does not see the run in {}: mount the storage here, or set the same endpoint, region and credentials as"
    " on the driver's node"
)


def absence(run_path: RunPath) -> str:
    """Why there is no run to read, in words."""
    there = run_path.exists() if isinstance(run_path, Path) else bool(objects.names(run_path))
    if not there:
        return f"Experiment folder {run_path} doesn't exist. Check the path, or mount the storage that it is on."
    return (
        f"Failed to restore the Result object: {records_of(run_path).where(FIRST_NUMBER)} doesn't exist. Make sure that"
        " this is the directory of a run of this runtime, <storage_path>/<name>."
    )
