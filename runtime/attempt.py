"""One attempt as a value: its members, how far each rank is, which checkpoints are on their way, and the signs of its
end. Pure; the controller holds one of these and replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from shaketable.runtime.events import AgentId
from shaketable.runtime.records import Cause, File

SignKind = Literal["error", "death", "lost", "collateral"]
_RECLAIM_SIGNALS = (9, 15)


@dataclass(frozen=True, slots=True)
class Sign:
    """A piece of evidence that an attempt is over. `doomed`: its node had been announced to go."""

    kind: SignKind
    rank: int
    node_id: str
    detail: str
    signal: int | None = None
    doomed: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """Why an attempt ended; rank and node of the culprit where there is one."""

    cause: Cause
    detail: str
    rank: int | None = None
    node_id: str | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """All ranks are asked to stop at one report. `target` is None until every rank has answered; `patient` once it is
    clear that the function does not look: then any next commit will do."""

    reason: Literal["resized", "preempted"]
    detail: str
    answers: Mapping[int, int] = field(default_factory=dict)
    target: int | None = None
    reached: frozenset[int] = frozenset()
    patient: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    number: int
    members: tuple[AgentId, ...]
    nodes: tuple[str, ...]
    first_index: int
    started_s: float
    watermarks: tuple[int, ...]
    entered: frozenset[int] = frozenset()
    finished: frozenset[int] = frozenset()
    stopped: frozenset[int] = frozenset()
    gone: frozenset[int] = frozenset()  # ranks whose agent is lost
    uploading: Mapping[int, frozenset[int]] = field(default_factory=dict)
    votes: Mapping[int, Mapping[int, tuple[File, ...]]] = field(default_factory=dict)
    metrics: Mapping[int, Mapping[str, Any]] = field(
        default_factory=dict
    )  # by report index, pending commits only
    last_metrics: Mapping[str, Any] = field(default_factory=dict)
    signs: tuple[Sign, ...] = ()
    echoes_only: bool = False  # only signs that may be collateral came in time
    hold: Hold | None = None

    @property
    def world_size(self) -> int:
        return len(self.members)

    @property
    def all_entered(self) -> bool:
        return len(self.entered) == self.world_size

    @property
    def all_finished(self) -> bool:
        return len(self.finished) == self.world_size

    @property
    def all_stopped(self) -> bool:
        return len(self.stopped | self.gone) == self.world_size

    @property
    def all_spoke(self) -> bool:
        """Every rank has ended one way or another."""
        return len(self.stopped | self.gone | self.finished) == self.world_size


def passed(attempt: Attempt, rank: int, index: int) -> bool:
    """The rank's watermark is past report `index`; a rank that finished has passed everything."""
    return rank in attempt.finished or attempt.watermarks[rank] >= index


def reported(
    attempt: Attempt, rank: int, index: int, metrics: Mapping[str, Any], *, uploading: bool
) -> Attempt:
    marks = (
        *attempt.watermarks[:rank],
        max(attempt.watermarks[rank], index),
        *attempt.watermarks[rank + 1 :],
    )
    after = replace(attempt, watermarks=marks, last_metrics=metrics if rank == 0 else attempt.last_metrics)
    if not uploading:
        return after
    under_way = {**attempt.uploading, index: attempt.uploading.get(index, frozenset()) | {rank}}
    kept = metrics if rank == 0 or index not in attempt.metrics else attempt.metrics[index]
    return replace(after, uploading=under_way, metrics={**attempt.metrics, index: kept})


def uploaded(attempt: Attempt, rank: int, index: int, files: tuple[File, ...]) -> Attempt:
    """The rank's vote, with its files."""
    rest = attempt.uploading.get(index, frozenset()) - {rank}
    votes = {**attempt.votes.get(index, {}), rank: files}
    return replace(
        attempt, uploading={**attempt.uploading, index: rest}, votes={**attempt.votes, index: votes}
    )


def dropped(attempt: Attempt, index: int) -> Attempt:
    """The candidate at `index` is settled: committed, or given up."""
    return replace(
        attempt,
        uploading={k: v for k, v in attempt.uploading.items() if k != index},
        votes={k: v for k, v in attempt.votes.items() if k != index},
        metrics={k: v for k, v in attempt.metrics.items() if k != index},
    )


def first_candidate(attempt: Attempt) -> int | None:
    """The report whose checkpoint is to be committed next: commits go in report order."""
    return min(attempt.uploading, default=None)


def complete(attempt: Attempt, index: int) -> bool:
    """Every rank has voted for `index`: by its upload, or by passing it without one (protocols 3.3)."""
    voted = all(passed(attempt, rank, index) for rank in range(attempt.world_size))
    return voted and not attempt.uploading.get(index) and bool(attempt.votes.get(index))


def can_complete(attempt: Attempt, index: int) -> bool:
    """After the workers are gone: every rank has passed `index`, and every upload still under way has its agent."""
    voted = all(passed(attempt, rank, index) for rank in range(attempt.world_size))
    return voted and not (attempt.uploading.get(index, frozenset()) & attempt.gone)


# Which sign is the cause, first match wins. A node's loss often shows first as the death of the worker on it; what a
# peer says after a node was lost is its echo, whatever it says.
def settle(signs: tuple[Sign, ...], *, all_entered: bool) -> Ending:
    """The one cause of an attempt's end, from all the evidence (protocols 6.1, 6.2)."""
    roots = [sign for sign in signs if sign.kind != "collateral"]
    first = roots[0] if roots else signs[0]
    if first.kind == "death":
        first = next((sign for sign in roots if sign.kind == "lost" and sign.rank == first.rank), first)
    reclaimed = first.kind == "lost" or (first.kind == "death" and first.signal in _RECLAIM_SIGNALS)
    cause: Cause = "worker_error"
    if first.doomed and reclaimed:
        cause = "preempted"
    elif not all_entered:
        cause = "start_failed"
    elif first.kind == "lost":
        cause = "node_lost"
    elif first.kind == "death":
        cause = "worker_death"
    return Ending(cause, first.detail, first.rank, first.node_id)
