"""One experiment in virtual time: the plan of a file or of `shake(...)`, with the same triggers, targets, history and
judge, on the simulated cluster. It takes milliseconds and uses no process, no thread and no clock.

Everything random comes from the experiment's seed: the same seed gives the same history, byte for byte.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from shaketable.chaos.chain import ChainConfig
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.faults.add_node import AddNode
from shaketable.chaos.faults.disturbances import FreezeEverything
from shaketable.chaos.faults.relaunch_driver import RelaunchDriver
from shaketable.chaos.history.events import (
    AnyEvent,
    DeadlinePassed,
    DriverExited,
    DriverStarted,
    ExperimentBegan,
    FaultHealed,
    FaultInjected,
    FaultObserved,
    NodeLeft,
    Stepped,
    SubjectBroke,
)
from shaketable.chaos.injection.life_cycle import Armed, planned
from shaketable.chaos.plan import FaultPlan, Plan
from shaketable.chaos.redacting import redacted
from shaketable.chaos.simulation.beside import RunBeside
from shaketable.chaos.simulation.injector import SimulatedInjector
from shaketable.chaos.simulation.subject.agent import Worker
from shaketable.chaos.simulation.subject.crashing import CrashPoints
from shaketable.chaos.simulation.subject.driver import SimulatedDriver
from shaketable.chaos.simulation.subject.run import RUNTIME_BUGS, SimulatedRun, broke_by_itself
from shaketable.chaos.simulation.subject.scene import RunScene
from shaketable.chaos.simulation.subject.world import Chance, Pace, Writer

LEAKS_GONE_WITHIN_S = 10.0
LONGEST_S = 1e9
HEAL_EVERY_S = 30.0
PAUSE_S = 10.0
MOST_NODES_AT_ONCE = 8
MOST_RELAUNCHES = 20
# numbers of what disturbances do begin here
UNPLANNED_FAULT = 1000


@dataclass(frozen=True, slots=True)
class Disturbances:
    """What a simulated world does besides the faults of the method. `settings` go to the runtime's RunConfig."""

    hosts: int = 1
    chance: Chance = field(default_factory=Chance)
    pace: Pace = field(default_factory=Pace)
    settings: dict[str, Any] = field(default_factory=dict)
    # the machines of the run all stand still for PAUSE_S about so often; 0: never
    pause_every_s: float = 0.0
    points: CrashPoints | None = None
    # bring back capacity and driver when nothing goes on any more
    heals: bool = False


@dataclass(slots=True)
class Played:
    """What came of it: the history, and the help that the simulation gave by itself, as faults of a method."""

    events: list[AnyEvent]
    help: list[FaultPlan]
    # state, why, next state
    transitions: Counter[tuple[str, str, str]]
    # how the runtime itself broke: an event that its state does not know, an illegal record
    crash: str = ""


def not_simulated(plan: Plan) -> str:
    """Why this experiment needs real processes; empty: it can be simulated."""
    configuration = plan.configuration
    if configuration.subject != "bundled":
        return f"the subject {configuration.subject} cannot be simulated: run it with cluster: local"
    if not (configuration.job.startswith("shaketable.") and configuration.job.endswith(":hash_chain")):
        return f"the job {configuration.job} needs real processes: run it with cluster: local"
    apart = sorted({fault.name for fault in plan.faults if fault.name in FAULTS and FAULTS[fault.name].apart})
    if apart:
        kinds = {FAULTS[name].apart for name in apart}
        where = "kuberay" if "pods" in kinds else "containers" if "machine" in kinds else "processes"
        return f"{', '.join(apart)} cannot be simulated: run it with cluster: {where}"
    return ""


def play(
    plan: Plan, armed: Sequence[Armed], disturbances: Disturbances | None = None, versions: dict[str, str] | None = None
) -> Played:
    """The history of one run of the plan. Raises ExperimentError for what cannot be simulated."""
    if (why := not_simulated(plan)) != "":
        raise ExperimentError(why)
    try:
        ChainConfig.of(plan.configuration.job_config)
    except (TypeError, ValueError) as error:
        raise ExperimentError(f"job_config: {error}") from error
    return _Play(plan, armed, disturbances).run(versions or {})


class _Play:
    def __init__(self, plan: Plan, armed: Sequence[Armed], given: Disturbances | None) -> None:
        self._plan, self._armed, self._disturbances = plan, armed, (disturbances := given or Disturbances())
        self._unplanned_from = None if given is None else UNPLANNED_FAULT
        seed = plan.configuration.seed
        self._rng = random.Random(f"{seed}/world")
        self._schedule = SimulatedInjector(armed, seed, self._rng)
        self.run_under_test = SimulatedRun(
            plan.configuration,
            self._rng,
            self.hear,
            self._schedule.next_step,
            self._exited,
            hosts=disturbances.hosts,
            pace=disturbances.pace,
            settings=disturbances.settings,
            chance=disturbances.chance,
            failed_by_itself=self._failed_by_itself,
            points=disturbances.points,
            crashed=self._crashed,
        )
        self._timeline = self.run_under_test.timeline
        self.harness = Writer(self.run_under_test.world, "harness")
        self._scene = RunScene(self.run_under_test, self.harness, self.start_driver, self.start_beside)
        self._schedule.attach(self._scene)
        self.events: list[AnyEvent] = []
        self._late, self._inspecting = False, False
        self._relaunching = 0
        self._quiet_since_s = 0.0
        self._help: list[FaultPlan] = []
        self._exits = self._unplanned_faults = 0

    # ---- the course of it

    def run(self, versions: dict[str, str]) -> Played:
        self._introduce(versions)
        self._schedule.begin()
        self.start_driver({})
        self._look_at_time()
        self.run_under_test.cluster.watch(self._look_at_nodes)
        if self._disturbances.heals:
            self._timeline.later(HEAL_EVERY_S, self._look_after)
        if self._disturbances.pause_every_s:
            self._pause_later()
        crash = ""
        try:
            self._timeline.run(LONGEST_S, self._over)
        except RUNTIME_BUGS as error:
            if not broke_by_itself(error):
                raise
            crash = f"{type(error).__name__}: {error}"
            self.harness.say(SubjectBroke, error=crash)
        self._schedule.close()
        if not crash:
            self._check_leaks()
        return Played(self.events, self._help, self.run_under_test.transitions(), crash)

    def _introduce(self, versions: dict[str, str]) -> None:
        configuration = self._plan.configuration
        self.harness.say(
            ExperimentBegan,
            title=self._plan.title,
            subject=configuration.subject,
            cluster="simulated",
            seed=configuration.seed,
            configuration=redacted(msgspec.to_builtins(configuration)),
            expect=dataclasses.asdict(self._plan.expect),
            versions=versions,
            faults=planned(self._plan.faults, self._armed),
            unplanned_from=self._unplanned_from,
        )
        for node in self.run_under_test.cluster.nodes():
            self._scene.joined(self.run_under_test.cluster.at(node.number))

    def _over(self) -> bool:
        if self.run_under_test.drivers or self._busy:
            return False
        return not (self._disturbances.heals and self._relaunch())

    @property
    def _busy(self) -> bool:
        """A fault or a driver is on its way."""
        return self._relaunching + self._schedule.on_the_way > 0

    def _look_at_time(self) -> None:
        """The run has `within_s` to end, counted from the last thing that was done to it or for it."""
        within_s = self._plan.expect.within_s
        left_s = self._schedule.acted_s + within_s - self._timeline.now
        if left_s > 0:
            self._timeline.later(left_s, self._look_at_time)
            return
        self.harness.say(DeadlinePassed, within_s=within_s)
        self._late = True
        self._relaunching = 0
        self._schedule.no_more()
        self._timeline.ask()
        for driver in list(self.run_under_test.drivers.values()):
            driver.kill()

    def _check_leaks(self) -> None:
        ended_s, self._inspecting = self._timeline.now, True
        self._timeline.run(ended_s + LEAKS_GONE_WITHIN_S, self._tidy)
        run, say = self.run_under_test, self.harness.emit
        say(run.leaks(self._timeline.now - ended_s))
        for event in (*run.log_records(), *run.probes()):
            say(event)

    def _tidy(self) -> bool:
        # whatever happens may have been the last of it
        self._timeline.ask()
        return not self.run_under_test.cluster.leftovers()

    # ---- drivers and nodes

    def start_driver(self, changed: dict[str, Any]) -> int:
        driver = self.run_under_test.start_driver(changed)
        self.harness.say(DriverStarted, launch=driver.launch, pid=driver.pid, changed=redacted(changed))
        return driver.pid

    def start_beside(self, changed: dict[str, Any]) -> RunBeside:
        return RunBeside(self._plan.configuration, changed, self.run_under_test)

    def _exited(self, launch: int, code: int) -> None:
        self.harness.say(DriverExited, launch=launch, code=code)
        self._exits += 1
        self._timeline.ask()

    def _look_at_nodes(self) -> None:
        for number in list(self._schedule.hit_nodes):
            node = self.run_under_test.cluster.at(number)
            if node.seen == "dead":
                del self._schedule.hit_nodes[number]
                self.harness.say(NodeLeft, node=number, node_id=node.node_id)

    # ---- the history

    def hear(self, event: AnyEvent) -> None:
        self.events.append(event)
        if type(event) is Stepped:
            self._quiet_since_s = self._timeline.now
        self._schedule.feed(event)

    # ---- what disturbances do

    def _failed_by_itself(self, name: str, worker: Worker) -> None:
        """Told like a fault, for the ledger."""
        self._unplanned_faults += 1
        fork, number = worker.fork, UNPLANNED_FAULT + self._unplanned_faults
        self.harness.say(
            FaultInjected,
            fault=number,
            name=name,
            target={"rank": fork.rank},
            pids=[worker.pid],
            ranks=[fork.rank],
            term=fork.term,
            attempt=fork.attempt,
        )
        self.harness.say(FaultObserved, fault=number, name=name, evidence="refused", after_ms=0.0)

    def _pause_later(self) -> None:
        self._timeline.later(self._rng.uniform(0.0, 2 * self._disturbances.pause_every_s), self._pause)

    def _pause(self) -> None:
        """Of every machine that the run has: its clocks are that much further then, and nothing else is. Not while it
        is looked at what is left, for which there are so many seconds."""
        if self._inspecting:
            return
        self._unplanned_faults += 1
        number, name = UNPLANNED_FAULT + self._unplanned_faults, FreezeEverything.name
        self.harness.say(FaultInjected, fault=number, name=name, target={})
        self.harness.say(FaultObserved, fault=number, name=name, evidence="stopped", after_ms=0.0)
        self._timeline.pause(PAUSE_S, SimulatedDriver.on_time)
        for driver in self.run_under_test.drivers.values():
            for agent in driver.leases.agents():
                agent.paused(PAUSE_S)
        self._schedule.acted_s += PAUSE_S
        self._quiet_since_s += PAUSE_S
        self._timeline.later(PAUSE_S, self._paused, number, name)

    def _paused(self, number: int, name: str) -> None:
        self.harness.say(FaultHealed, fault=number, name=name)
        for driver in list(self.run_under_test.drivers.values()):
            driver.paused(PAUSE_S)
        self._pause_later()

    def _crashed(self, name: str, pid: int) -> None:
        """Killed at a boundary of the storage: a driver, or an agent without a worker (pid 0)."""
        self._unplanned_faults += 1
        number = UNPLANNED_FAULT + self._unplanned_faults
        self.harness.say(FaultInjected, fault=number, name=name, target={}, pids=[pid] if pid else [])
        self.harness.say(FaultObserved, fault=number, name=name, evidence="gone", after_ms=0.0)

    # ---- help that is not in the method: a stated core comes back, so that the run can converge

    def _look_after(self) -> None:
        """Where nothing has moved for a while: thaw, and bring back enough nodes."""
        self._timeline.later(HEAL_EVERY_S, self._look_after)
        if self._timeline.now - self._quiet_since_s < HEAL_EVERY_S or self._busy:
            return
        for armed in self._armed:
            if armed.landed and armed.fault.heals:
                self._schedule.heal(armed)
        cluster, workers = self.run_under_test.cluster, self._plan.configuration.num_workers
        most = workers if isinstance(workers, int) else workers[1]
        tier = self.run_under_test.tier
        if self._leaves_by_itself(tier):
            return
        for _ in range(min(MOST_NODES_AT_ONCE, -(-(most - cluster.sound_nodes(tier)) // cluster.hosts))):
            arguments = {"tier": tier} if tier else {}
            self._help_with(FaultPlan(AddNode.name, None, self._after_the_last(), arguments))
            cluster.add_node(self._scene.joined, tier=tier)

    def _leaves_by_itself(self, name: str) -> bool:
        """A run that waits in vain for this tier has to try the next one."""
        others = self._plan.configuration.tiers[:-1]
        return any(tier["name"] == name and tier.get("capacity_timeout_s") is not None for tier in others)

    def _relaunch(self) -> bool:
        """A run that has come to no end gets another driver."""
        if self.run_under_test.ended or self._exits > MOST_RELAUNCHES or self._late:
            return False
        self._relaunching += 1
        self._help_with(FaultPlan(RelaunchDriver.name, None, {"event": "driver_exited", "nth": self._exits}))
        self._timeline.later(1.0, self._relaunched)
        return True

    def _relaunched(self) -> None:
        self._relaunching -= 1
        self._timeline.ask()
        self.start_driver({})

    def _help_with(self, fault: FaultPlan) -> None:
        self._schedule.acted_s = self._timeline.now
        self._help.append(fault)

    def _after_the_last(self) -> dict[str, Any]:
        landed = [armed.number for armed in self._armed if armed.landed]
        return {"after": landed[-1]} if landed else {"event": "term_began"}
