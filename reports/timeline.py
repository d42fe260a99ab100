"""A history as a picture's content: lanes of spans and marks in seconds since the experiment began. Pure.

Lanes from top to bottom: violations, faults, driver lives, attempts, commits, then one lane per node with a row for
each worker it hosted. How it is drawn is `drawing.py`'s business. `record` is the line of the history that a span or a
mark stands for, from 1; 0: none.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from shaketable.chaos.history import events as h
from shaketable.reports.landed import at_step, milliseconds, what
from shaketable.reports.page.violations import Violation

ENDINGS = {"finished": "good", "resized": "info", "preempted": "warn", "interrupted": "mute", "driver_lost": "mute"}
E = TypeVar("E", bound=h.Event)
K = TypeVar("K")
# per worker: more would be a grey bar
MAX_STEP_MARKS = 300
# in one picture
MAX_ALL_STEP_MARKS = 3000
MAX_NODES = 64


@dataclass(frozen=True, slots=True)
class Span:
    start_s: float
    end_s: float
    kind: str
    label: str = ""
    tip: str = ""
    row: int = 0
    record: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    at_s: float
    kind: str
    label: str = ""
    tip: str = ""
    row: int = 0
    record: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    label: str
    kind: Literal["violations", "faults", "driver", "attempts", "commits", "node"]
    spans: tuple[Span, ...] = ()
    marks: tuple[Mark, ...] = ()

    @property
    def rows(self) -> int:
        rows = [span.row for span in self.spans] + [mark.row for mark in self.marks]
        return 1 + max(rows, default=0)


@dataclass(frozen=True, slots=True)
class Timeline:
    """`world` are (second, world size) corners of a step line; `bounds` what it must stay within."""

    duration_s: float
    lanes: tuple[Lane, ...]
    world: tuple[tuple[float, int], ...]
    bounds: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt, for the table below the picture."""

    term: int
    attempt: int
    world_size: int
    resume: str
    started_s: float
    lasted_s: float | None
    cause: str
    kind: str
    account: str
    detail: str
    # of the storage, in words
    retried: str


def timeline(events: Sequence[h.AnyEvent], violations: Sequence[Violation] = ()) -> Timeline | None:
    """None when the history holds nothing that could be drawn."""
    clock = _Clock(events)
    if clock.end_s <= 0:
        return None
    lanes = (
        _violations(clock, violations),
        _faults(clock),
        _drivers(clock),
        _attempts_lane(clock),
        _commits(clock),
        *_nodes(clock),
    )
    return Timeline(
        clock.end_s, tuple(lane for lane in lanes if lane.spans or lane.marks), _world(clock), _bounds(clock)
    )


def attempts(events: Sequence[h.AnyEvent]) -> tuple[AttemptRow, ...]:
    clock = _Clock(events)
    return tuple(_attempt_row(clock, start) for start in clock.of(h.AttemptStarted))


def _by(events: Iterable[E], key: Callable[[E], K]) -> dict[K, list[E]]:
    found: dict[K, list[E]] = defaultdict(list)
    for event in events:
        found[key(event)].append(event)
    return found


class _Clock:
    """The events by type, and the second at which each happened."""

    def __init__(self, events: Sequence[h.AnyEvent]) -> None:
        self.events = events
        self._lines = {id(event): line for line, event in enumerate(events, 1)}
        self._by_type: dict[type, list[Any]] = defaultdict(list)
        for event in events:
            self._by_type[type(event)].append(event)
        self.zero_s = min((event.at_s for event in events), default=0.0)
        # the inquest, not the experiment
        after = (h.LeakCheck, h.CheckpointProbed, h.LogRecord, h.ReferenceRun)
        self.end_s = max((self.s(event) for event in events if not isinstance(event, after)), default=0.0)
        self.steps = _by(self.of(h.Stepped), lambda e: (e.term, e.attempt, e.rank))
        self.ends = {(e.term, e.attempt): e for e in self.of(h.AttemptEnded)}
        # of two starts of one attempt the first
        self.starts = {(e.term, e.attempt): e for e in reversed(self.of(h.AttemptStarted))}
        self.left = {e.node_id: e for e in self.of(h.NodeLeft)}
        self.joined = _by(self.of(h.NodeJoined), lambda e: e.node_id)
        self.quarantined = _by(self.of(h.NodeQuarantined), lambda e: e.node_id)
        self.workers_of = _by(self.of(h.WorkerStarted), lambda e: e.node_id)
        self.finished = _by(self.of(h.WorkerFinished), lambda e: (e.term, e.attempt, e.rank))
        self.killed = _by((e for e in self.of(h.FaultInjected) if _kills(e)), lambda e: e.attempt)

    def touched(self) -> set[str]:
        """The nodes that a fault hit, that left or that were quarantined."""
        hit = {node for e in self.of(h.FaultInjected) for node in e.nodes}
        return {e.node_id for e in self.of(h.NodeJoined) if e.node in hit} | set(self.left) | set(self.quarantined)

    def of(self, kind: type[E]) -> list[E]:
        return self._by_type[kind]

    def s(self, event: h.Event) -> float:
        return event.at_s - self.zero_s

    def line(self, event: h.Event) -> int:
        return self._lines[id(event)]

    def end_of(self, start: h.AttemptStarted) -> float:
        """When the attempt was over: its own ending, or else whatever made one impossible."""
        if (ended := self.ends.get((start.term, start.attempt))) is not None:
            return self.s(ended)
        later = [*self.of(h.AttemptStarted), *self.of(h.TermBegan), *self.of(h.DriverExited), *self.of(h.RunEnded)]
        return min((self.s(e) for e in later if e.at_s > start.at_s), default=self.end_s)


def _violations(clock: _Clock, violations: Sequence[Violation]) -> Lane:
    """What only the inquest found stands at the end."""
    marks = [
        Mark(
            min(max(violation.at_s - clock.zero_s, 0.0), clock.end_s),
            "violation",
            f"{violation.invariant} violated",
            violation.reason,
            row,
            violation.record,
        )
        for row, violation in enumerate(violations)
    ]
    return Lane("violated", "violations", (), tuple(marks))


def _faults(clock: _Clock) -> Lane:
    """A row for each fault: two within 100 ms would cover each other."""
    triggered = {e.fault: e for e in clock.of(h.FaultTriggered)}
    injected = {e.fault: e for e in clock.of(h.FaultInjected)}
    marks: list[Mark] = []
    for seen in triggered.values():
        label = "" if seen.fault in injected else seen.name
        tip = f"{seen.name} triggered{at_step(seen)}"
        marks.append(Mark(clock.s(seen), "triggered", label, tip, seen.fault, clock.line(seen)))
    for hit in injected.values():
        label = f"{what(hit)}{at_step(triggered.get(hit.fault))}"
        tip = f"{label}, second {clock.s(hit):.3f}"
        marks.append(Mark(clock.s(hit), "injected", label, tip, hit.fault, clock.line(hit)))
    marks += (_observed(clock, e) for e in clock.of(h.FaultObserved))
    for healed in clock.of(h.FaultHealed):
        tip = f"{healed.name} healed"
        marks.append(Mark(clock.s(healed), "healed", "", tip, healed.fault, clock.line(healed)))
    for missed in clock.of(h.FaultMissed):
        label = f"{missed.name} missed"
        marks.append(Mark(clock.s(missed), "missed", label, missed.reason, missed.fault, clock.line(missed)))
    return Lane("faults", "faults", (), tuple(marks))


def _observed(clock: _Clock, e: h.FaultObserved) -> Mark:
    tip = f"{e.evidence}, {milliseconds(e.after_ms)} after"
    return Mark(clock.s(e), "observed", "", tip, e.fault, clock.line(e))


def _drivers(clock: _Clock) -> Lane:
    """A row for each driver that runs beside another one."""
    exits = {e.launch: e for e in clock.of(h.DriverExited)}
    spans: list[Span] = []
    for e in clock.of(h.DriverStarted):
        end = clock.s(exits[e.launch]) if e.launch in exits else clock.end_s
        said = f"exit {exits[e.launch].code}" if e.launch in exits else "never exited"
        changed = f", with {_pairs(e.changed)}" if e.changed else ""
        kind = "good" if e.launch in exits and exits[e.launch].code == 0 else "mute"
        tip = f"driver pid {e.pid}{changed}: {said}"
        row = next(row for row in itertools.count() if all(_apart(span, clock.s(e), row) for span in spans))
        spans.append(Span(clock.s(e), end, kind, f"launch {e.launch} · {said}", tip, row, clock.line(e)))
    return Lane("driver", "driver", tuple(spans))


def _apart(span: Span, since_s: float, row: int) -> bool:
    return span.row != row or span.end_s <= since_s


def _attempts_lane(clock: _Clock) -> Lane:
    rows = [(start, _attempt_row(clock, start)) for start in clock.of(h.AttemptStarted)]
    return Lane(
        "attempts",
        "attempts",
        tuple(
            Span(
                row.started_s,
                clock.end_of(start),
                row.kind,
                f"{row.attempt} · {_workers(row.world_size)}",
                f"term {row.term} attempt {row.attempt}: {_workers(row.world_size)}, {row.resume}; {row.cause}"
                + (f", charged to {row.account}" if row.account else "")
                + (f" ({row.detail})" if row.detail else ""),
                record=clock.line(clock.ends.get((start.term, start.attempt), start)),
            )
            for start, row in rows
        ),
    )


def _attempt_row(clock: _Clock, start: h.AttemptStarted) -> AttemptRow:
    ended = clock.ends.get((start.term, start.attempt))
    resume = "from scratch" if start.resume is None else f"from commit {_or(start.resume_index, start.resume)}"
    cause = ended.cause if ended else "cut off"
    return AttemptRow(
        term=start.term,
        attempt=start.attempt,
        world_size=start.world_size,
        resume=resume,
        started_s=clock.s(start),
        lasted_s=ended.at_s - start.at_s if ended else None,
        cause=cause,
        kind=ENDINGS.get(cause, "bad") if ended else "mute",
        account=(ended.account or "") if ended else "",
        detail=ended.detail if ended else "",
        retried=_retried(ended.retried) if ended else "",
    )


def _retried(counts: Mapping[str, Mapping[str, int]]) -> str:
    """`storage calls retried: driver append 3; rank 0 upload 5`."""
    parts = [
        f"{who} {', '.join(f'{kind} {n}' for kind, n in sorted(of.items()))}" for who, of in sorted(counts.items())
    ]
    return f"storage calls retried: {'; '.join(parts)}" if parts else ""


def _commits(clock: _Clock) -> Lane:
    commits = [
        Mark(clock.s(e), "commit", "", f"commit {e.index} ({e.checkpoint}) at {clock.s(e):.3f} s", record=clock.line(e))
        for e in clock.of(h.Committed)
    ]
    return Lane("commits", "commits", (), tuple(commits))


def _nodes(clock: _Clock) -> list[Lane]:
    """Every node that joined, and every other node that a worker says it ran on (under its Ray id). Of a large cluster
    the first MAX_NODES, those first that something happened to; the last lane says how many are left out."""
    numbers = {e.node_id: e.node for e in clock.of(h.NodeJoined)}
    hosts = list(dict.fromkeys([*numbers, *clock.workers_of]))
    labels = {node_id: f"node {numbers[node_id]}" if node_id in numbers else node_id[:8] for node_id in hosts}
    drawn = hosts
    if len(hosts) > MAX_NODES:
        touched = clock.touched()
        most_telling = set(sorted(hosts, key=lambda node_id: node_id not in touched)[:MAX_NODES])
        drawn = [node_id for node_id in hosts if node_id in most_telling]
    lanes = [_node(clock, labels[node_id], node_id) for node_id in drawn]
    if len(drawn) < len(hosts):
        more = f"{len(hosts) - len(drawn)} more nodes are not drawn"
        lanes.append(Lane("", "node", (Span(0.0, clock.end_s, "mute", more, f"{more}: the history has them"),)))
    return lanes


def _node(clock: _Clock, label: str, node_id: str) -> Lane:
    alive = [
        Span(
            clock.s(e),
            clock.s(clock.left[node_id]) if node_id in clock.left else clock.end_s,
            "alive",
            "",
            f"{label} alive in Ray's view ({node_id[:8]})",
            record=clock.line(e),
        )
        for e in clock.joined[node_id]
    ]
    alive += [
        Span(
            clock.s(e),
            min(clock.end_s, clock.s(e) + e.until_s - e.at_s),
            "quarantined",
            "quarantined",
            f"{label} quarantined for {e.until_s - e.at_s:.0f} s: it failed {e.failures} times",
            record=clock.line(e),
        )
        for e in clock.quarantined[node_id]
    ]
    workers = clock.workers_of[node_id]
    ranks: dict[tuple[int, int], list[int]] = defaultdict(list)
    for worker in workers:
        ranks[worker.term, worker.attempt].append(worker.rank)
    spans: list[Span] = []
    marks: list[Mark] = []
    for worker in workers:
        span = _worker(clock, worker, sorted(ranks[worker.term, worker.attempt]).index(worker.rank))
        spans.append(span)
        marks += _steps(clock, worker, span.row)
    return Lane(label, "node", (*alive, *spans), tuple(marks))


def _worker(clock: _Clock, worker: h.WorkerStarted, row: int) -> Span:
    """A worker's life: until it finished, was hit, or its attempt was over."""
    key = (worker.term, worker.attempt)
    ends = [clock.end_of(clock.starts[key]) if key in clock.starts else clock.end_s]
    ends += [clock.s(e) for e in clock.killed[worker.attempt] if worker.rank in e.ranks]
    ends += [clock.s(e) for e in clock.finished[*key, worker.rank]]
    tip = f"rank {worker.rank} of {worker.world_size}, attempt {worker.attempt}, pid {worker.pid}"
    end = max(min(ends), clock.s(worker))
    kind = f"worker parity-{worker.attempt % 2}"
    return Span(clock.s(worker), end, kind, f"rank {worker.rank}", tip, row, clock.line(worker))


def _kills(fault: h.FaultInjected) -> bool:
    return fault.name.startswith("sigkill")


def _steps(clock: _Clock, worker: h.WorkerStarted, row: int) -> Iterable[Mark]:
    mine = clock.steps[worker.term, worker.attempt, worker.rank]
    every = max(-(-len(mine) // MAX_STEP_MARKS), -(-len(clock.of(h.Stepped)) // MAX_ALL_STEP_MARKS), 1)
    return [Mark(clock.s(e), "step", "", f"step {e.step}", row, clock.line(e)) for e in mine[::every]]


def _world(clock: _Clock) -> tuple[tuple[float, int], ...]:
    corners = [(0.0, 0)]
    for start in clock.of(h.AttemptStarted):
        corners += [(clock.s(start), start.world_size), (clock.end_of(start), 0)]
    return (*sorted(corners, key=lambda corner: corner[0]), (clock.end_s, 0)) if len(corners) > 1 else ()


def _bounds(clock: _Clock) -> tuple[int, int] | None:
    began = clock.of(h.ExperimentBegan)
    match began[0].configuration.get("num_workers") if began else None:
        case [int(low), int(high)]:
            return low, high
        case int(fixed):
            return fixed, fixed
    return None


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _or(first: object, second: object) -> object:
    return second if first is None else first
