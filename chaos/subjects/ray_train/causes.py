"""Ray Train's errors in the words of docs/semantics.md: why an attempt ended, and which budget Ray Train charged.

The account follows Ray Train's own failure policy, by its own predicate; the cause is read from the errors that the
workers' polls gave. Its `controller_failure_limit` counts worker groups that did not start, and is called
`max_start_failures` here.
"""

from __future__ import annotations

from dataclasses import dataclass

from ray.exceptions import RayActorError
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError, WorkerHealthCheckTimeoutError
from ray.train.v2._internal.execution.failure_handling.default import (
    RETRYABLE_CONTROLLER_ERRORS,
    _is_preemption_failure,
)
from ray.train.v2.api.exceptions import ControllerError, PreemptionError, TrainingFailedError, WorkerGroupError

DETAIL_LENGTH = 300
# How Ray's core words the loss of a node in the error of an actor that was on it.
NODE_LOST = ("node_died", "node has died", "node died", "node is dead", "node was terminated")


@dataclass(frozen=True, slots=True)
class Ending:
    """`error`: the type of what is to blame; `rank`: whose it is, where one can be named."""

    cause: str
    account: str | None
    detail: str = ""
    rank: int | None = None
    error: str = ""


def ending(error: TrainingFailedError) -> Ending:
    """What the failure policy made of this error."""
    if _is_preemption_failure(error):
        return Ending("preempted", "max_preemption_failures", _short(error), _preempted(error), _type(error))
    if isinstance(error, WorkerGroupError):
        return _worker_group_ending(error)
    if isinstance(error, ControllerError):
        started_badly = isinstance(error.controller_failure, RETRYABLE_CONTROLLER_ERRORS)
        detail = _short(error.controller_failure)
        kind = _type(error.controller_failure)
        if started_badly:
            return Ending("start_failed", "max_start_failures", detail, error=kind)
        return Ending("controller_error", None, detail, error=kind)
    return Ending("unknown", None, _short(error), error=_type(error))


# What one worker's error says of the cause; of several workers' errors the one further down this list is an echo of
# the one further up, and so is a broken connection to a peer.
PRECEDENCE = ("node_lost", "worker_death", "worker_hung", "worker_error")


def _worker_group_ending(error: WorkerGroupError) -> Ending:
    failures = error.worker_failures
    if not failures:
        # the NCCL hang detector names no rank
        return Ending("worker_hung", "max_failures", _short(error))
    rank = min(failures, key=lambda rank: (*_weight(failures[rank]), rank))
    detail = f"rank {rank}: {_short(failures[rank])}"
    return Ending(_cause(failures[rank]), "max_failures", detail, rank, _type(failures[rank]))


def _preempted(error: TrainingFailedError) -> int | None:
    """The lowest rank on a node that is taken away."""
    if isinstance(error, PreemptionError):
        return min(error.preemption_info.preempted_ranks, default=None)
    if not isinstance(error, WorkerGroupError):
        return None
    return min((rank for rank, each in error.worker_failures.items() if _is_preempted(each)), default=None)


def _is_preempted(failure: BaseException) -> bool:
    return bool(getattr(_beneath(failure), "preempted", False))


def _type(error: BaseException) -> str:
    return type(_beneath(error)).__name__


def _weight(failure: BaseException) -> tuple[int, bool]:
    return PRECEDENCE.index(_cause(failure)), isinstance(failure, ConnectionError)


def _cause(failure: BaseException) -> str:
    failure = _beneath(failure)
    if isinstance(failure, WorkerHealthCheckTimeoutError):
        return "worker_hung"
    if isinstance(failure, RayActorError):
        return "node_lost" if any(words in str(failure).lower() for words in NODE_LOST) else "worker_death"
    return "worker_error"


def _beneath(failure: BaseException) -> BaseException:
    return failure.health_check_failure if isinstance(failure, WorkerHealthCheckFailedError) else failure


def _short(error: BaseException) -> str:
    """One line. An actor's death begins with what is known anyway."""
    error = _beneath(error)
    text = " ".join(str(error).split())
    _, because, why = text.partition("The actor is dead because ")
    return f"{type(error).__name__}: {why if because else text}"[:DETAIL_LENGTH]
