"""Worker groups of Ray Train in the events that Ray itself writes: its export files (`RAY_enable_export_api_write`),
and the files of KubeRay's History Server, which keeps what Ray's aggregator sends.

A worker is an actor of the class RayTrainWorker, and a group is what shares a placement group. With
`RAY_TRAIN_ENABLE_STATE_TRACKING` the export has the run and its attempts as well: ranks, budget and outcome.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from shaketable.chaos.incidents.logged_losses import Group, Logged

WORKER = "RayTrainWorker"
EXPORTED, AGGREGATED = "Ray export", "History Server"
# How Ray words it that its user, here Ray Train's controller, has ended an actor.
ON_PURPOSE = ("killed by `ray.kill`", "all references to the actor were removed", "went out of scope")
NODE_GONE = ("node_died", "node has died", "node died", "node is dead", "node was terminated")
WORKER_GONE = ("ActorDiedError", "actor died", "actor is dead", "ActorUnavailableError", "actor is unavailable")
PREEMPTED = "AUTOSCALER_DRAIN_PREEMPTED"
# said by a raylet that is alive
ITS_PROCESS = "worker process has died"
# how late Ray sees that a node is gone, and something on top of it
SEEN_WITHIN_S = 90.0
_RANK = re.compile(r"\[Rank (\d+)")


@dataclass(slots=True)
class _Worker:
    """`died_by`: the first thing that was said of its death, `died_s` when."""

    group: str = ""
    job: str = ""
    node: str = ""
    began_s: float = 0.0
    died_by: str | None = None
    died_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Gone:
    """A node that is dead."""

    reason: str
    at_s: float

    def ended(self, at_s: float) -> bool:
        """Whether it may have been what ended something at that time."""
        return abs(self.at_s - at_s) <= SEEN_WITHIN_S


@dataclass(slots=True)
class _Seen:
    """By id. `dead`: nodes; `runs`, `attempts`: the last that was said of each."""

    workers: defaultdict[str, _Worker] = field(default_factory=lambda: defaultdict(_Worker))
    others: set[str] = field(default_factory=set)
    dead: dict[str, _Gone] = field(default_factory=dict)
    runs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    attempts: dict[str, Mapping[str, Any]] = field(default_factory=dict)


def is_event(record: Any) -> bool:
    return isinstance(record, dict) and (_is_exported(record) or _is_aggregated(record))


def _is_exported(record: Mapping[str, Any]) -> bool:
    return str(record.get("source_type", "")).startswith("EXPORT_") and isinstance(record.get("event_data"), dict)


def _is_aggregated(record: Mapping[str, Any]) -> bool:
    return "eventType" in record and "sessionName" in record


def read(records: Iterable[Mapping[str, Any]]) -> Logged:
    """Of the run that began last."""
    seen, kind = _Seen(), EXPORTED
    for record in records:
        if _is_exported(record):
            _exported(seen, record)
        elif _is_aggregated(record):
            kind = AGGREGATED
            _aggregated(seen, record)
    return _of_attempts(seen) if seen.attempts else _of_workers(seen, kind)


# ---- what was said ---------------------------------------------------------------------------------------------------


def _exported(seen: _Seen, record: Mapping[str, Any]) -> None:
    data: Mapping[str, Any] = record["event_data"]
    match record["source_type"]:
        case "EXPORT_ACTOR" if data.get("class_name") == WORKER:
            worker = seen.workers[data["actor_id"]]
            worker.group, worker.job = data.get("placement_group_id", ""), data.get("job_id", "")
            worker.began_s = worker.began_s or float(record.get("timestamp", 0))
            worker.node = data.get("node_id") or worker.node
            if data.get("state") == "DEAD":
                _died(worker, data.get("death_cause") or {}, float(record.get("timestamp", 0)))
        case "EXPORT_NODE" if data.get("state") == "DEAD":
            reason = str((data.get("death_info") or {}).get("reason", ""))
            seen.dead[data["node_id"]] = _Gone(reason, float(record.get("timestamp", 0)))
        case "EXPORT_TRAIN_RUN":
            seen.runs[data["id"]] = data
        case "EXPORT_TRAIN_RUN_ATTEMPT":
            seen.attempts[data["attempt_id"]] = data
        case _:
            return


def _aggregated(seen: _Seen, record: Mapping[str, Any]) -> None:
    if defined := record.get("actorDefinitionEvent"):
        if defined.get("className") == WORKER:
            worker = seen.workers[defined["actorId"]]
            worker.group, worker.job = defined.get("placementGroupId", ""), defined.get("jobId", "")
            worker.began_s = _seconds(record.get("timestamp"))
        else:
            seen.others.add(defined["actorId"])
    for change in _changes(record, "actorLifecycleEvent"):
        worker = seen.workers[record["actorLifecycleEvent"]["actorId"]]
        worker.node = change.get("nodeId") or worker.node
        if change.get("state") == "DEAD":
            _died(worker, change.get("deathCause") or {}, _seconds(change.get("timestamp")))
    for change in _changes(record, "nodeLifecycleEvent"):
        if change.get("state") == "DEAD":
            reason = (change.get("deathInfo") or {}).get("reason", "")
            gone = _Gone(str(reason), _seconds(change.get("timestamp")))
            seen.dead[record["nodeLifecycleEvent"]["nodeId"]] = gone


def _changes(record: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    changes: Sequence[Mapping[str, Any]] = (record.get(key) or {}).get("stateTransitions", ())
    return changes


def _died(worker: _Worker, cause: Mapping[str, Any], at_s: float) -> None:
    if worker.died_by is None:
        worker.died_s = at_s
        contexts = [context for context in cause.values() if isinstance(context, dict)]
        words = [str(context.get(key, "")) for context in contexts for key in ("error_message", "errorMessage")]
        worker.died_by = " ".join(filter(None, [*cause, *words])) or "it does not say why"


def _seconds(text: Any) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0


# ---- from actors alone -----------------------------------------------------------------------------------------------


def _of_workers(seen: _Seen, kind: str) -> Logged:
    lacks: list[str] = []
    workers = [worker for worker in seen.workers.values() if worker.group]
    last_job = max(workers, key=lambda worker: worker.began_s).job if workers else ""
    if others := {worker.job for worker in workers} - {last_job}:
        lacks.append(f"there are {len(others) + 1} jobs with workers of Ray Train: this is the one that began last")
    by_group: dict[str, list[_Worker]] = {}
    for worker in sorted(workers, key=lambda worker: worker.began_s):
        if worker.job == last_job:
            by_group.setdefault(worker.group, []).append(worker)
    members = list(by_group.values())
    groups = [_group(members, at, seen) for at in range(len(members))]
    return Logged(kind, tuple(groups), {}, None, tuple(lacks))


def _group(members: Sequence[Sequence[_Worker]], at: int, seen: _Seen) -> Group:
    """Of all whom the controller ended, nobody says why: a node that died and was not used again, a larger group that
    followed, or an error that the training function raised."""
    group, last = members[at], at == len(members) - 1
    own = [worker.died_by for worker in group if worker.died_by and not _on_purpose(worker.died_by)]
    if any(ITS_PROCESS in words for words in own):
        return Group(len(group), "worker_death", None, own[0])
    later = {worker.node for following in members[at + 1 :] for worker in following}
    if lost := [gone for worker in group if (gone := _lost(worker.node, worker.died_s, later, seen))]:
        return Group(len(group), _cause_of(lost), None, own[0] if own else "")
    if own:
        with_node = any(words in own[0].lower() for words in NODE_GONE)
        return Group(len(group), "node_lost" if with_node else "worker_death", None, own[0])
    if last:
        return Group(len(group), "finished" if all(worker.died_by for worker in group) else None)
    return Group(len(group), "resized" if len(members[at + 1]) > len(group) else "worker_error")


def _lost(node: str, at_s: float, later: Collection[str], seen: _Seen) -> _Gone | None:
    """The end of a node that nobody used again, if it may be what happened at that time."""
    gone = seen.dead.get(node)
    return gone if gone is not None and node not in later and gone.ended(at_s) else None


def _cause_of(lost: Sequence[_Gone]) -> str:
    return "preempted" if any(gone.reason == PREEMPTED for gone in lost) else "node_lost"


def _on_purpose(words: str) -> bool:
    return any(each in words for each in ON_PURPOSE)


# ---- from the attempts of Ray Train ----------------------------------------------------------------------------------


def _of_attempts(seen: _Seen) -> Logged:
    run = max(seen.runs.values(), key=lambda run: int(run.get("start_time_ns") or 0), default={})
    ours = [attempt for attempt in seen.attempts.values() if attempt.get("run_id") == run.get("id", attempt["run_id"])]
    ours.sort(key=lambda attempt: int(attempt.get("start_time_ns") or 0))
    begun = [attempt for attempt in ours if attempt.get("workers")]
    groups = [_attempted(attempt, begun[at + 1 :], seen) for at, attempt in enumerate(begun)]
    lacks = []
    if len(seen.runs) > 1:
        lacks.append(f"there are {len(seen.runs)} runs: this is {run.get('name')!r}, which began last")
    if len(begun) < len(ours):
        lacks.append(f"left out: {len(ours) - len(begun)} attempts whose workers never came")
    outcome = {"FINISHED": "finished", "ERRORED": "failed", "ABORTED": "interrupted"}.get(run.get("status", ""))
    return Logged(EXPORTED, tuple(groups), _settings(run), outcome, tuple(lacks))


def _attempted(attempt: Mapping[str, Any], following: Sequence[Mapping[str, Any]], seen: _Seen) -> Group:
    size, told = len(attempt["workers"]), str(attempt.get("status_detail") or "")
    match attempt.get("status"):
        case "ERRORED":
            return _errored(attempt, following, told, seen)
        case "ABORTED":
            return Group(size, "interrupted")
        case "FINISHED" if not following:
            return Group(size, "finished")
        case "FINISHED":
            return Group(size, "resized")
        case _:
            return Group(size, "driver_lost" if following else None)


def _errored(attempt: Mapping[str, Any], following: Sequence[Mapping[str, Any]], told: str, seen: _Seen) -> Group:
    workers = attempt["workers"]
    rank = int(found[1]) if (found := _RANK.search(told)) else None
    if ITS_PROCESS in told:
        return Group(len(workers), "worker_death", rank, told)
    later, at_s = {w["node_id"] for each in following for w in each["workers"]}, int(attempt["end_time_ns"]) / 1e9
    lost = {int(w["world_rank"]): dead for w in workers if (dead := _lost(w["node_id"], at_s, later, seen))}
    if lost:
        return Group(len(workers), _cause_of(list(lost.values())), min(lost), told)
    died = any(words in told for words in WORKER_GONE)
    return Group(len(workers), "worker_death" if died else "worker_error", rank, told)


def _settings(run: Mapping[str, Any]) -> dict[str, Any]:
    given = run.get("run_settings") or {}
    settings: dict[str, Any] = {}
    failures = ((given.get("run_config") or {}).get("failure_config") or {}).get("max_failures")
    if failures is not None:
        settings["max_failures"] = int(failures)
    scaling = given.get("scaling_config") or {}
    if (workers := _workers(scaling)) is not None:
        settings["num_workers"] = workers
    return settings


def _workers(scaling: Mapping[str, Any]) -> int | list[int] | None:
    if (bounds := scaling.get("num_workers_range")) is not None:
        return [int(bounds["min"]), int(bounds["max"])]
    fixed = scaling.get("num_workers_fixed", scaling.get("num_workers"))
    return int(fixed) if fixed is not None else None
