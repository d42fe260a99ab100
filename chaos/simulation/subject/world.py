"""What everybody in a simulated run shares: virtual time, chance, the cluster, the storage, and the harness's ear."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from shaketable.chaos.chain import ChainConfig
from shaketable.chaos.history.events import AnyEvent, Event
from shaketable.chaos.simulation.subject.storage import SimulatedCheckpoints, SimulatedRecords, SimulatedSnapshots
from shaketable.clusters.simulated.cluster import SimulatedCluster
from shaketable.clusters.simulated.nodes import Range
from shaketable.clusters.simulated.virtual_time import Timeline
from shaketable.runtime.controller import Transition

if TYPE_CHECKING:
    from shaketable.chaos.simulation.subject.agent import Worker
    from shaketable.chaos.simulation.subject.driver import SimulatedDriver

# the wall clock at virtual time 0
EPOCH_S = 1_700_000_000.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take a run, in seconds (from and to). Measured on local Ray (docs/simulation.md)."""

    # a driver's process -> it opens the log
    launch: Range = (0.8, 2.5)
    # an actor is asked for -> its fork server is warm
    agent: Range = (0.4, 2.5)
    message: Range = (0.0005, 0.01)
    fork: Range = (0.005, 0.05)
    enter: Range = (0.001, 0.02)
    restore: Range = (0.002, 0.1)
    # of each rank's part, where a bandwidth makes it matter
    checkpoint_bytes: int = 5_000_000
    join: Range = (0.005, 0.03)
    upload: Range = (0.003, 0.08)
    append: Range = (0.001, 0.02)
    reap: Range = (0.001, 0.02)
    # a peer dies -> the collective of the others breaks
    echo: Range = (0.002, 0.15)
    # how often a message, a restore, an upload or an append takes `slow_by` times as long
    slow: float = 0.02
    slow_by: float = 20.0


@dataclass(frozen=True, slots=True)
class Chance:
    """How often, out of 1, something goes wrong by itself. `answer`: a record is stored and the answer lost; `record`:
    it is refused, once; `upload`: a checkpoint is refused for good; `start`: a worker dies before it is in the
    function; `agent`: an agent does not come up, and is tried again."""

    answer: float = 0.0
    record: float = 0.0
    upload: float = 0.0
    start: float = 0.0
    agent: float = 0.0


@dataclass(slots=True, eq=False)
class Writer:
    """One recording process: stamps its events."""

    world: World
    name: str
    _seq: int = 0
    # when it last said something, virtual time
    last_s: float = 0.0

    def say(self, kind: type[Event], **fields: object) -> None:
        world, seq = self.world, self._seq
        self._seq, self.last_s = seq + 1, world.timeline.now
        event = kind(writer=self.name, seq=seq, at_s=EPOCH_S + world.timeline.now, **fields)
        world.hear(event)  # type: ignore[arg-type]

    def emit(self, event: Event) -> None:
        """The interface of a real witness."""
        seq, self._seq = self._seq, self._seq + 1
        at_s = EPOCH_S + self.world.timeline.now
        self.world.hear(msgspec.structs.replace(event, writer=self.name, seq=seq, at_s=at_s))  # type: ignore[arg-type]


@dataclass
class World:
    timeline: Timeline
    rng: random.Random
    cluster: SimulatedCluster
    chain: ChainConfig
    hear: Callable[[AnyEvent], None]
    # (step, world size) -> the next step a trigger waits for
    watched_step: Callable[[int, int], int | None]
    records: SimulatedRecords
    # by this driver, from whoever had the run before
    taken_over: Callable[[SimulatedDriver], None]
    # told before it is felt
    failed_by_itself: Callable[[str, Worker], None]
    chance: Chance
    snapshots: SimulatedSnapshots
    checkpoints: SimulatedCheckpoints = field(default_factory=SimulatedCheckpoints)
    pace: Pace = field(default_factory=Pace)
    # a worker says at least so often how far it is; 0: only when something happens
    silent_s: float = 0.0
    next_pid: int = 1000
    # uploads, for good
    refused: int = 0
    transitions: Counter[Transition] = field(default_factory=Counter)

    def pid(self) -> int:
        self.next_pid += 1
        return self.next_pid

    def draw(self, span: Range) -> float:
        low, high = span
        return low + (high - low) * self.rng.random()

    def draw_slow(self, span: Range) -> float:
        """Like `draw`, now and then much longer."""
        (low, high), random, pace = span, self.rng.random, self.pace
        took = low + (high - low) * random()
        return took * pace.slow_by if random() < pace.slow else took
