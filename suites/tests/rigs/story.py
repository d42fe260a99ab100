"""Writes histories for the tests of invariants and judge, readable from top to bottom:

    story = Story(max_failures=1, expect={"charged": {"max_failures": 1}})
    story.launch().attempt(3).steps(1, 4).fault("sigkill_worker", ranks=[1]).end("worker_death",
    "max_failures") story.attempt(3).steps(5, 6).finish()

Each call records what a healthy run would, log and all; a keyword makes it lie.
`Story(subject="ray-train")` has no log. `change` and `drop` alter single events of a finished story.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, TypeVar

import msgspec

from shaketable.chaos.chain import ChainConfig, batch, places, reference_digest
from shaketable.chaos.history import events as h
from shaketable.chaos.history.view import History

JOB = {"steps": 6}
E = TypeVar("E", bound=h.Event)


class Story:
    def __init__(
        self, *, subject: str = "bundled", nodes: int = 3, expect: dict[str, Any] | None = None, **configuration: Any
    ) -> None:
        self.events: list[h.AnyEvent] = []
        self.records: list[h.LogRecord] = []
        self.now_s = 1000.0
        self.logs = subject == "bundled"
        self.job = configuration.setdefault("job_config", dict(JOB))
        self.term = self.number = self.world = self.launches = self.faults = 0
        self.commits: list[tuple[str, int]] = []
        self.spent: dict[str, int] = {}
        self._seqs: dict[str, Iterable[int]] = {}
        # the rank to blame for the next ending
        self.hit = int(self.job.get("fail_rank", 0))
        configured = {"subject": subject, "nodes": nodes, "num_workers": [1, 3], **configuration}
        self.say(
            h.ExperimentBegan(
                title="a story",
                subject=subject,
                cluster="local",
                seed=0,
                configuration=configured,
                expect={"outcome": "finished", "charged": {}, "within_s": 60.0, **(expect or {})},
                versions={},
            )
        )
        for node in range(1, nodes + 1):
            self.join_node(node)

    # ---- pieces ----

    def say(self, event: h.Event, writer: str = "harness") -> Self:
        seq = next(iter(self._seqs.setdefault(writer, itertools.count())))
        stamped: Any = msgspec.structs.replace(event, writer=writer, seq=seq, at_s=self.now_s)
        self.events.append(stamped)
        self.now_s += 0.001
        return self

    def record(self, kind: str, **content: Any) -> int:
        number = len(self.records) + 1
        record = {"kind": kind, "term": self.term, "id": f"id-{number}", "at_s": self.now_s, **content}
        self.records.append(h.LogRecord(number=number, record=record))
        return number

    def drive(self, event: h.Event) -> Self:
        return self.say(event, f"driver-{4000 + self.launches}-ab")

    def wait(self, seconds: float) -> Self:
        self.now_s += seconds
        return self

    def join_node(self, node: int) -> Self:
        return self.say(h.NodeJoined(node=node, node_id=f"node-{node}"))

    # ---- the driver ----

    def launch(
        self, *, changed: dict[str, Any] | None = None, spent: dict[str, int] | None = None, reopened: bool = False
    ) -> Self:
        self.launches += 1
        self.term += 1
        self.spent = {} if reopened else self.spent
        pid = 4000 + self.launches
        self.say(h.DriverStarted(launch=self.launches - 1, pid=pid, changed=changed or {})).wait(1.0)
        self.record("opened", configuration={}, changed=[], reopened=reopened)
        return self.drive(h.TermBegan(term=self.term, spent=dict(self.spent) if spent is None else spent))

    def exit(self, code: int) -> Self:
        return self.say(h.DriverExited(launch=self.launches - 1, code=code))

    def attempt(
        self,
        world: int,
        *,
        resume: str | None = "latest",
        found: tuple[int, str] | None = None,
        ranks: Iterable[int] | None = None,
        enter: Iterable[int] | None = None,
    ) -> Self:
        """Starts on nodes 1.. in order of rank. `found`: what every rank says it resumed."""
        self.number += 1
        self.world = world
        name, index = self.commits[-1] if self.commits else (None, 0)
        name = name if resume == "latest" else resume
        members = [h.Member(rank=r, node_id=f"node-{r + 1}", pid=0) for r in ranks or range(world)]
        listed = [{"rank": m.rank, "node_id": m.node_id} for m in members]
        self.record(
            "attempt_started", attempt=self.number, world_size=world, members=listed, resume=name, first_index=index + 1
        )
        self.drive(
            h.AttemptStarted(
                term=self.term,
                attempt=self.number,
                world_size=world,
                members=members,
                resume=name,
                resume_index=index or None,
            )
        )
        step, digest = found or (index, reference_digest(index, self.job))
        for rank in range(world) if enter is None else enter:
            self.enter(rank, name)
            self.worker(rank, h.Resumed(term=self.term, attempt=self.number, rank=rank, step=step, digest=digest))
        return self

    def enter(self, rank: int, resume: str | None, *, world: int | None = None, pid: int | None = None) -> Self:
        return self.worker(
            rank,
            h.WorkerStarted(
                term=self.term,
                attempt=self.number,
                rank=rank,
                world_size=world or self.world,
                node_id=f"node-{rank + 1}",
                pid=pid or 5000 + 10 * self.number + rank,
                resume=resume,
            ),
        )

    def worker(self, rank: int, event: h.Event) -> Self:
        return self.say(event, f"worker-{5000 + 10 * self.number + rank}-cd")

    def steps(self, first: int, last: int, *, commit: bool = True, step_s: float = 0.05) -> Self:
        for step in range(first, last + 1):
            self.wait(step_s)
            for rank in range(self.world):
                self.step(step, rank, checkpoint=commit and rank == 0)
            if commit:
                self.commit(step)
        return self

    def step(self, step: int, rank: int, *, checkpoint: bool = False, **lies: Any) -> Self:
        config = ChainConfig.of(self.job)
        order = batch(step, config)
        said: dict[str, Any] = {
            "term": self.term,
            "attempt": self.number,
            "rank": rank,
            "step": step,
            "world_size": self.world,
            "digest": reference_digest(step, self.job),
            "checkpoint": checkpoint,
            "samples": [order[place] for place in places(rank, self.world, config)],
            **lies,
        }
        return self.worker(rank, h.Stepped(**said))

    def commit(
        self,
        index: int,
        *,
        attempt: int | None = None,
        term: int | None = None,
        name: str = "",
        metrics: dict[str, Any] | None = None,
    ) -> Self:
        number, term = attempt or self.number, term or self.term
        name = name or f"{index}-{term}-{number}"
        files = [{"path": "state.json", "size": 9, "checksum": "xxh3:0"}]
        said = {"checkpoint": name, "index": index, "files": files, "metrics": metrics or {}}
        place = self.record("checkpoint_committed", term=term, attempt=number, **said)
        self.commits.append((name, index))
        return self.drive(
            h.Committed(term=term, attempt=number, index=index, checkpoint=name, number=place if self.logs else None)
        )

    def delete(self, name: str) -> Self:
        self.record("checkpoint_deleted", checkpoint=name)
        return self.drive(h.CheckpointDeleted(term=self.term, checkpoint=name))

    def end(self, cause: str, account: str | None, *, attempt: int | None = None, rank: int | None = None) -> Self:
        number = attempt or self.number
        self.hit = self.hit if rank is None else rank
        if account is not None:
            self.spent[account] = self.spent.get(account, 0) + 1
        culprit = {"rank": self.hit, "node_id": f"node-{self.hit + 1}"} if account is not None else {}
        raised = "PlannedFailure: at fail_at" if "fail_at" in self.job else "InjectedError: on purpose"
        detail = raised if cause == "worker_error" else ""
        self.record("attempt_ended", attempt=number, cause=cause, account=account, detail=detail, **culprit)
        return self.drive(h.AttemptEnded(term=self.term, attempt=number, cause=cause, account=account, detail=detail))

    # ---- faults ----

    def fault(self, name: str, *, observed: bool = True, attempt: int | None = None, **hits: Any) -> Self:
        number, self.faults = self.faults, self.faults + 1
        self.hit = next(iter(hits.get("ranks") or [node - 1 for node in hits.get("nodes", ())]), self.hit)
        self.say(h.FaultTriggered(fault=number, name=name, trigger={"step": 1}, by="worker#1"))
        named: dict[str, Any] = {"term": self.term or None, "attempt": attempt or self.number or None}
        self.say(h.FaultInjected(fault=number, name=name, target={}, **named, **hits))
        if observed:
            self.wait(0.005).say(h.FaultObserved(fault=number, name=name, evidence="gone", after_ms=5.0))
        if observed and self.term and name in ("sigterm_node", "drain_node"):
            # the notice has been read
            self.drive(h.StateChanged(term=self.term, state="HOLDING"))
        return self

    # ---- the end ----

    def finish(self, *, metrics: dict[str, Any] | None = None) -> Self:
        """The workers return, the run finishes, the harness looks at what is left."""
        steps = int(self.job.get("steps", 40))
        metrics = metrics or {"step": steps, "digest": reference_digest(steps, self.job)}
        for rank in range(self.world):
            self.worker(rank, h.WorkerFinished(term=self.term, attempt=self.number, rank=rank))
        self.end("finished", None)
        self.record("run_finished", metrics=metrics)
        self.drive(h.RunEnded(term=self.term, outcome="finished", metrics=metrics))
        return self.exit(0).leak_check()

    def fail(self, error: str | None = "rank 1 died") -> Self:
        self.record("run_failed", error=error)
        return self.drive(h.RunEnded(term=self.term, outcome="failed", error=error)).exit(1)

    def leak_check(self) -> Self:
        self.say(h.Healed())
        self.say(h.LeakCheck(processes=[], cluster=[], files=[], waited_s=0.1))
        for record in self.records if self.logs else ():
            self.say(record)
        deleted = {event.checkpoint for event in self.events if isinstance(event, h.CheckpointDeleted)}
        for name, index in dict(self.commits).items():
            if name not in deleted:
                digest = reference_digest(index, self.job)
                self.say(h.CheckpointProbed(checkpoint=name, index=index, ok=True, step=index, digest=digest))
        return self

    @property
    def history(self) -> History:
        """Of an unfinished story too: its log as far as it goes."""
        told = any(isinstance(event, h.LogRecord) for event in self.events)
        return History([*self.events, *(self.records if self.logs and not told else ())])


def spent(limit: str, allowed: int, count: int) -> str:
    """The error of a run that has spent that limit."""
    return f"{limit} is {allowed} and {count} were charged; the last by an earlier driver"


def crash_and_finish(**configuration: Any) -> Story:
    """The healthy history that most tests start from: rank 1 is killed at step 5, the run resumes from commit
    4."""
    configuration.setdefault("max_failures", 1)
    configuration.setdefault("expect", {"charged": {"max_failures": 1}, "steps_lost": 1})
    story = Story(**configuration)
    story.launch().attempt(3).steps(1, 4).wait(2.0).step(5, 0).step(5, 2).fault("sigkill_worker", ranks=[1])
    story.end("worker_death", "max_failures").wait(0.04)
    return story.attempt(3).steps(5, 6).finish()


def change(events: Iterable[h.AnyEvent], kind: type[E], where: Callable[[E], bool], **fields: Any) -> list[h.AnyEvent]:
    """The same history with every event of `kind` that matches changed; at least one must."""
    changed = [
        msgspec.structs.replace(event, **fields) if isinstance(event, kind) and where(event) else event
        for event in events
    ]
    assert changed != list(events), "nothing was changed"
    return changed


def drop(events: Iterable[h.AnyEvent], kind: type[E], where: Callable[[E], bool]) -> list[h.AnyEvent]:
    """The same history without the events of `kind` that match; at least one must."""
    kept = [event for event in events if not (isinstance(event, kind) and where(event))]
    assert len(kept) < len(list(events)), "nothing was dropped"
    return kept


def renumbered(events: Iterable[h.AnyEvent]) -> list[h.AnyEvent]:
    """The same lines, each writer's numbers without a gap: what is not there was never said."""
    counts: dict[str, Iterator[int]] = {}
    return [
        msgspec.structs.replace(event, seq=next(counts.setdefault(event.writer, itertools.count()))) for event in events
    ]


def always(event: object) -> bool:
    return True
