"""What the controller did, as entries in the order that counts. Where the subject has a durable log, its records are
that list (a driver killed between writing a record and recording it has still written it); else it is the
controller's own events, by term."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shaketable.chaos.history.events import (
    AnyEvent,
    AttemptEnded,
    AttemptStarted,
    CheckpointDeleted,
    CheckpointQuarantined,
    CheckpointReinstated,
    Committed,
    HistoryError,
    LogRecord,
    RunEnded,
    TermBegan,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """`position` is the place in the order that counts, `number` the log number where there is a log."""

    position: int
    number: int | None
    at_s: float
    term: int

    @property
    def place(self) -> str:
        return f"term {self.term}" if self.number is None else f"log record {self.number}"


@dataclass(frozen=True, slots=True)
class Opening(Entry):
    """A driver took over. `spent` is what it said it starts from, None where it did not say."""

    reopened: bool
    spent: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class Start(Entry):
    attempt: int
    world_size: int
    # rank, node id
    members: tuple[tuple[int, str], ...]
    resume: str | None
    tier: str = ""


@dataclass(frozen=True, slots=True)
class Commit(Entry):
    attempt: int
    index: int
    checkpoint: str
    files: int | None = None


@dataclass(frozen=True, slots=True)
class Deletion(Entry):
    checkpoint: str


@dataclass(frozen=True, slots=True)
class QuarantinedCheckpoint(Entry):
    checkpoint: str


@dataclass(frozen=True, slots=True)
class Reinstatement(Entry):
    checkpoint: str


@dataclass(frozen=True, slots=True)
class End(Entry):
    attempt: int
    cause: str
    account: str | None
    detail: str = ""
    node_id: str | None = None
    # by the driver's clock, before the record was on its way
    settled_s: float = 0.0
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class QuarantinedNode(Entry):
    """Nothing is to run on the node before `until_s`."""

    node_id: str
    until_s: float


@dataclass(frozen=True, slots=True)
class Move(Entry):
    """To another tier."""

    tier: str


@dataclass(frozen=True, slots=True)
class Finale(Entry):
    outcome: str
    error: str | None
    metrics: Mapping[str, Any] | None


def from_log(log: Sequence[LogRecord], terms: Sequence[TermBegan]) -> tuple[Entry, ...]:
    """Raises HistoryError for a record that is not as it must be."""
    spent = {event.term: event.spent for event in terms}
    records = sorted(log, key=lambda event: event.number)
    entries = []
    for position, event in enumerate(records):
        record = event.record
        if record.get("kind") == "opened":
            record = {**record, "spent": spent.get(record.get("term", 0))}
        make = _RECORDS.get(record.get("kind", ""))
        if make is None:
            # kinds that say nothing to an invariant
            continue
        try:
            entries.append(make((position, event.number, float(record.get("at_s", 0.0)), record["term"]), record))
        except (KeyError, TypeError) as error:
            raise HistoryError(f"log record {event.number}: not as expected: {error!r}") from error
    return tuple(entries)


_Stem = tuple[int, int | None, float, int]
_RECORDS: dict[str, Callable[[_Stem, Mapping[str, Any]], Entry]] = {
    "opened": lambda stem, r: Opening(*stem, bool(r.get("reopened", False)), r["spent"]),
    "attempt_started": lambda stem, r: Start(
        *stem,
        r["attempt"],
        r["world_size"],
        tuple((m["rank"], m["node_id"]) for m in r["members"]),
        r["resume"],
        r.get("tier", ""),
    ),
    "tier_changed": lambda stem, r: Move(*stem, r["tier"]),
    "checkpoint_committed": lambda stem, r: Commit(
        *stem, r["attempt"], r["index"], r["checkpoint"], len(r.get("files", ()))
    ),
    "checkpoint_deleted": lambda stem, r: Deletion(*stem, r["checkpoint"]),
    "checkpoint_quarantined": lambda stem, r: QuarantinedCheckpoint(*stem, r["checkpoint"]),
    "checkpoint_reinstated": lambda stem, r: Reinstatement(*stem, r["commit"]["checkpoint"]),
    "node_quarantined": lambda stem, r: QuarantinedNode(*stem, r["node_id"], r["until_s"]),
    "attempt_ended": lambda stem, r: End(
        *stem,
        r["attempt"],
        r["cause"],
        r["account"],
        r.get("detail", ""),
        r.get("node_id"),
        r.get("settled_s", 0.0),
        r.get("rank"),
    ),
    "run_finished": lambda stem, r: Finale(*stem, "finished", None, r.get("metrics")),
    "run_failed": lambda stem, r: Finale(*stem, "failed", r.get("error"), None),
}


def from_events(events: Sequence[AnyEvent]) -> tuple[Entry, ...]:
    """In the order of the terms, and within a term as it was recorded."""
    kinds = (
        TermBegan,
        AttemptStarted,
        Committed,
        CheckpointDeleted,
        CheckpointQuarantined,
        CheckpointReinstated,
        AttemptEnded,
        RunEnded,
    )
    adopted = _adopted(events)
    said = sorted(
        (event for event in events if isinstance(event, kinds) and event not in adopted), key=lambda event: event.term
    )
    entries: list[Entry] = []
    failed = False
    for position, event in enumerate(said):
        entries.append(_entry((position, None, event.at_s, event.term), event, failed))
        if isinstance(event, RunEnded):
            failed = event.outcome == "failed"
    return tuple(entries)


def _adopted(events: Sequence[AnyEvent]) -> list[Committed]:
    """Commits that a successor recorded for its predecessor, which was alive after all and did so too."""
    writers = {event.term: event.writer for event in events if isinstance(event, TermBegan)}
    commits = [event for event in events if isinstance(event, Committed)]
    own = {event.checkpoint for event in commits if event.writer == writers.get(event.term)}
    return [e for e in commits if e.checkpoint in own and e.writer != writers.get(e.term)]


def _entry(
    stem: _Stem,
    event: TermBegan
    | AttemptStarted
    | Committed
    | CheckpointDeleted
    | CheckpointQuarantined
    | CheckpointReinstated
    | AttemptEnded
    | RunEnded,
    failed_before: bool,
) -> Entry:
    match event:
        case TermBegan():
            return Opening(*stem, failed_before, event.spent)
        case AttemptStarted():
            members = tuple((member.rank, member.node_id) for member in event.members)
            return Start(*stem, event.attempt, event.world_size, members, event.resume)
        case Committed():
            return Commit(*stem, event.attempt, event.index, event.checkpoint)
        case CheckpointDeleted():
            return Deletion(*stem, event.checkpoint)
        case CheckpointQuarantined():
            return QuarantinedCheckpoint(*stem, event.checkpoint)
        case CheckpointReinstated():
            return Reinstatement(*stem, event.checkpoint)
        case AttemptEnded():
            return End(*stem, event.attempt, event.cause, event.account, event.detail)
        case RunEnded():
            return Finale(*stem, event.outcome, event.error, event.metrics)
