"""What can be said of a run of which nothing was recorded: the worker groups that others' events tell of, and how each
ended. They know no steps, so each ending gets one that stands in for it; what else is lacking is named. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.incidents.recorded_attempts import Incident, RecordedAttempt, Term

# between two endings, where nobody knows
STEPS_APART = 10
ACCOUNTS = {
    "worker_death": "max_failures",
    "worker_error": "max_failures",
    "worker_hung": "max_failures",
    "node_lost": "max_failures",
    "preempted": "max_preemption_failures",
    "start_failed": "max_start_failures",
}


@dataclass(frozen=True, slots=True)
class Group:
    """`cause` None: it is still there, or its end is not on record. `told`: the words that say so."""

    workers: int
    cause: str | None
    rank: int | None = None
    told: str = ""


@dataclass(frozen=True, slots=True)
class Logged:
    """`settings`: what the trainer was given, as far as it is on record. `lacks`: what is not, each with what stands in
    for it."""

    kind: str
    groups: tuple[Group, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    outcome: str | None = None
    lacks: tuple[str, ...] = ()


def incident_of_losses(logged: Logged) -> Incident:
    """Raises ExperimentError where nothing was lost."""
    if all(group.cause in (None, "finished") for group in logged.groups):
        raise ExperimentError("it tells of no worker, node or driver that was lost: there is nothing to reproduce")
    attempts, terms = _attempts(logged.groups)
    settings, lacks = _settings(logged, attempts)
    return Incident(
        "ray-train",
        "",
        {},
        tuple(Term(number, False, settings) for number in range(1, terms + 1)),
        attempts,
        logged.outcome,
        True,
        (_steps_lack(attempts), *_ranks_lack(logged.groups), *_outcome_lack(logged), *lacks, *logged.lacks),
    )


def _attempts(groups: Sequence[Group]) -> tuple[tuple[RecordedAttempt, ...], int]:
    """With the number of drivers that there were."""
    attempts: list[RecordedAttempt] = []
    term, first = 1, 1
    for number, group in enumerate(groups, 1):
        ended = group.cause not in (None, "finished")
        fatal = first + STEPS_APART - (number == 1) if ended else first
        account = ACCOUNTS.get(group.cause or "")
        commits = tuple(range(first, fatal))
        rank = group.workers - 1 if group.rank is None and group.cause in ACCOUNTS else group.rank
        attempts.append(
            RecordedAttempt(number, term, group.workers, first, fatal, commits, group.cause, account, rank, None)
        )
        first = fatal
        term += group.cause in ("driver_lost", "interrupted") and number < len(groups)
    return tuple(attempts), term


def _steps_lack(attempts: Sequence[RecordedAttempt]) -> str:
    at = ", ".join(str(attempt.fatal) for attempt in attempts if attempt.cause not in (None, "finished"))
    return f"not on record: the steps at which attempts ended; {at} stand in for them: set `step` of each `at`"


def _ranks_lack(groups: Sequence[Group]) -> list[str]:
    if all(group.rank is not None for group in groups if group.cause in ACCOUNTS):
        return []
    return ["not on record: the ranks that were hit; the last one stands in for them: set `target`"]


def _outcome_lack(logged: Logged) -> list[str]:
    return [] if logged.outcome else ["not on record: how the run ended; it is expected to finish: set `outcome`"]


def _settings(logged: Logged, attempts: Sequence[RecordedAttempt]) -> tuple[dict[str, Any], list[str]]:
    """What was given, and in place of what is not on record, what lets the run get by."""
    sizes = [attempt.world_size for attempt in attempts]
    least, most = min(sizes), max(sizes)
    charged = sum(attempt.account == "max_failures" for attempt in attempts)
    instead = {"num_workers": most if least == most else [least, most], "max_failures": charged}
    missing = {key: value for key, value in instead.items() if key not in logged.settings}
    lacks = [f"not on record: {key}; {value} stands in for it: set {key}" for key, value in missing.items()]
    return {**missing, **logged.settings}, lacks
