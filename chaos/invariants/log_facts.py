"""What the run log says against what `fit()`, the workers and the experiment say: metrics, files, report indices,
error texts and the configuration. A part of truthful-ending, for subjects with a log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shaketable.chaos.fault_kinds import kind_of
from shaketable.chaos.history.events import (
    AttemptEnded,
    CheckpointProbed,
    FaultInjected,
    LogRecord,
    RunEnded,
    Stepped,
    UploadStarted,
)
from shaketable.chaos.history.view import Attempt, History, report_index
from shaketable.chaos.invariants.ledger import OWN_FAILURE, expected
from shaketable.chaos.invariants.recorded_configuration import wrong_configuration

CHECKSUM = re.compile(r"\w+:[0-9a-f]+")
# what a worker of our own job raises: because a fault asks for it, and because its configuration says so
ON_PURPOSE, PLANNED = "InjectedError", "PlannedFailure"


def wrong_facts(history: History) -> Iterator[str]:
    """What the log has on record, and others know otherwise."""
    for event in history.all(LogRecord):
        look = _LOOKS.get(str(event.record.get("kind")))
        for wrong in look(history, event.record) if look is not None else ():
            yield f"log record {event.number} {wrong}"


def _started(history: History, record: Mapping[str, Any]) -> Iterator[str]:
    """The first report of an attempt is the one after the commit that it resumes from."""
    attempt = history.attempt(record.get("term"), record.get("attempt"))
    if attempt is None or "first_index" not in record:
        return
    latest = history.latest_commit(attempt.start.position)
    expected = 1 if record.get("resume") is None or latest is None else latest.index + 1
    if record["first_index"] != expected:
        yield f"begins {attempt.name} with report {record['first_index']}, the next one is {expected}"
    for rank, first in _first_reports(attempt):
        if first != expected:
            yield f"begins {attempt.name} with report {expected}, rank {rank} began with {first}"


def _first_reports(attempt: Attempt) -> Iterator[tuple[int, int]]:
    for rank, steps in sorted(attempt.steps.items()):
        yield rank, min(step.first if step.index is None else report_index(step) for step in steps)


def _committed(history: History, record: Mapping[str, Any]) -> Iterator[str]:
    name, files = record.get("checkpoint"), record.get("files") or []
    paths = [file.get("path") for file in files]
    if len(set(paths)) != len(paths):
        yield f"lists a file of {name} twice"
    for file in files:
        if not CHECKSUM.fullmatch(str(file.get("checksum"))) or not isinstance(file.get("size"), int):
            yield f"lists {file.get('path')} of {name} without size or checksum"
    yield from _otherwise_read(history, str(name), files)
    attempt = history.attempt(record.get("term"), record.get("attempt"))
    steps = [step for rank in sorted(attempt.steps) for step in attempt.steps[rank]] if attempt else []
    handed = [step for step in steps if step.checkpoint and report_index(step) == record.get("index")]
    said = record.get("metrics") or {}
    # rank 0's, where it handed one over
    handed = [step for step in handed if step.rank == 0] or handed
    known = [metrics for step in handed if (metrics := _reported(history, step))]
    if said and known and not any(_agree(said, metrics) for metrics in known):
        yield f"has {name} with metrics {dict(said)}, the workers reported {known[0]}"


def _otherwise_read(history: History, name: str, files: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The harness has read the same files, and measured them itself."""
    read = history.once(_read).get(name, {})
    for file in files:
        said, found = (file.get("size"), file.get("checksum")), read.get(str(file.get("path")))
        if found is not None and said != found:
            yield f"lists {file['path']} of {name} as {_measured(*said)}, it is {_measured(*found)}"


def _read(history: History) -> dict[str, dict[str, tuple[int, str]]]:
    return {probe.checkpoint: probe.read for probe in history.all(CheckpointProbed) if probe.read is not None}


def _measured(size: object, checksum: object) -> str:
    return f"{size} bytes with {checksum}"


def _ended(history: History, record: Mapping[str, Any]) -> Iterator[str]:
    """With the error that the driver told, and that a worker of our own job raised."""
    which, detail = (record.get("term"), record.get("attempt")), str(record.get("detail", ""))
    said = next((event.detail for event in history.all(AttemptEnded) if (event.term, event.attempt) == which), detail)
    if said != detail:
        yield f"ends attempt {which[1]} with {_last_line(detail)!r}, its driver said {_last_line(said)!r}"
    attempt = history.attempt(*which)
    if attempt is None or record.get("cause") != "worker_error" or not history.hash_chained:
        return
    reasons = {reason.fault for reason in expected(history, attempt).faults}
    raising = [event for event in history.all(FaultInjected) if event.fault in reasons]
    known = {ON_PURPOSE for event in raising if _asks_to_raise(event)}
    known |= {PLANNED} if OWN_FAILURE in reasons else set()
    told = next((name for name in (ON_PURPOSE, PLANNED) if f"{name}: " in detail), None)
    if (told is None and _raised_nothing_else(history, raising)) or (told is not None and told not in known):
        yield f"ends {attempt.name} with {_last_line(detail)!r}, its worker raised {' or '.join(sorted(known))}"


def _raised_nothing_else(history: History, hit: Sequence[FaultInjected]) -> bool:
    """Whether a worker of that attempt can have had no other error: none of the storage's, nor an echo."""
    others = {kind_of(event.name).loss for event in history.all(FaultInjected)} & {"storage", "checkpoint"}
    return not history.disturbed and not others and all(_asks_to_raise(event) for event in hit)


def _asks_to_raise(fault: FaultInjected) -> bool:
    """Whether it is ours, and makes the training function raise; what another package's raises is not known."""
    kind = kind_of(fault.name)
    return kind.manner == "raises" and kind.causes == ("worker_error",) and kind.__module__.startswith("shaketable.")


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def _reported(history: History, step: Stepped) -> Mapping[str, Any]:
    """The metrics that went with a report, as far as they were recorded."""
    if step.metrics or not history.hash_chained:
        return step.metrics or {}
    return {"step": step.step, "digest": step.digest, "rank": step.rank}


def _agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """In every metric that both have."""
    return all(one[key] == other[key] for key in one.keys() & other.keys())


def _finished(history: History, record: Mapping[str, Any]) -> Iterator[str]:
    said = [e for e in history.all(RunEnded) if e.outcome == "finished" and e.term == record.get("term")]
    for event in said:
        if event.metrics is not None and event.metrics != (record.get("metrics") or {}):
            yield f"ends the run with metrics {record.get('metrics')}, fit() gave {event.metrics}"
    last = history.attempts[-1].steps.get(0, []) if history.attempts else []
    metrics = record.get("metrics") or {}
    known = _reported(history, last[-1]) if last and said else {}
    if wrong := sorted(key for key in metrics.keys() & known.keys() if metrics[key] != known[key]):
        key = wrong[0]
        yield f"ends the run with {key} {metrics[key]}, the last report of rank 0 had {known[key]}"
    yield from _not_handed_over(history, [each.get("index") for each in record.get("uncommitted") or ()])


def _not_handed_over(history: History, uncommitted: Sequence[object]) -> Iterator[str]:
    """What is named as not committed was handed over in the last attempt, and not committed in it."""
    if not history.hash_chained or not history.attempts:
        return
    last = history.attempts[-1]
    of = (last.start.term, last.number)
    handed = {event.step for event in history.all(UploadStarted) if (event.term, event.attempt) == of}
    committed = {commit.index for commit in last.commits}
    for index in uncommitted:
        if index in committed:
            yield f"names report {index} as not committed, and {last.name} committed it"
        elif index not in handed:
            yield f"names report {index} as not committed, and no rank of {last.name} handed it over"


_LOOKS = {
    "opened": wrong_configuration,
    "attempt_started": _started,
    "checkpoint_committed": _committed,
    "attempt_ended": _ended,
    "run_finished": _finished,
}
