"""What the log of a run says once it is over."""

from __future__ import annotations

from shaketable.runtime.errors import StorageError
from shaketable.runtime.log import run_state
from shaketable.runtime.log.run_log import RunLog
from shaketable.runtime.storage.files import locate_run


def read_result(storage_path: str, name: str) -> run_state.RunState:
    """What the run log says about a run, without taking it over. Raises StorageError if there is none."""
    run_path = locate_run(storage_path, name)
    state = RunLog(run_path).catch_up()
    if state.next_number == run_state.FIRST_NUMBER:
        raise StorageError(f"there is no run {name!r} in {storage_path}: {run_path} has no records")
    return state
