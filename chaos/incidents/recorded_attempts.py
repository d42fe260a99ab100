"""What a run went through, from its record alone: its attempts, where each was when it ended, and what was charged.

The record is a run log, a history of the harness, or one of `shaketable.Recorder`; all three are events by the time
they come here. What is made of it is an experiment (`reproduction.py`). Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.history.entries import End, Finale, Opening, Start
from shaketable.chaos.history.events import AnyEvent, AttemptEnded, FaultInjected, LogRecord, Reported, Stepped
from shaketable.chaos.history.view import Attempt, History

# what a launch of a run may differ in
SETTINGS = ("num_workers", "max_failures", "max_preemption_failures")
NAMED_BY = 8
_SIGNAL = re.compile(r"signal (\d+)")


@dataclass(frozen=True, slots=True)
class RecordedAttempt:
    """One attempt. `first` is its first report, `fatal` the one that it was at when it ended: the last one begun, or
    the one after the last that was known to be done. `cause` None: it is still open."""

    number: int
    term: int
    world_size: int
    first: int
    fatal: int
    commits: tuple[int, ...]
    cause: str | None
    account: str | None
    rank: int | None
    signal: int | None


@dataclass(frozen=True, slots=True)
class Term:
    """One driver. `settings`: what it was given of SETTINGS. `reopened`: the run had failed before it."""

    number: int
    reopened: bool
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Incident:
    """`outcome` None: the record breaks off, or the run goes on. `knows_steps`: the record has steps, not only commits.
    `job` "": the record does not say what was trained."""

    subject: str
    job: str
    job_config: Mapping[str, Any]
    terms: tuple[Term, ...]
    attempts: tuple[RecordedAttempt, ...]
    outcome: str | None
    knows_steps: bool
    # what it does not know, and what stands in for that
    lacks: tuple[str, ...] = ()

    @property
    def charged(self) -> Counter[str]:
        return Counter(attempt.account for attempt in self.attempts if attempt.account is not None)

    @property
    def grew(self) -> bool:
        return any(attempt.cause == "resized" for attempt in self.attempts)

    @property
    def checkpoint_every(self) -> int | None:
        """The usual distance between two commits; None where there were none to tell it by."""
        gaps: Counter[int] = Counter()
        for attempt in self.attempts:
            gaps.update(after - before for before, after in pairwise((attempt.first - 1, *attempt.commits)))
        return gaps.most_common(1)[0][0] if gaps else None


def incident_of(events: Sequence[AnyEvent]) -> Incident:
    """Raises ExperimentError where the record holds no attempt."""
    history = History(events)
    if not history.attempts:
        raise ExperimentError(
            "the record holds no attempt: nothing has happened that could be reproduced. Was the run ever started?"
        )
    reports = _reports(history)
    said = _endings(history)
    attempts = tuple(_recorded_attempts(history, attempt, reports, said) for attempt in history.attempts)
    job, job_config = _job(history)
    return Incident(history.subject, job, job_config, _terms(history), attempts, _outcome(history), bool(reports))


# ---- attempts ------------------------------------------------------------------------------------------------

# term and number of the attempt's start
_Key = tuple[int, int]


def _key(attempt: Attempt) -> _Key:
    return attempt.start.term, attempt.number


def _reports(history: History) -> dict[_Key, tuple[int, int]]:
    """By attempt: the last report that any rank has begun, and the last one known to be done."""
    last: dict[_Key, tuple[int, int]] = {}
    # then `step` is something else
    keyed = any(event.index is not None for event in history.all(Stepped))
    for event in history.events:
        if not isinstance(event, Stepped | Reported) or (keyed and isinstance(event, Reported)):
            continue
        attempt = history.attempt(event.term, event.attempt)
        if attempt is not None:
            index = event.index or event.step if isinstance(event, Stepped) else event.step
            begun, done = last.get(_key(attempt), (0, 0))
            told = isinstance(event, Reported)
            last[_key(attempt)] = (max(begun, index), max(done, index) if told else done)
    return last


def _endings(history: History) -> dict[_Key, tuple[int | None, str]]:
    """By attempt: the rank that its ending names, and its own words."""
    said: dict[_Key, tuple[int | None, str]] = {}
    for event in history.events:
        term: int | None
        number: int | None
        # what the harness hit counts where the subject itself names nobody
        if isinstance(event, FaultInjected):
            term, number, rank, detail = event.term, event.attempt, min(event.ranks, default=None), ""
        elif isinstance(event, AttemptEnded):
            term, number, rank, detail = event.term, event.attempt, event.rank, event.detail
        elif isinstance(event, LogRecord) and event.record.get("kind") == "attempt_ended":
            record = event.record
            term, number = record["term"], record["attempt"]
            rank, detail = record.get("rank"), record.get("detail", "")
        else:
            continue
        if (attempt := history.attempt(term, number)) is not None:
            known = said.get(_key(attempt), (None, ""))
            said[_key(attempt)] = (known[0] if rank is None else rank, detail or known[1])
    return said


def _recorded_attempts(
    history: History,
    attempt: Attempt,
    reports: Mapping[_Key, tuple[int, int]],
    said: Mapping[_Key, tuple[int | None, str]],
) -> RecordedAttempt:
    first = _first(history, attempt.start)
    begun, done = reports.get(_key(attempt), (0, 0))
    commits = tuple(sorted({commit.index for commit in attempt.commits}))
    done = max(done, first - 1, *commits)
    rank, detail = said.get(_key(attempt), (None, ""))
    rank = _rank_on(attempt.start, detail) if rank is None else rank
    signal = _SIGNAL.search(detail)
    open_end = history.following(attempt) is None
    cause = attempt.end.cause if attempt.end else None if open_end else "driver_lost"
    return RecordedAttempt(
        attempt.number,
        attempt.start.term,
        attempt.world_size,
        first,
        begun if begun > done else done + 1,
        commits,
        cause,
        attempt.end.account if attempt.end else None,
        rank,
        int(signal[1]) if signal else None,
    )


def _rank_on(start: Start, detail: str) -> int | None:
    """Of the node that the ending's words name, as the runtime names nodes: by the beginning of their id."""
    named = (rank for rank, node in sorted(start.members) if len(node) >= NAMED_BY and node[:NAMED_BY] in detail)
    return next(named, None)


def _first(history: History, start: Start) -> int:
    """The report after the checkpoint that it resumed from."""
    indices = [commit.index for commit in history.commits if commit.checkpoint == start.resume]
    return indices[-1] + 1 if indices else 1


# ---- the run -------------------------------------------------------------------------------------------------


def _terms(history: History) -> tuple[Term, ...]:
    opened = {
        event.record["term"]: event.record.get("configuration", {})
        for event in history.all(LogRecord)
        if event.record.get("kind") == "opened"
    }
    return tuple(
        Term(entry.term, entry.reopened, _settings(history, entry.term, opened.get(entry.term, {})))
        for entry in history.of(Opening)
    )


def _settings(history: History, term: int, opened: Mapping[str, Any]) -> dict[str, Any]:
    """The log's own word where it has one: a driver may have been given something else than the harness knows of."""
    given = {key: opened[key] for key in SETTINGS if key in opened} or asdict(history.settings(term))
    settings = {key: given[key] for key in SETTINGS if key in given}
    workers = settings.get("num_workers")
    if isinstance(workers, list | tuple):
        settings["num_workers"] = workers[0] if workers[0] == workers[1] else [workers[0], workers[1]]
    return settings


def _job(history: History) -> tuple[str, Mapping[str, Any]]:
    """As the experiment said; of a production run only what its trainer was given."""
    if history.began is not None and not history.began.recorded:
        return history.configuration.job, history.configuration.job_config
    opened = [e.record for e in history.all(LogRecord) if e.record.get("kind") == "opened"]
    given = opened[-1].get("configuration", {}).get("train_loop_config") if opened else None
    return "", given if isinstance(given, dict) else {}


def _outcome(history: History) -> str | None:
    """How the run ended, if the last thing on record is an end."""
    outcome: str | None = None
    for entry in history.entries:
        if isinstance(entry, Opening | Start):
            outcome = None
        elif isinstance(entry, Finale):
            outcome = entry.outcome
        elif isinstance(entry, End) and entry.cause == "interrupted":
            outcome = "interrupted"
    return outcome
