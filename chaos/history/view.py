"""A history as the invariants read it: indexed once, pure, nothing of it judged here.

What the controller did is a list of entries in the order that counts (`entries.py`). What the workers recorded hangs
below the attempt that they belong to. Clocks are used for durations and near borders only, never to order two writers
closer than CLOCK_SKEW_S.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from shaketable.chaos import chain, exact
from shaketable.chaos.chain import ChainConfig
from shaketable.chaos.exact import ExactConfig
from shaketable.chaos.fault_kinds import kind_of
from shaketable.chaos.history.entries import (
    Commit,
    Deletion,
    End,
    QuarantinedCheckpoint,
    Reinstatement,
    Start,
    from_events,
    from_log,
)
from shaketable.chaos.history.events import (
    AnyEvent,
    DriverExited,
    DriverStarted,
    Event,
    ExperimentBegan,
    FaultHealed,
    FaultObserved,
    LogRecord,
    NodeJoined,
    ReferenceRun,
    Resumed,
    RunConfigured,
    RunEnded,
    Stepped,
    TermBegan,
    WorkerFinished,
    WorkerStarted,
)
from shaketable.chaos.job_kinds import is_bundled, is_command
from shaketable.chaos.plan import Configuration, Expect

CLOCK_SKEW_S = 0.5
# clusters on which everybody reads the same clock
ONE_CLOCK = ("simulated", "local", "processes", "containers")

E = TypeVar("E", bound=Event)
T = TypeVar("T")


@dataclass(slots=True)
class Attempt:
    """One attempt with everything that was recorded in it."""

    start: Start
    end: End | None = None
    workers: list[WorkerStarted] = field(default_factory=list)
    resumed: list[Resumed] = field(default_factory=list)
    # by rank
    steps: dict[int, list[Stepped]] = field(default_factory=dict)
    # ranks whose training function returned
    finished: set[int] = field(default_factory=set)
    commits: list[Commit] = field(default_factory=list)

    @property
    def number(self) -> int:
        return self.start.attempt

    @property
    def name(self) -> str:
        return f"attempt {self.number}" if self.start.number is not None else f"attempt {self.start.term}.{self.number}"

    @property
    def world_size(self) -> int:
        return self.start.world_size

    @property
    def begin_s(self) -> float:
        return self.start.at_s

    @property
    def end_s(self) -> float:
        return self.end.at_s if self.end is not None else float("inf")

    def last_step(self, rank: int) -> int | None:
        """The last step that `rank` did or had done in what it resumed; None if it said neither."""
        done = [event.step for event in self.steps.get(rank, [])]
        done += [event.step for event in self.resumed if event.rank == rank]
        return max(done, default=None)

    def all_entered(self) -> bool:
        return {event.rank for event in self.workers} >= set(range(self.world_size))


@dataclass(frozen=True, slots=True)
class DriverLife:
    """One life of the driver, with the configuration it was given."""

    started: DriverStarted
    exited: DriverExited | None
    configuration: Configuration


class History:
    """All of it, indexed. Missing parts are empty; what that means is for the invariant to say."""

    def __init__(self, events: Sequence[AnyEvent]) -> None:
        self.events = tuple(events)
        self._by_kind: dict[type, list[Any]] = {}
        for event in self.events:
            self._by_kind.setdefault(type(event), []).append(event)
        began = self.all(ExperimentBegan)
        self.began = began[0] if began else None
        self.scripts = {event.term: event for event in reversed(self.all(RunConfigured))}
        self.configuration = _scripted(
            _configuration(began[0].configuration if began else {}), next(iter(self.scripts.values()), None)
        )
        self.expect = _known(Expect, began[0].expect if began else {})
        self.subject = self.began.subject if self.began else self.configuration.subject
        self.driver_lives = _driver_lives(self)
        self._life_by_writer: dict[str, DriverLife | None] = {}
        self._settings: dict[int, Configuration] = {}
        self._derived: dict[Callable[[History], Any], Any] = {}
        self.nodes = self.all(NodeJoined)
        self.has_log = bool(self.all(LogRecord))
        self.entries = from_log(self.all(LogRecord), self.all(TermBegan)) if self.has_log else from_events(self.events)
        self._entries_by_kind: dict[type, list[Any]] = {}
        for entry in self.entries:
            self._entries_by_kind.setdefault(type(entry), []).append(entry)
        self.attempts = _attempts(self)
        self._attempts_by_number: dict[int, list[Attempt]] = {}
        self._attempt_meant: dict[tuple[int, int], Attempt | None] = {}
        for attempt in self.attempts:
            self._attempts_by_number.setdefault(attempt.number, []).append(attempt)
        self.ends = self.of(End)
        self.commits = self.of(Commit)
        workers: tuple[WorkerStarted | Stepped, ...] = (*self.all(WorkerStarted), *self.all(Stepped))
        self.strays = [event for event in workers if self.entered(event) is None]
        _hang_up(self)

    @classmethod
    def indexed(cls, told: Sequence[AnyEvent] | History) -> History:
        """What was told, indexed; as it is where that has been done before."""
        return told if isinstance(told, History) else cls(told)

    def all(self, kind: type[E]) -> list[E]:
        """Every event of one kind, in the order of the history."""
        return self._by_kind.get(kind, [])

    def of(self, kind: type[T]) -> list[T]:
        """Every entry of one kind, in the order that counts."""
        found: list[T] = self._entries_by_kind.get(kind, [])
        return found

    def attempt(self, term: int | None, number: int | None) -> Attempt | None:
        """The attempt that an event of `term` means by `number`. Where there is a log, numbers count over the
        whole run, and whoever takes it over also ends what it finds open; else each term counts for
        itself."""
        if term is None or number is None:
            return None
        if (term, number) not in self._attempt_meant:
            same = self._attempts_by_number.get(number, ())
            exact = [a for a in same if a.start.term == term]
            inherited = [a for a in same if self.has_log and a.start.term < term]
            self._attempt_meant[term, number] = next(reversed(exact or inherited), None)
        return self._attempt_meant[term, number]

    def entered(self, event: WorkerStarted | Resumed | Stepped | WorkerFinished) -> Attempt | None:
        """The attempt that a worker says it is in. None outlives the driver that started it."""
        found = self.attempt(event.term, event.attempt)
        return found if found is not None and found.start.term == event.term else None

    def attempt_at(self, at_s: float) -> Attempt | None:
        """The attempt that was open at a time."""
        found = [a for a in self.attempts if a.begin_s <= at_s <= a.end_s]
        return found[-1] if found else None

    def following(self, attempt: Attempt) -> Attempt | None:
        later = [a for a in self.attempts if a.start.position > attempt.start.position]
        return later[0] if later else None

    def settings(self, term: int) -> Configuration:
        """The configuration that the driver of `term` was given."""
        if term not in self._settings:
            life = self.driver_life_of(next((e for e in self.all(TermBegan) if e.term == term), None))
            self._settings[term] = life.configuration if life is not None else self.configuration
        return self._settings[term]

    def once(self, make: Callable[[History], T]) -> T:
        """What `make` finds in this history, looked for at the first question."""
        if make not in self._derived:
            self._derived[make] = make(self)
        found: T = self._derived[make]
        return found

    def node_ids(self, numbers: Iterable[int]) -> set[str]:
        """Those that Ray gave the nodes with the harness's numbers."""
        known = self.once(_ids_by_number)
        return {node_id for number in numbers for node_id in known.get(number, ())}

    def driver_life_of(self, event: Event | None) -> DriverLife | None:
        """Whose event it is: the life with the writer's pid, else the latest one before it."""
        if event is None:
            return None
        if event.writer not in self._life_by_writer:
            # a worker on another machine may have the same number
            spoken = "" if event.writer.startswith("worker-") else event.writer
            by_pid = [life for life in self.driver_lives if f"-{life.started.pid}-" in spoken]
            self._life_by_writer[event.writer] = by_pid[-1] if by_pid else None
        if (own := self._life_by_writer[event.writer]) is not None:
            return own
        return next((life for life in reversed(self.driver_lives) if life.started.at_s <= event.at_s), None)

    def latest_commit(self, position: int) -> Commit | None:
        """The commit that counts at a place in the order."""
        broken = self.quarantined_checkpoints(position)
        before = (entry for entry in reversed(self.commits) if entry.position < position)
        return next((entry for entry in before if entry.checkpoint not in broken), None)

    def quarantined_checkpoints(self, position: int | None = None) -> set[str]:
        """The checkpoints that were given up as corrupt, before that place in the order, and not taken back since."""
        found: set[str] = set()
        told: list[QuarantinedCheckpoint | Reinstatement] = [*self.of(QuarantinedCheckpoint), *self.of(Reinstatement)]
        for entry in sorted(told, key=lambda entry: entry.position):
            if position is None or entry.position < position:
                (found.add if isinstance(entry, QuarantinedCheckpoint) else found.discard)(entry.checkpoint)
        return found

    def deleted(self) -> set[str]:
        return {entry.checkpoint for entry in self.of(Deletion)}

    @property
    def storage_out_of_reach(self) -> bool:
        """The storage was still hurt when the last driver exited: that could not end its attempt in the log, nor remove
        anything."""
        hurt = {event.fault for event in self.all(FaultObserved) if kind_of(event.name).loss == "storage"}
        exits = [life.exited.at_s for life in self.driver_lives if life.exited is not None]
        healed = {e.fault for e in self.all(FaultHealed) if exits and e.at_s < max(exits)}
        return bool(hurt - healed) and bool(self.attempts) and self.attempts[-1].end is None

    def committed_step(self, commit: Commit) -> Stepped | None:
        """What was recorded, with a checkpoint, for the report that `commit` made durable."""
        attempt = self.attempt(commit.term, commit.attempt)
        steps = [step for rank in sorted(attempt.steps) for step in attempt.steps[rank]] if attempt else []
        return next((step for step in steps if report_index(step) == commit.index and step.checkpoint), None)

    @property
    def run_ended(self) -> RunEnded | None:
        """What the last `fit()` said."""
        ended = self.all(RunEnded)
        return max(ended, key=lambda event: (event.term, event.at_s)) if ended else None

    @property
    def skew_s(self) -> float:
        """How far apart two writers' clocks may be."""
        return 0.0 if self.began is not None and self.began.cluster in ONE_CLOCK else CLOCK_SKEW_S

    @property
    def disturbed(self) -> bool:
        """Whether it is of a simulated world with disturbances of its own, besides the plan."""
        return self.began is not None and self.began.unplanned_from is not None

    @property
    def own_job(self) -> bool:
        """Whether the job is the user's own: it records nothing, its reports are heard."""
        return not is_bundled(self.configuration.job)

    @property
    def script(self) -> bool:
        """Whether the job is a command, which is its own driver."""
        return is_command(self.configuration.job)

    @property
    def controls(self) -> list[ReferenceRun]:
        """The runs without faults, a second one only where it was needed."""
        return self.all(ReferenceRun)

    @property
    def hash_chained(self) -> bool:
        """Whether it is the hash-chain job."""
        return _is_ours(self.configuration.job, "hash_chain")

    @property
    def records_state(self) -> bool:
        """Whether the job says itself what it resumed (ours do)."""
        return any(_is_ours(self.configuration.job, name) for name in ("hash_chain", "torch_ddp", "jax_sharded"))

    def lineage(self, steps: int) -> Sequence[str] | None:
        """What the digest must be after 0, 1, ..., at least `steps` steps, for jobs whose configuration says it."""
        config = self.configuration.job_config
        if self.hash_chained:
            return chain.lineage(ChainConfig.of(config), steps)
        if _is_ours(self.configuration.job, "jax_sharded"):
            return exact.lineage(ExactConfig.of(config), steps)
        return None

    def samples(self, step: int) -> Sequence[int] | None:
        """The samples that `step` has to consume, for the same jobs."""
        config = self.configuration.job_config
        if self.hash_chained:
            return chain.batch(step, ChainConfig.of(config))
        if _is_ours(self.configuration.job, "jax_sharded"):
            return exact.batch(step, ExactConfig.of(config))
        return None

    @property
    def planned_steps(self) -> int | None:
        """How many steps a whole run has, where the job is one of ours."""
        if not self.records_state:
            return None
        last = self.driver_lives[-1].configuration if self.driver_lives else self.configuration
        return int(last.job_config.get("steps", 40))


def report_index(step: Stepped) -> int:
    """Which report of the run it was, whatever its step is called."""
    return step.step if step.index is None else step.index


# ---- how it is indexed ---------------------------------------------------------------------------------------


def _ids_by_number(history: History) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for node in history.nodes:
        found.setdefault(node.node, []).append(node.node_id)
    return found


def _is_ours(job: str, name: str) -> bool:
    module, _, function = job.partition(":")
    return function == name and module.startswith("shaketable.")


def _known(kind: type[T], values: Mapping[str, Any]) -> T:
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]  # only ever dataclasses
    return kind(**{key: value for key, value in values.items() if key in names})


def _configuration(values: Mapping[str, Any]) -> Configuration:
    """JSON has no tuples."""
    return _known(
        Configuration, {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    )


def _scripted(made: Configuration, script: RunConfigured | None) -> Configuration:
    """Bounds and budgets are those of the script's own trainer, where it is one."""
    if script is None:
        return made
    return replace(
        made,
        num_workers=(script.min_workers, script.max_workers),
        max_failures=script.max_failures,
        max_preemption_failures=script.max_preemption_failures,
        elastic_resize_monitor_interval_s=script.elastic_resize_monitor_interval_s,
    )


def _driver_lives(history: History) -> list[DriverLife]:
    base = dict(history.began.configuration) if history.began else {}
    first = _configuration(base)
    exits = {event.launch: event for event in history.all(DriverExited)}
    lives = []
    for started in sorted(history.all(DriverStarted), key=lambda event: event.launch):
        # what an earlier launch was given is not kept
        given = _configuration({**base, **started.changed}) if started.changed else first
        script = history.scripts.get(started.launch + 1)
        lives.append(DriverLife(started, exits.get(started.launch), _scripted(given, script)))
    return lives


def _attempts(history: History) -> list[Attempt]:
    return [Attempt(entry) for entry in history.entries if isinstance(entry, Start)]


def _hang_up(history: History) -> None:
    """Put every ending, commit and worker's word below its attempt."""
    for end in history.ends:
        if (attempt := history.attempt(end.term, end.attempt)) is not None and attempt.end is None:
            attempt.end = end
    for commit in history.commits:
        if (attempt := history.attempt(commit.term, commit.attempt)) is not None:
            attempt.commits.append(commit)
    for worker in history.all(WorkerStarted):
        if (attempt := history.entered(worker)) is not None:
            attempt.workers.append(worker)
    for resumed in history.all(Resumed):
        if (attempt := history.entered(resumed)) is not None:
            attempt.resumed.append(resumed)
    for step in history.all(Stepped):
        if (attempt := history.entered(step)) is not None:
            attempt.steps.setdefault(step.rank, []).append(step)
    for finished in history.all(WorkerFinished):
        if (attempt := history.entered(finished)) is not None:
            attempt.finished.add(finished.rank)
