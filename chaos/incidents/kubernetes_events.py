"""Pods that were lost, in `kubectl get events -o json`: what a cluster still knows where nothing was recorded.

A worker is a pod of KubeRay (`...-worker-...`), the driver runs in the head's pod. Several pods that are lost within a
minute are one ending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.incidents.logged_losses import Group, Logged

KIND = "Kubernetes events"
ONE_ENDING_S = 60.0
PREEMPTED, NODE_LOST, WORKER_DEATH = "preempted", "node_lost", "worker_death"
# what is said of a pod, and what it means; of one pod, what stands further up is the reason
OF_A_POD = {
    "Preempted": PREEMPTED,
    "Preempting": PREEMPTED,
    "TaintManagerEviction": PREEMPTED,
    "Evicted": PREEMPTED,
    "NodeShutdown": PREEMPTED,
    "NodeNotReady": NODE_LOST,
    "NodeLost": NODE_LOST,
    "Killing": NODE_LOST,
    "OOMKilling": WORKER_DEATH,
    "BackOff": WORKER_DEATH,
}
# of a node; its pods are known by where they were scheduled
OF_A_NODE = {
    "NodeNotReady": NODE_LOST,
    "RemovingNode": NODE_LOST,
    "DeletingNode": NODE_LOST,
    "OOMKilling": WORKER_DEATH,
}
BEGINS = ("Scheduled", "Created", "Started")
NOT_A_LOSS = ("Cancelling deletion",)
WORKER, HEAD = "-worker-", "-head"
_ORDER = (PREEMPTED, NODE_LOST, WORKER_DEATH)


@dataclass(slots=True)
class _Pod:
    """`began_s` None: it was there before."""

    name: str
    began_s: float | None = None
    node: str = ""
    lost_s: float | None = None
    cause: str = ""
    told: str = ""

    def lose(self, at_s: float, cause: str, told: str) -> None:
        """The first time counts, and the strongest of the reasons."""
        self.lost_s = at_s if self.lost_s is None else min(self.lost_s, at_s)
        if not self.cause or _ORDER.index(cause) < _ORDER.index(self.cause):
            self.cause, self.told = cause, told

    def there(self, at_s: float) -> bool:
        return (self.began_s is None or self.began_s <= at_s) and (self.lost_s is None or self.lost_s >= at_s)


def is_event(record: Any) -> bool:
    return isinstance(record, dict) and record.get("kind") == "Event" and "involvedObject" in record


def read(records: Iterable[Mapping[str, Any]]) -> Logged:
    """Raises ExperimentError where no pod of a worker is named."""
    events = sorted(filter(is_event, records), key=_at)
    pods: dict[str, _Pod] = {}
    for event in events:
        _note(pods, event)
    workers = [pod for pod in pods.values() if WORKER in pod.name]
    heads = [pod for pod in pods.values() if WORKER not in pod.name]
    if not workers:
        raise ExperimentError(
            "the events name no pod of a KubeRay worker (`...-worker-...`): are they of its namespace?"
        )
    return Logged(KIND, _groups(workers, heads), {}, None, tuple(_lacks(events)))


def _note(pods: dict[str, _Pod], event: Mapping[str, Any]) -> None:
    what, reason, told = event["involvedObject"], str(event.get("reason", "")), str(event.get("message", ""))
    name, said = str(what.get("name", "")), f"{reason}: {event.get('message', '')}"
    if what.get("kind") == "Node":
        for pod in pods.values():
            if pod.node == name and reason in OF_A_NODE and pod.lost_s is None:
                pod.lose(_at(event), OF_A_NODE[reason], said)
    if what.get("kind") != "Pod" or (WORKER not in name and HEAD not in name):
        return
    pod = pods.setdefault(name, _Pod(name))
    if reason in BEGINS and pod.began_s is None and pod.lost_s is None:
        pod.began_s = _at(event)
    if reason == "Scheduled":
        # Successfully assigned NAMESPACE/POD to NODE
        pod.node = told.rpartition(" to ")[2]
    if reason in OF_A_POD and not told.startswith(NOT_A_LOSS):
        pod.lose(_at(event), OF_A_POD[reason], said)


def _groups(workers: Sequence[_Pod], heads: Sequence[_Pod]) -> tuple[Group, ...]:
    """One for each ending, and what was there after the last."""
    lost = sorted((pod for pod in (*workers, *heads) if pod.lost_s is not None), key=_lost_at)
    endings: list[list[_Pod]] = []
    for pod in lost:
        if endings and _lost_at(pod) - _lost_at(endings[-1][0]) <= ONE_ENDING_S:
            endings[-1].append(pod)
        else:
            endings.append([pod])
    groups = [_group(ending, workers) for ending in endings]
    left = sum(pod.lost_s is None for pod in workers)
    return (*groups, Group(max(left, 1), "finished")) if groups else (Group(max(left, 1), None),)


def _group(ending: Sequence[_Pod], workers: Sequence[_Pod]) -> Group:
    at_s = _lost_at(ending[0])
    size = max(sum(pod.there(at_s) for pod in workers), 1)
    if any(WORKER not in pod.name for pod in ending):
        return Group(size, "driver_lost", None, ending[0].told)
    cause = min((pod.cause for pod in ending), key=_ORDER.index)
    return Group(size, cause, None, next(pod.told for pod in ending if pod.cause == cause))


def _lacks(events: Sequence[Mapping[str, Any]]) -> list[str]:
    lacks: list[str] = []
    waited = Counter(
        event["involvedObject"].get("name") for event in events if event.get("reason") == "FailedScheduling"
    )
    if waited:
        lacks.append(f"{len(waited)} pods found no room for a time (FailedScheduling): no fault does that")
    lacks.append(
        "a cluster keeps its events for an hour, unless it was told otherwise: there may have been losses before"
    )
    return lacks


def _lost_at(pod: _Pod) -> float:
    assert pod.lost_s is not None
    return pod.lost_s


def _at(event: Mapping[str, Any]) -> float:
    """When it first was so: a repeated event has the time of its last repetition, too."""
    metadata = event.get("metadata") or {}
    for text in (event.get("firstTimestamp"), event.get("eventTime"), metadata.get("creationTimestamp")):
        if text:
            try:
                return datetime.fromisoformat(str(text)).timestamp()
            except ValueError:
                continue
    return 0.0
