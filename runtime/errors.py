"""The errors of the runtime. Every message says what was wrong, what was seen, and what to do about it.

All errors take the message first and keep the rest as attributes, so that they survive pickling on their way through
Ray. The class says whose problem it is: the user's configuration, the storage, or the log itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ShaketableError(Exception):
    """What every error of the runtime derives from. Those of one module alone stand there."""


class ConfigurationError(ShaketableError, ValueError):
    """The configuration is impossible, or contradicts the one that the run began with."""


class TrainingFailedError(ShaketableError, RuntimeError):
    """The run failed. `attempts`: a summary of each attempt, oldest first."""

    def __init__(self, message: str, attempts: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.attempts = list(attempts)


class WorkerFailure(ShaketableError, RuntimeError):
    """How a worker ended: what its exception said, or what its agent saw. The exception itself stays in the worker."""


class WorkerGroupError(TrainingFailedError):
    """The run failed because of its workers, or of the nodes under them. `worker_failures`: by rank, the failure of the
    worker that its last attempt is charged for; empty where that was no single worker."""

    def __init__(
        self, message: str, attempts: Sequence[Any] = (), worker_failures: Mapping[int, Exception] | None = None
    ) -> None:
        super().__init__(message, attempts)
        self.worker_failures = dict(worker_failures or {})


class PreemptionError(TrainingFailedError):
    """The run failed because nodes were taken from it more often than `max_preemption_failures` allows."""


class ControllerError(TrainingFailedError):
    """The run failed for another reason than its workers: the storage, or no capacity. `controller_failure`: that."""

    def __init__(self, message: str, attempts: Sequence[Any] = (), controller_failure: Exception | None = None) -> None:
        super().__init__(message, attempts)
        self.controller_failure = controller_failure or RuntimeError(message)


class StorageError(ShaketableError):
    """A call to the storage failed and had no effect."""


class StorageUnavailable(StorageError):
    """The storage could not be reached or did not answer: an outage, a time-out, expired credentials. The call may be
    repeated."""


class StorageUnsettled(StorageUnavailable):
    """The storage failed, and the record may or may not have been written. Only the very same record may be written
    again at this number. Any other record there could fork the log."""


class NodeUnfit(StorageError):
    """The process's node can take no part in the run; of the run's data nothing is known."""


class RunNotFound(NodeUnfit):
    """The run is not where this process looks for it: no mount, another endpoint or region."""


class NodeDiskFailed(NodeUnfit):
    """The node's own disk takes nothing: it is full, or it fails."""


class UploadCancelled(ShaketableError):
    """The attempt that the upload was for is over."""


class LogCorrupt(StorageError):
    """A record is torn, missing, or of an unknown kind."""


class LogViolation(ShaketableError):
    """A record breaks the rules of the run log. When an append raises this, nothing was written."""


class InternalError(ShaketableError, RuntimeError):
    """A bug of the runtime's own ended the run; the cause is chained. What is committed is safe."""


class Fenced(ShaketableError):
    """A newer driver has taken the run over. Stop at once and touch nothing."""

    def __init__(self, message: str, term: int = 0) -> None:
        super().__init__(message)
        self.term = term


class NumberTaken(ShaketableError):
    """Another driver's record of the same or a lower term has this number. Opening folds it and tries the next one."""

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.number = number


class CheckpointCorrupt(StorageError):
    """A file of a committed checkpoint is missing or differs from what was committed."""

    def __init__(self, message: str, checkpoint: str = "", path: str = "", expected: str = "", seen: str = "") -> None:
        super().__init__(message)
        self.checkpoint, self.path, self.expected, self.seen = checkpoint, path, expected, seen


class ConflictingShards(ShaketableError):
    """Two ranks wrote different bytes to the same path of one checkpoint."""

    def __init__(self, message: str, path: str = "", ranks: tuple[int, int] = (0, 0)) -> None:
        super().__init__(message)
        self.path, self.ranks = path, ranks
