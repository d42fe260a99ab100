"""`reproduce` where nothing was recorded: Ray's export files (of real runs), KubeRay's History Server, and the events
of Kubernetes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shaketable.chaos.experiment import file
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.simulation import player
from shaketable.chaos.verdict.judge import judge
from shaketable.suites.command.incidents import Reproduced, reproduced
from shaketable.suites.gate.catalogue import UsageError

RECORDINGS = Path(__file__).parents[1] / "recordings"
EXPORT, WITH_STATE = RECORDINGS / "ray-export", RECORDINGS / "ray-export-with-state"


def causes(made: Reproduced) -> list[tuple[int, str | None, int | None]]:
    """Of each attempt: its workers, what ended it, and who was hit."""
    return [(each.world_size, each.cause, each.rank) for each in made.incident.attempts]


def lacking(made: Reproduced) -> str:
    return " ".join(note.partition(";")[0] for note in made.made.notes if note.startswith("not on record"))


def verdict(made: Reproduced, folder: Path) -> str:
    """Of the experiment, with the runtime of the house and in simulation."""
    (folder / "incident.yaml").write_text(made.text)
    plan = file.load(folder / "incident.yaml", {"subject": "bundled", "cluster": "simulated", "seed": "0"}).plan
    judged = judge(player.play(plan, arm(plan)).events)
    return judged.verdict if judged.verdict == "PASS" else judged.reason


# ---- Ray's export ----------------------------------------------------------------------------------------------------


def test_worker_groups_of_a_real_export_and_what_ended_each(tmp_path: Path) -> None:
    """A worker got SIGKILL, then a node was killed; Ray Train finished the run."""
    made = reproduced(EXPORT)
    assert causes(made) == [(2, "worker_death", 1), (2, "node_lost", 1), (2, "finished", None)]
    assert [fault.name for fault in made.made.plan.faults] == ["sigkill_worker", "sigkill_node"]
    assert verdict(made, tmp_path) == "PASS"


def test_what_an_export_lacks_is_named_and_the_file_asks_for_it() -> None:
    made = reproduced(EXPORT)
    for what in (
        "steps at which attempts ended",
        "ranks that were hit",
        "how the run ended",
        "num_workers",
        "max_failures",
    ):
        assert lacking(made).count(what) == 1
    assert made.summary()[0].endswith(": how it ended is not on record")
    asked = " ".join(made.text.split())
    assert (
        "Not on record: the steps at which attempts ended; 10, 20 stand in for them: set `step` of each `at`." in asked
    )
    assert any(line.startswith("not on record: the steps") for line in made.summary())


def test_with_state_tracking_only_the_steps_are_lacking(tmp_path: Path) -> None:
    """A worker got SIGKILL. A node that no worker was on died later."""
    made = reproduced(WITH_STATE)
    assert causes(made) == [(2, "worker_death", 1), (2, "finished", None)]
    assert made.made.plan.configuration.max_failures == 3
    assert made.made.plan.configuration.num_workers == 2
    assert lacking(made) == "not on record: the steps at which attempts ended"
    assert verdict(made, tmp_path) == "PASS"


def test_without_it_a_node_that_died_later_is_still_not_what_ended_its_workers(tmp_path: Path) -> None:
    for kind in ("ACTOR", "NODE"):
        shutil.copy(WITH_STATE / f"event_EXPORT_{kind}.log", tmp_path)
    assert causes(reproduced(tmp_path)) == [(2, "worker_death", 1), (2, "finished", None)]


def test_a_file_of_which_the_last_line_was_cut_off_is_read(tmp_path: Path) -> None:
    for each in EXPORT.iterdir():
        (tmp_path / each.name).write_text(each.read_text() + '{"event_data": {"cla')
    assert causes(reproduced(tmp_path)) == causes(reproduced(EXPORT))


def test_a_torn_line_in_the_middle_is_named(tmp_path: Path) -> None:
    (tmp_path / "event_EXPORT_NODE.log").write_text('{"a": \n{"b": 1}\n')
    with pytest.raises(UsageError, match=r"event_EXPORT_NODE.log:1: not JSON"):
        reproduced(tmp_path)


def attempt(number: int, status: str, size: int, told: str = "", node: str = "n") -> dict[str, Any]:
    """As Ray Train exports one. Worker `r` of it is on node `node` + `r`."""
    workers = [{"world_rank": rank, "node_id": f"{node}{rank}"} for rank in range(size)]
    data = {"run_id": "r", "attempt_id": f"a{number}", "status": status, "status_detail": told, "workers": workers}
    times = {"start_time_ns": str(number * 10**9), "end_time_ns": str((number + 1) * 10**9)}
    return {"source_type": "EXPORT_TRAIN_RUN_ATTEMPT", "event_data": data | times}


def dead(node: str, reason: str, at_s: float) -> dict[str, Any]:
    data = {"node_id": node, "state": "DEAD", "death_info": {"reason": reason}}
    return {"source_type": "EXPORT_NODE", "timestamp": at_s, "event_data": data}


def of(records: Sequence[dict[str, Any]], folder: Path) -> Reproduced:
    (folder / "events.json").write_text("\n".join(json.dumps(record) for record in records))
    return reproduced(folder / "events.json")


@pytest.mark.parametrize(
    ("others", "told", "expected"),
    [
        ([], "[Rank 0 Error Snippet]: ValueError", ("worker_error", 0)),
        ([], "[Rank 1 Error Snippet]: The actor is dead because its worker process has died", ("worker_death", 1)),
        ([dead("n1", "UNEXPECTED_TERMINATION", 9)], "[Rank 0 Error Snippet]: RpcError", ("node_lost", 1)),
        ([dead("n0", "AUTOSCALER_DRAIN_PREEMPTED", 9)], "[Rank 0 Error Snippet]: RpcError", ("preempted", 0)),
        # much later, or of a node that was nobody's
        ([dead("n1", "UNEXPECTED_TERMINATION", 900)], "[Rank 0 Error Snippet]: ValueError", ("worker_error", 0)),
        ([dead("m1", "UNEXPECTED_TERMINATION", 9)], "[Rank 0 Error Snippet]: ValueError", ("worker_error", 0)),
    ],
)
def test_what_ended_an_attempt_follows_from_its_error_and_its_nodes(
    others: list[dict[str, Any]], told: str, expected: tuple[str, int], tmp_path: Path
) -> None:
    made = of([attempt(1, "ERRORED", 2, told), attempt(2, "FINISHED", 2, node="m"), *others], tmp_path)
    assert made.incident.attempts[0].cause == expected[0]
    assert made.incident.attempts[0].rank == expected[1]


def test_an_attempt_that_was_finished_before_the_last_was_resized(tmp_path: Path) -> None:
    made = of([attempt(1, "FINISHED", 2), attempt(2, "FINISHED", 3)], tmp_path)
    assert causes(made) == [(2, "resized", None), (3, "finished", None)]
    assert [fault.name for fault in made.made.plan.faults] == ["add_node"]


def test_of_a_run_that_met_with_nothing_there_is_nothing_to_reproduce(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no worker, node or driver that was lost"):
        of([attempt(1, "FINISHED", 2)], tmp_path)


# ---- the History Server ----------------------------------------------------------------------------------------------


def sent(kind: str, body: dict[str, Any], at: str) -> dict[str, Any]:
    """As Ray's aggregator sends it."""
    return {"eventType": kind.upper(), "sessionName": "session_1", "timestamp": at, _camel(kind): body}


def _camel(kind: str) -> str:
    first, *others = kind.lower().split("_")
    return first + "".join(each.title() for each in others)


def worker_sent(actor: str, group: str, node: str, began: str, died: str, words: str) -> list[dict[str, Any]]:
    defined = {"actorId": actor, "jobId": "j", "className": "RayTrainWorker", "placementGroupId": group}
    cause = {"actorDiedErrorContext": {"errorMessage": words}}
    changes = [
        {"state": "ALIVE", "timestamp": began, "nodeId": node},
        {"state": "DEAD", "timestamp": died, "nodeId": node, "deathCause": cause},
    ]
    return [
        sent("actor_definition_event", defined, began),
        sent("actor_lifecycle_event", {"actorId": actor, "stateTransitions": changes}, died),
    ]


def test_files_of_the_history_server_tell_the_same(tmp_path: Path) -> None:
    def at(minute: int) -> str:
        return f"2026-11-22T10:{minute:02}:00.000001Z"

    on_purpose = "The actor is dead because it was killed by `ray.kill`."
    workers = [
        *worker_sent("a1", "g1", "n1", at(0), at(5), on_purpose),
        *worker_sent("a2", "g1", "n2", at(0), at(5), on_purpose),
        *worker_sent("a3", "g2", "n1", at(6), at(9), on_purpose),
    ]
    gone = {"state": "DEAD", "timestamp": at(6), "deathInfo": {"reason": "AUTOSCALER_DRAIN_PREEMPTED"}}
    node = sent("node_lifecycle_event", {"nodeId": "n2", "stateTransitions": [gone]}, at(6))
    for folder, events in (("node_events", [node]), ("job_events/AQAAAA==", workers)):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "n1-2026-11-22-10").write_text(json.dumps(events))
    made = reproduced(tmp_path)
    assert made.source.startswith("History Server ")
    assert causes(made) == [(2, "preempted", 1), (1, "finished", None)]
    assert made.made.plan.configuration.num_workers == (1, 2)
    assert [fault.name for fault in made.made.plan.faults] == ["drain_node"]


# ---- Kubernetes ------------------------------------------------------------------------------------------------------

POD, NODE = "Pod", "Node"


def event(at: str, reason: str, name: str, message: str = "", kind: str = POD) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {"kind": kind, "name": name, "namespace": "default"},
        "reason": reason,
        "message": message,
        "firstTimestamp": f"2026-11-22T{at}Z",
        "lastTimestamp": f"2026-11-22T{at}Z",
        "metadata": {"creationTimestamp": f"2026-11-22T{at}Z"},
    }


def worker(number: int) -> str:
    return f"demo-gpu-worker-x{number}"


def scheduled(at: str, number: int) -> dict[str, Any]:
    name = worker(number)
    return event(at, "Scheduled", name, f"Successfully assigned default/{name} to spot-{number}")


def kubectl(folder: Path, *events: dict[str, Any]) -> Reproduced:
    (folder / "events.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(events)}))
    return reproduced(folder / "events.json")


STARTED = [scheduled("10:00:00", number) for number in range(3)]


@pytest.mark.parametrize(
    ("reason", "kind", "cause", "fault"),
    [
        ("Preempted", POD, "preempted", "drain_node"),
        ("TaintManagerEviction", POD, "preempted", "drain_node"),
        ("Evicted", POD, "preempted", "drain_node"),
        ("NodeNotReady", POD, "node_lost", "sigkill_node"),
        ("NodeNotReady", NODE, "node_lost", "sigkill_node"),
        ("Killing", POD, "node_lost", "sigkill_node"),
        ("OOMKilling", NODE, "worker_death", "sigkill_worker"),
        ("BackOff", POD, "worker_death", "sigkill_worker"),
    ],
)
def test_a_pod_that_was_lost_becomes_the_fault_that_its_reason_means(
    reason: str, kind: str, cause: str, fault: str, tmp_path: Path
) -> None:
    lost = event("10:30:00", reason, worker(1) if kind == POD else "spot-1", kind=kind)
    back = scheduled("10:31:00", 3)
    made = kubectl(tmp_path, lost, *STARTED, back)
    assert causes(made) == [(3, cause, 2), (3, "finished", None)]
    assert [each.name for each in made.made.plan.faults] == [fault]
    # a drain where there is a spare node costs our own runtime nothing: it is for Ray Train
    assert cause == "preempted" or verdict(made, tmp_path) == "PASS"


def test_pods_that_go_within_a_minute_are_one_ending_for_the_strongest_reason(tmp_path: Path) -> None:
    losses = [
        event("10:30:00", "Killing", worker(1)),
        event("10:30:20", "Preempted", worker(1)),
        event("10:30:40", "Killing", worker(2)),
    ]
    made = kubectl(tmp_path, *STARTED, *losses)
    assert causes(made) == [(3, "preempted", 2), (1, "finished", None)]
    assert made.made.plan.faults[0].target == {"random": 2}


def test_a_lost_head_is_a_driver_that_is_launched_again(tmp_path: Path) -> None:
    made = kubectl(tmp_path, *STARTED, event("10:30:00", "Evicted", "demo-head-abc"))
    assert [fault.name for fault in made.made.plan.faults] == ["sigkill_driver", "relaunch_driver"]
    assert verdict(made, tmp_path) == "PASS"


def test_what_is_no_loss_is_none_and_what_no_fault_does_is_named(tmp_path: Path) -> None:
    others = [
        event("10:10:00", "TaintManagerEviction", worker(0), "Cancelling deletion of Pod default/demo"),
        event("10:11:00", "FailedScheduling", worker(7), "0/3 nodes are available"),
        event("10:12:00", "Killing", "some-other-pod"),
    ]
    with pytest.raises(UsageError, match="nothing to reproduce"):
        kubectl(tmp_path, *STARTED, *others)
    made = kubectl(tmp_path, *STARTED, *others, event("10:30:00", "Killing", worker(1)))
    assert "1 pods found no room for a time (FailedScheduling)" in " ".join(made.made.notes)
    assert len(made.made.plan.faults) == 1


def test_events_of_another_namespace_are_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name no pod of a KubeRay worker"):
        kubectl(tmp_path, event("10:12:00", "Killing", "some-other-pod"))


def test_what_is_none_of_all_this_is_told_what_would_be(tmp_path: Path) -> None:
    (tmp_path / "events.json").write_text('{"what": "else"}')
    with pytest.raises(UsageError, match=r"shaketable.Recorder wrote.*or events of others: a directory export_events"):
        reproduced(tmp_path / "events.json")
