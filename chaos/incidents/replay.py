"""An experiment out of a trace of capacity: nodes come and go as they did, in the same order, on a smaller scale. Pure.

The experiment's clock is its steps, which take `STEP_S` each: a trigger is never a time, and so the order holds however
slowly a cluster starts. Each change waits until the world has taken the one before in: the run is to be put through
all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from shaketable.chaos.constraints import MAX_SECONDS
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment import vocabulary
from shaketable.chaos.incidents.capacity_trace import Change
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan, Trigger

STEP_S = 0.1
# of virtual time, in which a day passes as a day
SIMULATED_STEP_S = 4.0
# an hour of them to a checkpoint, and one sample to a step: a day of proofs in seconds
SIMULATED_JOB = {"checkpoint_every": 900, "global_batch": 1}
# how long a trace takes where no scale is given
USUAL_S = 60.0
FIRST_STEP = 5
# what an added node may take until it is in the world
GROW_STEPS = 100
TAIL_STEPS = 20
MAX_FAULTS, MAX_NODES, MAX_STEPS = 100, 64, 36_000
MAX_SIMULATED_NODES = 1024

# one of them, by the seed
Choose = Callable[[Sequence[int]], int]


@dataclass(frozen=True, slots=True)
class Replay:
    """`scale`: seconds of the trace in one second of the experiment."""

    plan: Plan
    scale: float
    notes: tuple[str, ...]


def replay(
    changes: Sequence[Change],
    where: str,
    *,
    scale: float | None,
    seed: int,
    choose: Choose,
    notice: bool,
    simulated: bool = False,
    price_per_hour: float | None = None,
) -> Replay:
    """`notice`: nodes are told before they are taken. `simulated`: on more nodes, in the trace's own time.
    `price_per_hour`: of a node. Raises ExperimentError that names the line."""
    span_s = changes[-1].time_s - changes[0].time_s
    usual = 1.0 if simulated else max(span_s / USUAL_S, 1.0)
    scale = usual if scale is None else scale
    draft = _Draft(where, choose, notice, simulated, price_per_hour)
    draft.start(changes)
    begin_s = changes[0].time_s
    for (time_s, action), group in groupby(draft.later, key=lambda change: (change.time_s, change.action)):
        step = FIRST_STEP + round((time_s - begin_s) / scale / draft.step_s)
        draft.play(step, action, list(group))
    return Replay(draft.plan(seed), scale, tuple(draft.notes))


@dataclass(slots=True)
class _Draft:
    where: str
    choose: Choose
    notice: bool
    simulated: bool = False
    price_per_hour: float | None = None
    later: list[Change] = field(default_factory=list)
    # nodes of the trace that are there -> the harness's number
    named: dict[str, int] = field(default_factory=dict)
    alive: set[int] = field(default_factory=set)
    # the last number given
    numbers: int = 0
    # not of the trace: nodes that stay while it has none
    kept: int = 0
    initial: int = 0
    peak: int = 0
    adds: int = 0
    # groups of removals that took somebody's node
    hits: int = 0
    step: int = FIRST_STEP
    # the last fault of the group before
    before: int | None = None
    faults: list[FaultPlan] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def step_s(self) -> float:
        return SIMULATED_STEP_S if self.simulated else STEP_S

    @property
    def tier(self) -> str:
        return "trace" if self.price_per_hour is not None else ""

    def start(self, changes: Sequence[Change]) -> None:
        """Which nodes there are before anything changes."""
        first_s = changes[0].time_s
        at_first = [change for change in changes if change.time_s == first_s and change.action == "add"]
        opening = at_first if changes[0].action == "add" else []
        self.later = [change for change in changes if change not in opening]
        for change in opening:
            self._join(change)
        for name in _never_added(self.later, set(self.named)):
            self.named[name] = self._new()
        self.kept = max(1 - self._fewest(), 0)
        for _ in range(self.kept):
            self._new()
        if self.kept:
            self.notes.append(
                f"at some time the trace has no node, so {self.kept} more {'is' if self.kept == 1 else 'are'} added"
            )
        self.initial = self.peak = len(self.alive)

    def _fewest(self) -> int:
        """How many nodes there are when there are fewest."""
        level = least = len(self.alive)
        for change in self.later:
            level += 1 if change.action == "add" else -1
            least = min(least, level)
        return least

    def _new(self) -> int:
        self.numbers += 1
        self.alive.add(self.numbers)
        return self.numbers

    def _join(self, change: Change) -> None:
        if change.node in self.named:
            raise ExperimentError(f"{self._at(change)}: {change.node!r} is there already; remove it first")
        number = self._new()
        if change.node:
            self.named[change.node] = number

    def _leave(self, change: Change) -> int:
        if change.node and change.node not in self.named:
            raise ExperimentError(f"{self._at(change)}: {change.node!r} is not there any more; add it first")
        unnamed = sorted(self.alive - set(self.named.values()))
        number = self.named.pop(change.node) if change.node else self.choose(unnamed or sorted(self.alive))
        self.named = {name: node for name, node in self.named.items() if node != number}
        self.alive.remove(number)
        return number

    def play(self, step: int, action: str, group: Sequence[Change]) -> None:
        """What changes at one time changes at once."""
        at: Trigger = {"step": step, "world_size": len(self.alive)}
        if self.before is not None:
            at["after"] = self.before
        if action == "add":
            for change in group:
                self._join(change)
            self._add(at, len(group))
            self.adds += 1
        else:
            hit = [self._leave(change) for change in group]
            self._remove(at, hit, named=any(change.node for change in group))
            self.hits += 1
        self.step, self.peak, self.before = step, max(self.peak, len(self.alive)), len(self.faults) - 1

    def _add(self, at: Trigger, count: int) -> None:
        """One by one, as a cluster of this machine is asked for them; in simulation all at once."""
        more = {"tier": self.tier} if self.tier else {}
        if self.simulated and count > 1:
            self.faults.append(vocabulary.add_node(dict(at), count=count, **more))
        else:
            self.faults += [vocabulary.add_node(dict(at), **more) for _ in range(count)]

    def _remove(self, at: Trigger, hit: Sequence[int], named: bool) -> None:
        """In simulation nobody needs to know which of those without a name."""
        removal = vocabulary.sigterm_node if self.notice else vocabulary.sigkill_node
        if self.simulated and not named:
            self.faults.append(removal(vocabulary.randomly(len(hit)), dict(at)))
        else:
            self.faults += [removal(vocabulary.node(number), dict(at)) for number in hit]

    def _at(self, change: Change) -> str:
        return f"{self.where}:{change.line}"

    def plan(self, seed: int) -> Plan:
        steps = self.step + TAIL_STEPS + GROW_STEPS * self.adds
        for problem in self._problems(steps):
            raise ExperimentError(f"{self.where}: {problem}")
        account = "max_preemption_failures" if self.notice else "max_failures"
        configuration = Configuration(
            seed=seed,
            cluster="simulated" if self.simulated else "local",
            job_config={"steps": steps, "step_s": self.step_s} | (SIMULATED_JOB if self.simulated else {}),
            nodes=self.initial,
            num_workers=(1, self.peak),
            max_failures=-1,
            tiers=({"name": self.tier, "nodes": self.initial, "price_per_hour": self.price_per_hour},)
            if self.tier
            else (),
        )
        within_s = min(MAX_SECONDS, max(300.0, 2 * steps * self.step_s + 60.0 * len(self.faults)))
        expect = Expect("finished", {account: self.hits} if self.hits else {}, None, within_s)
        return Plan(
            f"A trace of capacity: {self.initial} nodes at first, {self.peak} at most, {len(self.alive)} in the end",
            configuration,
            tuple(self.faults),
            expect,
        )

    def _problems(self, steps: int) -> Iterator[str]:
        if len(self.faults) > MAX_FAULTS:
            yield f"{len(self.faults)} changes; an experiment has at most {MAX_FAULTS}: shorten the trace"
        most, kind = (MAX_SIMULATED_NODES, "simulated") if self.simulated else (MAX_NODES, "local")
        if self.peak - self.kept > most:
            yield f"{self.peak - self.kept} nodes at a time; a {kind} cluster has at most {most}: remove some"
        if steps > MAX_STEPS:
            yield f"at this scale it takes {steps * self.step_s / 60:.0f} min; give a larger --scale, or none"


def _never_added(changes: Sequence[Change], there: set[str]) -> list[str]:
    """Names that are removed before any line adds them: they were there."""
    known, found = set(there), []
    for change in changes:
        if change.node and change.action == "remove" and change.node not in known:
            found.append(change.node)
        known.add(change.node)
    return found
