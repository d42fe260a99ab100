"""Histories as the harness records them, written out literally, for the tests of reports, command line and plugin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from shaketable.chaos.history import events as h

NODES = {1: "aa" * 28, 2: "bb" * 28, 3: "cc" * 28, 4: "dd" * 28}
ZERO_S = 1_700_000_000.0


def stamped(timed: Sequence[tuple[float, h.AnyEvent]]) -> list[h.AnyEvent]:
    """Gives every event its second, and a place in its writer's order."""
    ordered = sorted(timed, key=lambda pair: pair[0])
    return [
        msgspec.structs.replace(event, writer="recorded", seq=seq, at_s=ZERO_S + at_s)
        for seq, (at_s, event) in enumerate(ordered)
    ]


def began(title: str = "A worker is killed", **expect: object) -> h.ExperimentBegan:
    return h.ExperimentBegan(
        title=title,
        subject="bundled",
        cluster="local",
        seed=7,
        configuration={"job_config": {"steps": 20}, "nodes": 3, "num_workers": [1, 3], "max_failures": 1},
        expect={"outcome": "finished", "charged": {"max_failures": 1}, "steps_lost": 1, "within_s": 300, **expect},
        versions={"shaketable": "0.1.0", "ray": "2.60.0"},
    )


def attempt(
    at_s: float, number: int, ranks: dict[int, int], first: int, last: int, *, step_s: float = 0.05, term: int = 1
) -> Iterator[tuple[float, h.AnyEvent]]:
    """One attempt from its start to its last step: `ranks` says on which node each rank runs."""
    resume = f"checkpoint-{first - 1}" if first > 1 else None
    members = [h.Member(rank=rank, node_id=NODES[node], pid=4000 + rank) for rank, node in ranks.items()]
    yield (
        at_s,
        h.AttemptStarted(
            term=term,
            attempt=number,
            world_size=len(ranks),
            members=members,
            resume=resume,
            resume_index=first - 1 if resume else None,
        ),
    )
    for member in members:
        yield (
            at_s + 0.03,
            h.WorkerStarted(
                term=term,
                attempt=number,
                rank=member.rank,
                world_size=len(ranks),
                node_id=member.node_id,
                pid=member.pid,
                resume=resume,
            ),
        )
    for step in range(first, last + 1):
        for rank in ranks:
            yield (
                at_s + 0.05 + (step - first) * step_s,
                h.Stepped(term=term, attempt=number, rank=rank, step=step, world_size=len(ranks), checkpoint=True),
            )
        yield (
            at_s + 0.07 + (step - first) * step_s,
            h.Committed(term=term, attempt=number, index=step, checkpoint=f"checkpoint-{step}"),
        )


def ended(at_s: float, number: int, cause: str, account: str | None, detail: str = "") -> tuple[float, h.AnyEvent]:
    return at_s, h.AttemptEnded(term=1, attempt=number, cause=cause, account=account, detail=detail)


def fault(
    at_s: float,
    number: int,
    name: str,
    *,
    ranks: Sequence[int] = (),
    nodes: Sequence[int] = (),
    pids: Sequence[int] = (),
) -> list[tuple[float, h.AnyEvent]]:
    """One that lands 2 ms after its trigger and is seen 8 ms later."""
    injected = h.FaultInjected(
        fault=number,
        name=name,
        target={"rank": 1},
        term=1,
        attempt=1,
        ranks=list(ranks),
        nodes=list(nodes),
        pids=list(pids),
    )
    return [
        (at_s, h.FaultTriggered(fault=number, name=name, trigger={"step": 12}, by="recorded:1", step=12)),
        (at_s + 0.002, injected),
        (at_s + 0.010, h.FaultObserved(fault=number, name=name, evidence="gone", after_ms=8.0)),
    ]


def worker_crash() -> list[h.AnyEvent]:
    """Rank 1 of three is killed at step 12; the run resumes from commit 11 and finishes."""
    joined = [(0.05 * n, h.NodeJoined(node=n, node_id=node_id)) for n, node_id in NODES.items() if n < 4]
    everyone = {0: 1, 1: 2, 2: 3}
    return stamped(
        [
            (0.0, began()),
            *joined,
            (0.4, h.DriverStarted(launch=0, pid=4100)),
            (1.2, h.TermBegan(term=1, spent={})),
            *attempt(1.3, 1, everyone, 1, 12),
            *fault(1.92, 0, "sigkill_worker", ranks=[1], pids=[4001]),
            ended(1.95, 1, "worker_death", "max_failures", "rank 1 was killed by signal 9"),
            *attempt(2.01, 2, everyone, 12, 20),
            (1.94, h.Healed()),
            ended(2.6, 2, "finished", None),
            (2.61, h.RunEnded(term=1, outcome="finished", metrics={"step": 20})),
            (2.7, h.DriverExited(launch=0, code=0)),
            (3.4, h.LeakCheck(processes=[], cluster=[], files=[], waited_s=0.2)),
        ]
    )


def node_lost_and_back() -> list[h.AnyEvent]:
    """Two nodes go within 100 ms, one comes back, the world shrinks to one and grows again; the driver dies too."""
    joined = [(0.05 * n, h.NodeJoined(node=n, node_id=node_id)) for n, node_id in NODES.items() if n < 4]
    return stamped(
        [
            (0.0, began("Two nodes are lost within 100 ms, one comes back")),
            *joined,
            (0.4, h.DriverStarted(launch=0, pid=4100)),
            *attempt(1.3, 1, {0: 1, 1: 2, 2: 3}, 1, 12, step_s=0.08),
            *fault(2.2, 0, "sigkill_node", nodes=[2], ranks=[1], pids=list(range(4200, 4212))),
            *fault(2.28, 1, "sigkill_node", nodes=[3], ranks=[2], pids=list(range(4300, 4312))),
            ended(2.5, 1, "node_lost", "max_failures", "node bbbbbbbb is gone"),
            (4.0, h.NodeLeft(node=2, node_id=NODES[2])),
            (4.1, h.NodeLeft(node=3, node_id=NODES[3])),
            *attempt(2.8, 2, {0: 1}, 11, 35, step_s=0.08),
            (4.6, h.FaultTriggered(fault=2, name="add_node", trigger={"step": 30}, by="recorded:1", step=30)),
            (4.61, h.FaultInjected(fault=2, name="add_node", target={})),
            (6.2, h.NodeJoined(node=4, node_id=NODES[4])),
            (6.2, h.FaultObserved(fault=2, name="add_node", evidence="alive in Ray's view", after_ms=1590.0)),
            (6.3, h.Healed()),
            ended(6.9, 2, "resized", None, "grow from 1 to 2"),
            *attempt(7.0, 3, {0: 1, 1: 4}, 36, 55, step_s=0.08),
            *fault(8.9, 3, "sigkill_driver", pids=[4100]),
            (8.92, h.DriverExited(launch=0, code=137)),
            (8.95, h.DriverStarted(launch=1, pid=4500, changed={"max_failures": 3})),
            (9.9, h.DriverExited(launch=1, code=1)),
        ]
    )


def write(folder: Path, events: Sequence[h.AnyEvent]) -> Path:
    """A result folder with nothing but its history."""
    folder.mkdir(parents=True)
    (folder / "history.jsonl").write_bytes(b"".join(h.encode(event) for event in events))
    return folder
