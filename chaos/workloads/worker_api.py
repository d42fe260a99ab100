"""What a training function under test sees: the session API of whatever runs it, under Ray Train's names.

A workload that shall run on either subject takes its API from `api()`; a user's own function keeps its imports and
never hears of this module. The wrapper (`witnessed.py`) decides in the worker which subject it is, and puts a
`WorkerWitness` in place for as long as the function runs. One process runs one worker, so there is one at a time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from shaketable.chaos.errors import ChaosError
from shaketable.chaos.history.events import MOST_FILES, Event, Reported, RestoreStarted, Stepped, UploadStarted
from shaketable.chaos.history.witness import Witness
from shaketable.chaos.workloads import hanging

# at a time
LEAK_BYTES = 32 << 20


class Where(NamedTuple):
    """The place of this worker in the run."""

    term: int
    attempt: int
    rank: int
    world_size: int
    node_id: str


class Api(Protocol):
    """The part of Ray Train's worker API that the bundled workloads use, and `checkpoint_requested()`, which is
    always False on a subject that never asks. `notice()`: what the subject offers to a function that shall save before
    its node goes says that it is time; all ranks ask it at the same step."""

    @property
    def Checkpoint(self) -> Any: ...
    def report(self, metrics: dict[str, Any], checkpoint: Any = None) -> None: ...
    def get_checkpoint(self) -> Any: ...
    def get_context(self) -> Any: ...
    def checkpoint_requested(self) -> bool: ...
    def notice(self) -> bool: ...
    def broadcast_from_rank_zero(self, data: Any) -> Any: ...


class Listener(Protocol):
    """Hears of every `report()` of this worker, on the thread that calls it. Indices are 1-based and global over the
    run: the first one of an attempt follows that of the checkpoint it resumed from."""

    def before_report(self, index: int, metrics: dict[str, Any], checkpoint: Any) -> None: ...
    def after_report(self, index: int) -> None: ...


class Side(Protocol):
    """The worker's end of one subject."""

    @property
    def api(self) -> Api: ...
    @property
    def where(self) -> Where: ...
    @property
    # address of its node, at which the other nodes reach it
    def node_ip(self) -> str: ...
    @property
    # name of the checkpoint that this worker was given
    def resume(self) -> str | None: ...
    def listening(self, listener: Listener) -> AbstractContextManager[None]: ...


class InjectedError(ChaosError):
    """Raised in a training function on purpose, by the fault `raise_in_worker`."""


class WorkerWitness:
    """One worker's events while its training function runs. Also the `Listener` that gives it."""

    def __init__(self, side: Side, witness: Witness | None, directory: str | None, step_key: str = "") -> None:
        self.side = side
        self._witness = witness
        self._step_key = step_key
        # the step the job itself recorded for the report to come
        self._stepped: int | None = None
        self._step = 0
        pid = os.getpid()
        self._sentinel = sentinel(directory, pid) if directory is not None else None
        self._hang = Path(directory, f"hang-{pid}") if directory is not None else None
        self._slow = Path(directory, f"slow-{pid}") if directory is not None else None
        self._leak = Path(directory, f"leak-{pid}") if directory is not None else None
        # when the step under way began
        self._since_s = time.monotonic()

    def emit(self, event: Event) -> None:
        if self._witness is not None:
            self._witness.emit(event)

    def stepped(self, step: int, **said: Any) -> None:
        term, attempt, rank, world_size, _ = self.side.where
        self._stepped = step
        self.emit(Stepped(term=term, attempt=attempt, rank=rank, step=step, world_size=world_size, **said))

    def before_report(self, index: int, metrics: dict[str, Any], checkpoint: Any) -> None:
        self._raise_if_asked()
        self._hang_if_asked()
        self._leak_if_asked()
        self._slow_down_if_asked()
        if self._stepped is None:
            self._emit_step(index, dict(metrics), checkpoint is not None)
        self._step, self._stepped = index if self._stepped is None else self._stepped, None
        if checkpoint is not None:
            term, attempt, rank, _, _ = self.side.where
            differs = index if self._step != index else None
            files = files_in(getattr(checkpoint, "path", None))
            self.emit(UploadStarted(term=term, attempt=attempt, rank=rank, step=self._step, index=differs, files=files))

    def _emit_step(self, index: int, metrics: dict[str, Any], checkpoint: bool) -> None:
        """What the wrapper can say of a step about which the job itself is silent."""
        if not self._step_key:
            self.stepped(index, metrics=metrics, checkpoint=checkpoint)
            return
        step = as_step(metrics.get(self._step_key))
        said = {"metrics": metrics, "checkpoint": checkpoint, "index": index, "unkeyed": step is None}
        self.stepped(index if step is None else step, **said)

    def after_report(self, index: int) -> None:
        term, attempt, rank, _, _ = self.side.where
        self.emit(Reported(term=term, attempt=attempt, rank=rank, step=self._step))
        self._since_s = time.monotonic()

    def _raise_if_asked(self) -> None:
        """The fault `raise_in_worker` asks with a file; renaming it is both the evidence and what makes it happen
        once."""
        if self._sentinel is None:
            return
        try:
            self._sentinel.rename(self._sentinel.with_name(f"raised-{os.getpid()}"))
        except FileNotFoundError:
            return
        raise InjectedError(f"raised on purpose in the worker with pid {os.getpid()}")

    def _hang_if_asked(self) -> None:
        """The same for `hang_worker`."""
        if self._hang is None:
            return
        hung = self._hang.with_name(f"hung-{os.getpid()}")
        try:
            self._hang.rename(hung)
        except FileNotFoundError:
            return
        hanging.hang(hung.read_text())

    def _leak_if_asked(self) -> None:
        """For `oom_worker`: takes memory until it is killed."""
        if self._leak is None or not self._leak.exists():
            return
        taken = []
        while True:
            # written to, or it would be memory on paper
            taken.append(bytearray(os.urandom(1)) * LEAK_BYTES)

    def _slow_down_if_asked(self) -> None:
        """For `slow_worker`, as long as its file is there."""
        if self._slow is None:
            return
        try:
            factor = float(self._slow.read_text())
        except FileNotFoundError:
            return
        time.sleep((time.monotonic() - self._since_s) * (factor - 1))
        self._slow.with_name(f"slowed-{os.getpid()}").touch()


def as_step(value: Any) -> int | None:
    """A reported metric as a step: a whole number, of whatever type; None for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if number.is_integer() else None


_current: WorkerWitness | None = None


@contextmanager
def active(witness: WorkerWitness) -> Iterator[None]:
    """Put `witness` in place for the training function that runs inside."""
    global _current
    if _current is not None:
        raise RuntimeError("a worker is active in this process already: one process runs one worker")
    _current = witness
    try:
        yield
    finally:
        _current = None


def _active_witness() -> WorkerWitness:
    if _current is None:
        raise RuntimeError(
            "no session: this job runs inside a worker of a subject; start it with `shaketable run` or shake(), or "
            "wrap it for your own trainer: shaketable.chaos.subjects.witnessed.Witnessed(job, 'bundled')"
        )
    return _current


def api() -> Api:
    """The session API of whatever runs this worker."""
    return _active_witness().side.api


def where() -> Where:
    return _active_witness().side.where


def node_ip() -> str:
    """The address of this worker's node, at which the other nodes reach it."""
    return _active_witness().side.node_ip


def emit(event: Event) -> None:
    """Record as this worker; does nothing where nobody listens."""
    if _current is not None:
        _current.emit(event)


def restoring() -> None:
    """The job is about to read the checkpoint that it was given, if it was given one."""
    here = _active_witness()
    if here.side.resume is not None:
        term, attempt, rank, _, _ = here.side.where
        here.emit(RestoreStarted(term=term, attempt=attempt, rank=rank, checkpoint=here.side.resume))


def stepped(
    step: int,
    *,
    digest: str | None = None,
    samples: list[int] | None = None,
    checkpoint: bool = False,
    metrics: dict[str, Any] | None = None,
) -> None:
    """What the job knows about the step it is about to report, instead of the plain events the wrapper would
    give. Call it before `report()`."""
    _active_witness().stepped(step, digest=digest, samples=samples, checkpoint=checkpoint, metrics=metrics)


def sentinel(directory: str | Path, pid: int) -> Path:
    """The file that makes the worker `pid` raise InjectedError at its next report; gone (renamed to `raised-<pid>`)
    once it does."""
    return Path(directory) / f"raise-{pid}"


def files_in(directory: object) -> list[str] | None:
    """The files below a directory of this machine, relative to it; None for anything else, or for too many."""
    if not isinstance(directory, str | os.PathLike) or not Path(directory).is_dir():
        return None
    found = [str(path.relative_to(directory)) for path in Path(directory).rglob("*") if path.is_file()]
    return sorted(found) if len(found) <= MOST_FILES else None
