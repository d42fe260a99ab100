"""What the run log says against what `fit()`, the workers and the experiment say: metrics, files, report indices and
the configuration. A part of truthful-ending, for subjects with a log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from shaketable.chaos.history.events import LogRecord, RunEnded, Stepped
from shaketable.chaos.history.view import Attempt, History, report_index

CHECKSUM = re.compile(r"\w+:[0-9a-f]+")
# Of what each driver was given, the keys that its record calls the same.
CONFIGURED = (
    "max_start_failures",
    "max_failures_without_progress",
    "num_to_keep",
    "elastic_resize_monitor_interval_s",
    "heartbeat_timeout_s",
    "notice_window_s",
    "replacement_wait_s",
    "storage_outage_s",
)
# with tiers these are the tiers'
LIMITS = ("max_failures", "max_preemption_failures")


def wrong_facts(history: History) -> Iterator[str]:
    """What the log has on record, and others know otherwise."""
    for event in history.all(LogRecord):
        look = _LOOKS.get(str(event.record.get("kind")))
        for wrong in look(history, event.record) if look is not None else ():
            yield f"log record {event.number} {wrong}"


def _opened(history: History, record: Mapping[str, Any]) -> Iterator[str]:
    said = record.get("configuration") or {}
    given = history.settings(int(record.get("term", 0)))
    if not said or history.script:
        return
    wanted: dict[str, Any] = {key: getattr(given, key) for key in CONFIGURED}
    if not given.tiers:
        wanted |= {key: getattr(given, key) for key in LIMITS}
    if not history.own_job:
        wanted["train_loop_config"] = given.job_config
    for key, value in wanted.items():
        if key in said and said[key] != value:
            yield f"has {key} {said[key]}, the driver was given {value}"
    bounds = given.num_workers if isinstance(given.num_workers, tuple) else (given.num_workers,) * 2
    recorded = said.get("num_workers", list(bounds))
    if (recorded if isinstance(recorded, list) else [recorded] * 2) != list(bounds):
        yield f"has num_workers {recorded}, the driver was given {list(bounds)}"


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
    attempt = history.attempt(record.get("term"), record.get("attempt"))
    steps = [step for rank in sorted(attempt.steps) for step in attempt.steps[rank]] if attempt else []
    handed = [step for step in steps if step.checkpoint and report_index(step) == record.get("index")]
    said = record.get("metrics") or {}
    # rank 0's, where it handed one over
    handed = [step for step in handed if step.rank == 0] or handed
    known = [metrics for step in handed if (metrics := _reported(history, step))]
    if said and known and not any(_agree(said, metrics) for metrics in known):
        yield f"has {name} with metrics {dict(said)}, the workers reported {known[0]}"


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


_LOOKS = {"opened": _opened, "attempt_started": _started, "checkpoint_committed": _committed, "run_finished": _finished}
