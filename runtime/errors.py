"""The errors of the runtime. Every message says what was wrong, what was seen, and what to do about it.

All of them take the message first and keep the rest as attributes, so that they survive pickling on their way
through Ray. Which one it is says whose problem it is: the user's configuration, the storage, or the log itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ShaketableError(Exception):
    """What every error of the runtime derives from."""


class ConfigurationError(ShaketableError, ValueError):
    """What the user asked for cannot be done, or contradicts what the run was begun with."""


class TrainingFailedError(ShaketableError, RuntimeError):
    """The run ended as failed. `attempts`: what each attempt came to, oldest first."""

    def __init__(self, message: str, attempts: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.attempts = list(attempts)


class StorageError(ShaketableError):
    """The storage did not do what was asked; what was asked did not happen."""


class StorageUnavailable(StorageError):
    """The storage could not be asked, or did not answer: an outage, a time-out, credentials that have expired. It may
    be asked again."""


class StorageUnsettled(StorageUnavailable):
    """The storage failed in a way that leaves open whether the record was written. Only the very same record may be
    tried again at this number; anything else there could fork the log."""


class LogCorrupt(StorageError):
    """A record is torn, missing, or of a kind that this version does not know."""


class LogViolation(ShaketableError):
    """A record that the rules of the run log forbid. Nothing was written when it is raised by an append."""


class Fenced(ShaketableError):
    """A newer driver has taken the run over. Stop at once and touch nothing."""

    def __init__(self, message: str, term: int = 0) -> None:
        super().__init__(message)
        self.term = term


class NumberTaken(ShaketableError):
    """Somebody else's record of the same or a lower term holds the number. Opening folds it and tries the next."""

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.number = number


class CheckpointCorrupt(StorageError):
    """A file of a committed checkpoint is missing or differs from what was committed."""

    def __init__(
        self, message: str, checkpoint: str = "", path: str = "", expected: str = "", seen: str = ""
    ) -> None:
        super().__init__(message)
        self.checkpoint, self.path, self.expected, self.seen = checkpoint, path, expected, seen


class ConflictingShards(ShaketableError):
    """Two ranks wrote different bytes to the same path of one checkpoint."""

    def __init__(self, message: str, path: str = "", ranks: tuple[int, int] = (0, 0)) -> None:
        super().__init__(message)
        self.path, self.ranks = path, ranks
