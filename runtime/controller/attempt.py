"""One attempt: its members, how far each rank is, which checkpoints are on their way, and the signs of its end. Pure.

The controller owns one of these and changes it in place. What is asked at every event is kept as sets of the ranks
that are still missing and as counts, so that no event costs a walk over all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from shaketable.runtime.controller.events import AgentId
from shaketable.runtime.controller.progress import Progress
from shaketable.runtime.log.records import Cause
from shaketable.runtime.storage.file import File

SignKind = Literal["error", "death", "lost", "hung", "collateral"]
_RECLAIM_SIGNALS = (9, 15)


@dataclass(frozen=True, slots=True)
class Sign:
    """A piece of evidence that an attempt is over. `draining`: its node had been announced to go. `left`: its agent has
    left a driver that stood still."""

    kind: SignKind
    rank: int
    node_id: str
    detail: str
    signal: int | None = None
    draining: bool = False
    left: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """Why an attempt ended; rank and node of the culprit where there is one."""

    cause: Cause
    detail: str
    rank: int | None = None
    node_id: str | None = None


@dataclass(slots=True)
class Hold:
    """All ranks are asked to stop at one report. `target` is None until every rank has answered; `patient` once it is
    clear that the function does not look: then any next commit will do. `began_s`: when they were asked."""

    reason: Literal["resized", "preempted"]
    detail: str
    began_s: float
    answers: dict[int, int] = field(default_factory=dict)
    target: int | None = None
    reached: set[int] = field(default_factory=set)
    patient: bool = False


@dataclass(slots=True)
class Hang:
    """Nobody has got any further than `lowest` for too long, since `moved_s`: the ranks that are `late`, and where each
    rank stands."""

    late: list[int]
    lowest: int | None
    silent_s: float
    moved_s: float
    where: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Threat:
    """What one view of the nodes says of the attempt's: which are announced to go (in rank order), and by when the
    first of them, if that is known (0 in Ray's view: it is not)."""

    view: int
    nodes: tuple[str, ...] = ()
    deadline_s: float | None = None
    detail: str = ""


@dataclass(slots=True)
class Candidate:
    """A checkpoint on its way. `uploading`: the ranks whose upload is under way; `votes`: the files of the others."""

    uploading: set[int] = field(default_factory=set)
    votes: dict[int, tuple[File, ...]] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True, eq=False)
class Attempt:
    """`places`: node -> the first rank on it. The sets hold ranks."""

    number: int
    members: tuple[AgentId, ...]
    nodes: tuple[str, ...]
    first_index: int
    started_s: float
    last_metrics: Mapping[str, Any]
    world_size: int = field(init=False)
    rank_of: dict[AgentId, int] = field(init=False)
    places: dict[str, int] = field(init=False)
    # not yet in the training function
    entering: set[int] = field(init=False)
    # the function has not returned
    finishing: set[int] = field(init=False)
    # neither stopped nor lost with its agent
    there: set[int] = field(init=False)
    # have not ended in any way
    unspoken: set[int] = field(init=False)
    # ranks whose agent is lost
    gone: set[int] = field(default_factory=set)
    progress: Progress = field(init=False)
    # by report index
    candidates: dict[int, Candidate] = field(default_factory=dict)
    # the lowest of them
    first: int | None = None
    # Of those that some rank had not come to, and why: what it still brings is too late.
    given_up: dict[int, str] = field(default_factory=dict)
    # By report index, why no commit came of a checkpoint that was handed over.
    uncommitted: dict[int, str] = field(default_factory=dict)
    # it may be armed
    commit_timer: bool = False
    signs: list[Sign] = field(default_factory=list)
    # Why no other attempt would fare better, if that is known.
    fatal: str = ""
    # only signs that may be collateral came in time
    echoes_only: bool = False
    hold: Hold | None = None
    # when the slowest rank last got any further
    moved_s: float = field(init=False)
    # suspected, while the stacks are taken
    hang: Hang | None = None
    # at the nodes: a notice that nobody has read yet may explain a loss
    looking: bool = False
    threat: Threat = field(default_factory=lambda: Threat(view=-1))
    # when the first notice for one of its nodes was seen
    noticed_s: float | None = None
    # how long the slowest hold for one took up to its commit
    saved_in_s: float | None = None

    def __post_init__(self) -> None:
        self.world_size, self.moved_s = len(self.members), self.started_s
        self.rank_of = {agent: rank for rank, agent in enumerate(self.members)}
        self.places = {node: rank for rank, node in reversed(tuple(enumerate(self.nodes)))}
        everyone = range(self.world_size)
        self.entering, self.finishing = set(everyone), set(everyone)
        self.there, self.unspoken = set(everyone), set(everyone)
        self.progress = Progress(self.world_size, self.first_index - 1)

    @property
    def all_entered(self) -> bool:
        return not self.entering

    @property
    def any_finished(self) -> bool:
        return len(self.finishing) < self.world_size

    @property
    def all_finished(self) -> bool:
        return not self.finishing

    @property
    def all_stopped(self) -> bool:
        return not self.there

    @property
    def all_spoke(self) -> bool:
        """Every rank has ended one way or another."""
        return not self.unspoken

    # ---- the ranks, one by one

    def enter(self, rank: int) -> None:
        self.entering.discard(rank)

    def finish(self, rank: int) -> None:
        self.finishing.discard(rank)
        self.unspoken.discard(rank)
        self.progress.finish(rank)

    def stop(self, rank: int) -> None:
        self.there.discard(rank)
        self.unspoken.discard(rank)

    def lose(self, rank: int) -> None:
        """Its agent is gone, and with it whatever it was uploading."""
        self.gone.add(rank)
        self.stop(rank)
        for index in [k for k, candidate in self.candidates.items() if rank in candidate.uploading]:
            dropped(self, index, f"the agent of rank {rank} was lost while it uploaded its part")


# ---- checkpoints on their way


def reported(attempt: Attempt, rank: int, index: int, metrics: Mapping[str, Any], *, uploading: bool) -> None:
    if index <= attempt.progress.watermarks[rank]:
        # It has been heard, and may have been committed: a directory on record is written once.
        return
    attempt.progress.reach(rank, index)
    if rank == 0:
        attempt.last_metrics = metrics
    if not uploading:
        return
    if index in attempt.given_up:
        attempt.uncommitted.setdefault(index, attempt.given_up[index])
        return
    candidate = attempt.candidates.get(index)
    if candidate is None:
        candidate = attempt.candidates[index] = Candidate(metrics=metrics)
        attempt.first = index if attempt.first is None else min(attempt.first, index)
    elif rank == 0:
        candidate.metrics = metrics
    candidate.uploading.add(rank)


def uploaded(attempt: Attempt, rank: int, index: int, files: tuple[File, ...]) -> None:
    """The rank's vote, with its files."""
    candidate = attempt.candidates[index]
    candidate.uploading.discard(rank)
    candidate.votes[rank] = files


def refused(attempt: Attempt, rank: int, index: int, why: str) -> None:
    """The rank's no: it has left the report, and no commit will come of it."""
    dropped(attempt, index, why)
    attempt.progress.reach(rank, index)


def dropped(attempt: Attempt, index: int, why: str = "") -> None:
    """The candidate at `index` is settled: committed, or (`why`) given up, also for ranks that have yet to come."""
    if not attempt.progress.all_passed(index):
        attempt.given_up[index] = why
    if attempt.candidates.pop(index, None) is not None and why:
        attempt.uncommitted.setdefault(index, why)
    if attempt.first == index:
        attempt.first = min(attempt.candidates, default=None)


def complete(attempt: Attempt, index: int) -> bool:
    """Every rank has voted for `index`: by its upload, or by passing it without one (promise commit-1)."""
    candidate = attempt.candidates[index]
    return not candidate.uploading and bool(candidate.votes) and attempt.progress.all_passed(index)


def can_complete(attempt: Attempt, index: int) -> bool:
    """After the workers are gone: every rank has passed `index`, and every upload still under way has its agent."""
    return attempt.progress.all_passed(index) and attempt.gone.isdisjoint(attempt.candidates[index].uploading)


# Which sign is the cause, first match wins. A node's loss often shows first as the death of the worker on it; what a
# peer says after a node was lost is its echo, whatever it says.
def decide_cause(signs: Sequence[Sign], *, all_entered: bool) -> Ending:
    """The one cause of an attempt's end, from all the evidence (promises cause-1 to cause-4)."""
    roots = [sign for sign in signs if sign.kind != "collateral"]
    first = roots[0] if roots else signs[0]
    if first.kind in ("death", "hung"):
        same = {sign.rank for sign in roots if sign.kind == "hung"} | {first.rank}
        first = next((sign for sign in roots if sign.kind == "lost" and sign.rank in same), first)
    reclaimed = first.kind == "lost" or (first.kind == "death" and first.signal in _RECLAIM_SIGNALS)
    cause: Cause = "worker_error"
    if first.draining and reclaimed:
        cause = "preempted"
    elif first.left:
        # whoever stood still is to blame, and no node
        return Ending("driver_lost", first.detail)
    elif not all_entered:
        cause = "start_failed"
    elif first.kind == "lost":
        cause = "node_lost"
    elif first.kind == "hung":
        cause = "hung"
    # an abort may be an echo, but it never is an exception
    elif first.kind == "death" or first.signal is not None:
        cause = "worker_death"
    return Ending(cause, first.detail, first.rank, first.node_id)
