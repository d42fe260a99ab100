"""A run log of the bundled runtime as events of a history, read without taking the run over and without writing.

The runtime's own reader and fold are used, so what it would refuse to go on from is refused here: a torn record, a
hole, a record of another version, a log that was edited.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from shaketable.chaos.errors import ChaosError
from shaketable.chaos.history.events import LogRecord
from shaketable.runtime.errors import LogViolation, StorageError
from shaketable.runtime.log.run_log import RunLog
from shaketable.runtime.log.run_state import fold
from shaketable.runtime.storage.files import LOG

__all__ = ["LOG", "BadRunLog", "read_run_log"]


class BadRunLog(ChaosError):
    """The log cannot be trusted, or not be read by this version: names the record and what to do."""


def read_run_log(run: Path) -> list[LogRecord]:
    """`run` is `<storage_path>/<name>`. Raises BadRunLog."""
    try:
        records = RunLog(run).read()
        fold(records)
    except (StorageError, LogViolation) as error:
        raise BadRunLog(str(error)) from error
    return [LogRecord(number=number, record=msgspec.to_builtins(record)) for number, record in records]
