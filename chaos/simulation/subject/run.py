"""One run on a simulated cluster, with everything that a fault can lay its hands on and everything that is looked at
afterwards. The counterpart of a real cluster with real drivers.
"""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from shaketable.chaos.chain import ChainConfig
from shaketable.chaos.faults.sigkill_agent import SigkillAgent
from shaketable.chaos.faults.sigkill_driver import SigkillDriver
from shaketable.chaos.history.events import AnyEvent, CheckpointProbed, LeakCheck, LogRecord
from shaketable.chaos.plan import Configuration, tier_of
from shaketable.chaos.simulation.subject.agent import Worker
from shaketable.chaos.simulation.subject.crashing import CrashPoints
from shaketable.chaos.simulation.subject.driver import SimulatedDriver
from shaketable.chaos.simulation.subject.given import RUN, Given, given
from shaketable.chaos.simulation.subject.storage import NotRestored, SimulatedRecords, SimulatedSnapshots
from shaketable.chaos.simulation.subject.world import Chance, Pace, World
from shaketable.chaos.subjects.probing import quarantined
from shaketable.clusters.simulated.cluster import SimulatedCluster
from shaketable.clusters.simulated.nodes import SliceKind
from shaketable.clusters.simulated.virtual_time import Timeline
from shaketable.clusters.slice_states import SliceState
from shaketable.runtime.controller import IllegalEvent, declared, in_words
from shaketable.runtime.errors import LogViolation, StorageError
from shaketable.runtime.log.run_log import RunLog
from shaketable.runtime.log.run_state import RunState, fold
from shaketable.runtime.tpu.topology import SliceShape

STORAGE_PATH = "/simulated"
# What there is to be reached, of both of the controller's tables: state, why, next state.
_IN_WORDS = {transition: in_words(transition) for transition in declared()}
DECLARED = tuple(_IN_WORDS.values())
# What may come out of a runtime that is broken, if it comes out of its own code (`broke_by_itself`).
RUNTIME_BUGS = (IllegalEvent, LogViolation, AssertionError, AttributeError, KeyError, IndexError, TypeError)


# mutants stand in for it
RUNTIME = ("shaketable.runtime", "shaketable.suites.mutants")


def broke_by_itself(error: BaseException) -> bool:
    """Whether the innermost code of ours that `error` came out of is the runtime's, and not the harness's around it."""
    names = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    ours = [name for name in names if name.startswith("shaketable.")]
    return bool(ours) and ours[-1].startswith(RUNTIME)


def _kind(shape: SliceShape, states: Sequence[SliceState]) -> SliceKind:
    return SliceKind(shape.topology, shape.pod_type, float(shape.chips_per_host), states)


class SimulatedRun:
    """`hear` gets every event at once; `exited(launch, code)` is called when a driver is gone. `beside`: another run,
    on the same cluster at the same time."""

    def __init__(
        self,
        configuration: Configuration,
        rng: random.Random,
        hear: Callable[[AnyEvent], None],
        watched_step: Callable[[int, int], int | None],
        exited: Callable[[int, int], None],
        *,
        hosts: int = 1,
        pace: Pace | None = None,
        settings: dict[str, Any] | None = None,
        chance: Chance,
        failed_by_itself: Callable[[str, Worker], None],
        beside: SimulatedRun | None = None,
        points: CrashPoints | None = None,
        crashed: Callable[[str, int], None] = lambda name, pid: None,
    ) -> None:
        self.timeline: Timeline = Timeline() if beside is None else beside.timeline
        self._configuration, self._exited, self._settings = configuration, exited, settings or {}
        self._usual = self._given(configuration)
        shape = self._usual.scaling.slice
        hosts = hosts if shape is None else shape.hosts
        kind = None if shape is None else _kind(shape, configuration.slices)
        nodes = len(configuration.slices) * hosts or configuration.nodes
        self.cluster: SimulatedCluster = (
            SimulatedCluster(
                self.timeline,
                rng,
                nodes,
                hosts=hosts,
                slices=kind,
                tier_of=lambda number: tier_of(configuration.tiers, number),
            )
            if beside is None
            else beside.cluster
        )
        records = SimulatedRecords(rng, chance.answer, chance.record, points=points or CrashPoints())
        records.points.kill, self._crashed = self._kill, crashed
        self.world = World(
            self.timeline,
            rng,
            self.cluster,
            ChainConfig.of(configuration.job_config),
            hear,
            watched_step,
            records,
            self._taken_over,
            failed_by_itself,
            chance,
            SimulatedSnapshots(records.points),
            pace=pace or Pace(),
            silent_s=(configuration.hang_timeout_s or 0.0) / 4,
        )
        self._hosts = hosts
        self._changed: dict[str, Any] = {}
        # by pid, those that run
        self.drivers: dict[int, SimulatedDriver] = {}
        # exit codes, by pid
        self.codes: dict[int, int] = {}
        self.launched = 0
        self._looked = False
        self._state: RunState | None = None

    # ---- drivers

    def _given(self, configuration: Configuration) -> Given:
        return given(configuration, STORAGE_PATH, self._settings)

    def start_driver(self, changed: dict[str, Any]) -> SimulatedDriver:
        launch, self.launched = self.launched, self.launched + 1
        # JSON has no tuples
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in changed.items()
        }
        told = self._given(replace(self._configuration, **values)) if values else self._usual
        driver = SimulatedDriver(self.world, told, launch, self._gone, hosts=self._hosts)
        self.drivers[driver.pid] = driver
        return driver

    def _gone(self, launch: int, code: int) -> None:
        for pid in [pid for pid, driver in self.drivers.items() if driver.launch == launch]:
            del self.drivers[pid]
            self.codes[pid] = code
            self._exited(launch, code)

    def _taken_over(self, by: SimulatedDriver) -> None:
        """Whoever else believes to have the run looks at its log within `fence_check_s`."""
        for driver in self.drivers.values():
            if driver is not by:
                self.timeline.later(self.world.draw((0.0, driver.fence_check_s)), driver.check_fence)

    # ---- workers

    def workers(self, pids: Iterable[int]) -> list[Worker]:
        """Those of these processes that are there."""
        wanted = set(pids)
        agents = (agent for driver in self.drivers.values() for agent in driver.leases.agents())
        found = (agent.worker for agent in agents if agent.worker is not None)
        return [worker for worker in found if worker.pid in wanted and worker.alive]

    def _kill(self, victim: str) -> None:
        """The driver that has the run, or an agent of it: that of rank 0, if it has a worker."""
        if victim == "driver":
            newest = max(self.drivers.values(), key=lambda driver: driver.launch)
            self._crashed(SigkillDriver.name, newest.pid)
            newest.kill()
            return
        agents = [agent for driver in self.drivers.values() for agent in driver.leases.agents()]
        busy = [agent for agent in agents if agent.worker is not None and agent.worker.alive]
        chosen = min(busy, key=lambda agent: agent.worker.fork.rank if agent.worker else 0, default=None)
        chosen = chosen or next(iter(agents), None)
        if chosen is None:
            # none has come up yet, or all have left
            return
        if chosen.worker is not None and chosen.worker.alive and not chosen.worker.finished:
            self.world.failed_by_itself(SigkillAgent.name, chosen.worker)
        else:
            self._crashed(SigkillAgent.name, 0)
        chosen.end(broken=True)

    def look_again(self) -> None:
        """A trigger may wait for an earlier step than the workers are on their way to."""
        for driver in list(self.drivers.values()):
            driver.look_again()

    # ---- what is looked at afterwards

    def leaks(self, waited_s: float) -> LeakCheck:
        state = self._final()
        known = {*(commit.checkpoint for commit in state.commits), *state.quarantined} if state else set()
        files = [f"{name}: not committed, never removed" for name in self.world.checkpoints.files if name not in known]
        return LeakCheck(processes=[], cluster=self.cluster.leftovers(), files=files, waited_s=round(waited_s, 3))

    def transitions(self) -> Counter[tuple[str, str, str]]:
        """How often each transition of the controller's tables was taken: state, why, next state."""
        return Counter({_IN_WORDS[transition]: n for transition, n in self.world.transitions.items()})

    def log_records(self) -> list[LogRecord]:
        stored = sorted(self.world.records.stored.items())
        return [LogRecord(number=number, record=msgspec.json.decode(data)) for number, data in stored]

    def probes(self) -> list[CheckpointProbed]:
        """Every commit that was not deleted, read back; of those given up as corrupt, what is left of their files."""
        state = self._final()
        found = []
        for commit in state.commits if state else ():
            probe = CheckpointProbed(checkpoint=commit.checkpoint, index=commit.index, ok=True)
            try:
                content = self.world.checkpoints.restore(commit)
            except NotRestored as error:
                probe = msgspec.structs.replace(probe, ok=False, reason=str(error))
            else:
                probe = msgspec.structs.replace(probe, step=content.step, digest=content.digest)
            found.append(probe)
        stored = self.world.checkpoints.files
        return [
            *found,
            *(quarantined(name, sorted(stored.get(name, ()))) for name in (state.quarantined if state else ())),
        ]

    def commits(self) -> list[str]:
        """The names of the commits that count now."""
        state = fold(RunLog(RUN, records=self.world.records).read())
        return [commit.checkpoint for commit in state.commits]

    @property
    def ended(self) -> bool:
        """Whether the log ends with the end of the run."""
        stored = self.world.records.stored
        last = msgspec.json.decode(stored[max(stored)]) if stored else {}
        return last.get("kind") in ("run_finished", "run_failed")

    @property
    def tier(self) -> str:
        """On which tier the run is, by its log; empty: it has none."""
        for number in sorted(self.world.records.stored, reverse=True):
            record = msgspec.json.decode(self.world.records.stored[number])
            if record["kind"] == "tier_changed":
                return str(record["tier"])
            if record.get("reopened"):
                break
        return str(self._configuration.tiers[0]["name"]) if self._configuration.tiers else ""

    def _final(self) -> RunState | None:
        """What the log says in the end, read once."""
        if not self._looked:
            self._looked = True
            try:
                self._state = fold(RunLog(RUN, records=self.world.records).read())
            except (StorageError, LogViolation):
                self._state = None
        return self._state
