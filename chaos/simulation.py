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

from shaketable.chaos import targets
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.history import (
    AnyEvent,
    AttemptEnded,
    AttemptStarted,
    DeadlinePassed,
    DriverExited,
    DriverStarted,
    Event,
    ExperimentBegan,
    FaultHealed,
    FaultInjected,
    FaultMissed,
    FaultObserved,
    FaultTriggered,
    Healed,
    NodeJoined,
    NodeLeft,
    Stepped,
    WorkerStarted,
)  # fmt: skip
from shaketable.chaos.landing import LOOK_EVERY_S, Armed, injected, never
from shaketable.chaos.plan import FaultPlan, Plan
from shaketable.chaos.simulated_triggers import Waiting
from shaketable.chaos.subjects.simulated.agent import Worker
from shaketable.chaos.subjects.simulated.crashing import CrashPoints
from shaketable.chaos.subjects.simulated.driver import SimulatedDriver
from shaketable.chaos.subjects.simulated.faults import INJECTIONS
from shaketable.chaos.subjects.simulated.injection import Injection
from shaketable.chaos.subjects.simulated.run import RUNTIME_BUGS, SimulatedRun
from shaketable.chaos.subjects.simulated.world import Chance, Pace, Writer
from shaketable.chaos.targets import Hit, TargetMissed
from shaketable.chaos.workloads.chain import ChainConfig
from shaketable.clusters.protocol import ClusterError, hosts_of
from shaketable.clusters.simulated_nodes import SimulatedNode

RESOLVED_WITHIN_S = 5.0
LOOK_LEAST_OFTEN_S = 2.0
AT_ONCE = 0.3  # how often a fault lands in the very moment of its trigger, in the middle of whatever goes on
LANDS_S = (0.0005, 0.008)  # else so long after
LEAKS_GONE_WITHIN_S = 10.0
LONGEST_S = 1e9
HEAL_EVERY_S = 30.0
PAUSE_S = 10.0
MOST_NODES_AT_ONCE = 8
MOST_RELAUNCHES = 20
WEATHER_FAULT = 1000  # numbers of what the weather does begin here
_TARGETED = frozenset({AttemptStarted, WorkerStarted, AttemptEnded, DriverStarted, DriverExited, NodeJoined})


@dataclass(frozen=True, slots=True)
class Weather:
    """What a simulated world does besides the faults of the method. `settings` go to the runtime's RunConfig."""

    hosts: int = 1
    chance: Chance = field(default_factory=Chance)
    pace: Pace = field(default_factory=Pace)
    settings: dict[str, Any] = field(default_factory=dict)
    pause_every_s: float = 0.0  # the machines of the run all stand still for PAUSE_S about so often; 0: never
    points: CrashPoints | None = None
    heals: bool = False  # bring back capacity and driver when nothing goes on any more


@dataclass(slots=True)
class Played:
    """What came of it: the history, and the help that the simulation gave by itself, as faults of a method."""

    events: list[AnyEvent]
    help: list[FaultPlan]
    virtual_s: float
    transitions: Counter[tuple[str, str, str]]  # state, event, state after
    crash: str = ""  # how the runtime itself broke: an event that its state does not know, an illegal record


def not_simulated(plan: Plan) -> str:
    """Why this experiment needs real processes; empty: it can be simulated."""
    configuration = plan.configuration
    if configuration.subject != "bundled":
        return f"the subject {configuration.subject} cannot be simulated: run it with cluster: local"
    if not (configuration.job.startswith("shaketable.") and configuration.job.endswith(":hash_chain")):
        return f"the job {configuration.job} needs real processes: run it with cluster: local"
    return ""


def play(
    plan: Plan, armed: Sequence[Armed], weather: Weather | None = None, versions: dict[str, str] | None = None
) -> Played:
    """The history of one run of the plan. Raises ExperimentError for what cannot be simulated."""
    if (why := not_simulated(plan)) != "":
        raise ExperimentError(why)
    try:
        ChainConfig.of(plan.configuration.job_config)
    except (TypeError, ValueError) as error:
        raise ExperimentError(f"job_config: {error}") from error
    return _Play(plan, armed, weather or Weather()).run(versions or {})


class _Play:
    def __init__(self, plan: Plan, armed: Sequence[Armed], weather: Weather) -> None:
        self._plan, self._armed, self._weather = plan, armed, weather
        seed = plan.configuration.seed
        self._rng = random.Random(f"{seed}/world")
        self._waiting = Waiting(armed, self._trigger, self._heal_if_due)
        self.run_under_test = SimulatedRun(
            plan.configuration, self._rng, self.hear, self._waiting.next_step, self._exited, hosts=weather.hosts,
            pace=weather.pace, settings=weather.settings, chance=weather.chance,
            failed_by_weather=self._failed_by_weather, points=weather.points, crashed=self._crashed,
        )  # fmt: skip
        self._timeline = self.run_under_test.timeline
        self.harness = Writer(self.run_under_test.world, "harness")
        self.events: list[AnyEvent] = []
        self._group: list[AnyEvent] = []  # what tells who is in the current attempt
        self._drivers: list[AnyEvent] = []
        self._targets = 0  # counts what changes who is there to be hit
        self._step: int | None = None
        self._on_the_way = 0
        self._broken, self._late, self._inspecting = True, False, False
        self._injections: dict[int, Injection] = {}
        self._hit_nodes: dict[int, None] = {}
        self._quiet_since_s = self._deadline_from_s = 0.0
        self._help: list[FaultPlan] = []
        self._exits = self._weather_faults = 0

    # ---- the course of it

    def run(self, versions: dict[str, str]) -> Played:
        self._introduce(versions)
        self._end_break_phase()
        self.start_driver({})
        self._look_at_time()
        self.run_under_test.cluster.watch(self._look_at_nodes)
        if self._weather.heals:
            self._timeline.later(HEAL_EVERY_S, self._look_after)
        if self._weather.pause_every_s:
            self._pause_later()
        crash = ""
        try:
            self._timeline.run(LONGEST_S, self._over)
        except RUNTIME_BUGS as error:
            crash = f"{type(error).__name__}: {error}"
        for armed in self._armed:
            if not armed.fired:
                self._miss(armed, never(armed.trigger.condition, self._step))
        for armed in self._armed:
            self._heal(armed)
        if not crash:
            self._aftermath()
        seen = self.run_under_test.world.transitions
        transitions = Counter(
            {(str(a), event.__name__, str(b)): count for (a, event, b), count in seen.items()}
        )
        return Played(self.events, self._help, self._timeline.now, transitions, crash)

    def _introduce(self, versions: dict[str, str]) -> None:
        configuration = self._plan.configuration
        self.harness.say(
            ExperimentBegan, title=self._plan.title, subject=configuration.subject, cluster="simulated",
            seed=configuration.seed, configuration=msgspec.to_builtins(configuration),
            expect=dataclasses.asdict(self._plan.expect), versions=versions,
        )  # fmt: skip
        for node in self.run_under_test.cluster.nodes():
            self._joined(self.run_under_test.cluster.at(node.number))

    def _over(self) -> bool:
        if self.run_under_test.drivers or self._on_the_way:
            return False
        return not (self._weather.heals and self._relaunch())

    def _look_at_time(self) -> None:
        """The run has `within_s` to end, counted from the last thing that was done to it or for it."""
        within_s = self._plan.expect.within_s
        left_s = self._deadline_from_s + within_s - self._timeline.now
        if left_s > 0:
            self._timeline.later(left_s, self._look_at_time)
            return
        self.harness.say(DeadlinePassed, within_s=within_s)
        self._late, self._on_the_way = True, 0
        self._waiting.no_more()
        self._timeline.ask()
        for driver in list(self.run_under_test.drivers.values()):
            driver.kill()

    def _aftermath(self) -> None:
        ended_s, self._inspecting = self._timeline.now, True
        self._timeline.run(ended_s + LEAKS_GONE_WITHIN_S, self._tidy)
        run, say = self.run_under_test, self.harness.testify
        say(run.leaks(self._timeline.now - ended_s))
        for event in (*run.log_records(), *run.probes()):
            say(event)

    def _tidy(self) -> bool:
        self._timeline.ask()  # whatever happens may have been the last of it
        return not self.run_under_test.cluster.leftovers()

    # ---- drivers and nodes

    def start_driver(self, changed: dict[str, Any]) -> int:
        driver = self.run_under_test.start_driver(changed)
        self.harness.say(DriverStarted, launch=driver.launch, pid=driver.pid, changed=changed)
        return driver.pid

    def _exited(self, launch: int, code: int) -> None:
        self.harness.say(DriverExited, launch=launch, code=code)
        self._exits += 1
        self._timeline.ask()

    def _look_at_nodes(self) -> None:
        for number in list(self._hit_nodes):
            node = self.run_under_test.cluster.at(number)
            if node.seen == "dead":
                del self._hit_nodes[number]
                self.harness.say(NodeLeft, node=number, node_id=node.node_id)

    # ---- the history

    def hear(self, event: AnyEvent) -> None:
        self.events.append(event)
        kind = type(event)
        if kind is Stepped:
            assert isinstance(event, Stepped)
            self._quiet_since_s = self._timeline.now
            self._step = max(self._step or 0, event.step)
        elif kind in _TARGETED:
            self._targets += 1
            if kind is AttemptStarted:
                self._group = [event]
            elif kind is DriverStarted or kind is DriverExited:
                self._drivers.append(event)
            elif kind is not NodeJoined:
                self._group.append(event)
        self._waiting.feed(event)

    # ---- a fault on its way

    def _trigger(self, armed: Armed, event: Event) -> None:
        self._on_the_way += 1
        by = f"{event.writer}#{event.seq}"
        self.harness.say(
            FaultTriggered, fault=armed.number, name=armed.fault.name, trigger=armed.trigger.condition.raw, by=by,
            step=self._step,
        )  # fmt: skip
        if self._rng.random() < AT_ONCE:
            self._resolve(armed, self._timeline.now)
        else:
            self._timeline.later(
                self.run_under_test.world.draw(LANDS_S), self._resolve, armed, self._timeline.now
            )

    def _resolve(self, armed: Armed, began_s: float, targets_then: int = -1) -> None:
        """Tried again for a while, where there is something else to hit than the last time."""
        waited_s = self._timeline.now - began_s
        if self._targets == targets_then and waited_s < RESOLVED_WITHIN_S:
            self._timeline.later(waited_s, self._resolve, armed, began_s, targets_then)
            return
        cluster, seed = self.run_under_test.cluster, self._plan.configuration.seed
        nodes = {node.node_id: node.number for node in cluster.all_nodes() if node.state != "gone"}
        hosts = hosts_of(cluster.nodes()) if "slice" in armed.target else {}
        events = self._drivers if armed.fault.thing == "driver" else self._group
        try:
            hit = targets.resolve(
                armed.target,
                armed.fault.thing,
                [*events, *self._drivers],
                nodes,
                f"{seed}/{armed.number}",
                hosts,
            )
        except TargetMissed as error:
            if waited_s < RESOLVED_WITHIN_S:
                self._timeline.later(max(0.02, waited_s), self._resolve, armed, began_s, self._targets)
            else:
                self._lost_sight(armed, str(error))
            return
        self._inject(armed, hit)

    def _inject(self, armed: Armed, hit: Hit) -> None:
        self.harness.testify(injected(armed, hit))
        armed.hit = hit
        self._hit_nodes.update(dict.fromkeys(hit.nodes))
        injection = self._injections[armed.number] = INJECTIONS[armed.fault.name](self, armed.fault, hit)
        try:
            injection.inject()
        except ClusterError as error:
            self._lost_sight(armed, str(error))
            return
        self._observe(armed, self._timeline.now, LOOK_EVERY_S)

    def _observe(self, armed: Armed, began_s: float, pause_s: float) -> None:
        evidence = self._injections[armed.number].observe()
        if evidence is not None:
            self._land(armed, evidence, (self._timeline.now - began_s) * 1000)
        elif self._timeline.now - began_s > armed.fault.observe_within_s:
            self._lost_sight(armed, f"no evidence that it landed within {armed.fault.observe_within_s:g} s")
        else:
            pause_s = min(LOOK_LEAST_OFTEN_S, pause_s * 3)
            self._timeline.later(pause_s, self._observe, armed, began_s, pause_s)

    def _land(self, armed: Armed, evidence: str, after_ms: float) -> None:
        armed.landed = True
        self._arrived()
        self._deadline_from_s = self._timeline.now
        self.harness.say(
            FaultObserved, fault=armed.number, name=armed.fault.name, evidence=evidence, after_ms=after_ms
        )
        self.run_under_test.look_again()
        self._heal_if_due(armed)
        self._end_break_phase()

    def _lost_sight(self, armed: Armed, reason: str) -> None:
        self._arrived()
        self._miss(armed, reason)

    def _arrived(self) -> None:
        self._on_the_way -= 1
        self._timeline.ask()

    def _miss(self, armed: Armed, reason: str) -> None:
        self.harness.say(FaultMissed, fault=armed.number, name=armed.fault.name, reason=reason)

    # ---- healing

    def _heal_if_due(self, armed: Armed) -> None:
        if armed.landed and not armed.healed and armed.until is not None and armed.until.fired:
            self._heal(armed)
            self._end_break_phase()

    def _heal(self, armed: Armed) -> None:
        if armed.healed or armed.hit is None:
            return
        armed.healed = True
        self._injections[armed.number].heal()
        if armed.fault.heals:
            self._deadline_from_s = self._timeline.now
            self.harness.say(FaultHealed, fault=armed.number, name=armed.fault.name)

    def _end_break_phase(self) -> None:
        if self._broken and all(armed.settled for armed in self._armed):
            self._broken = False
            self.harness.say(Healed)

    # ---- what the weather does

    def _failed_by_weather(self, name: str, worker: Worker) -> None:
        """Told like a fault, for the ledger."""
        self._weather_faults += 1
        fork, number = worker.fork, WEATHER_FAULT + self._weather_faults
        self.harness.say(
            FaultInjected, fault=number, name=name, target={"rank": fork.rank}, pids=[worker.pid], ranks=[fork.rank],
            term=fork.term, attempt=fork.attempt,
        )  # fmt: skip
        self.harness.say(FaultObserved, fault=number, name=name, evidence="refused", after_ms=0.0)

    def _pause_later(self) -> None:
        self._timeline.later(self._rng.uniform(0.0, 2 * self._weather.pause_every_s), self._pause)

    def _pause(self) -> None:
        """Of every machine that the run has: its clocks are that much further then, and nothing else is. Not while it
        is looked at what is left, for which there are so many seconds."""
        if self._inspecting:
            return
        self._weather_faults += 1
        number, name = WEATHER_FAULT + self._weather_faults, "freeze_everything"
        self.harness.say(FaultInjected, fault=number, name=name, target={})
        self.harness.say(FaultObserved, fault=number, name=name, evidence="stopped", after_ms=0.0)
        self._timeline.pause(PAUSE_S, SimulatedDriver.on_time)
        for driver in self.run_under_test.drivers.values():
            for agent in driver.leases.agents():
                agent.paused(PAUSE_S)
        self._deadline_from_s += PAUSE_S
        self._quiet_since_s += PAUSE_S
        self._timeline.later(PAUSE_S, self._paused, number, name)

    def _paused(self, number: int, name: str) -> None:
        self.harness.say(FaultHealed, fault=number, name=name)
        for driver in list(self.run_under_test.drivers.values()):
            driver.paused(PAUSE_S)
        self._pause_later()

    def _crashed(self, name: str, pid: int) -> None:
        """Killed at a boundary of the storage: a driver, or an agent without a worker (pid 0)."""
        self._weather_faults += 1
        number = WEATHER_FAULT + self._weather_faults
        self.harness.say(FaultInjected, fault=number, name=name, target={}, pids=[pid] if pid else [])
        self.harness.say(FaultObserved, fault=number, name=name, evidence="gone", after_ms=0.0)

    # ---- help that is not in the method: a stated core comes back, so that the run can converge

    def _look_after(self) -> None:
        """Where nothing has moved for a while: thaw, and bring back enough nodes."""
        self._timeline.later(HEAL_EVERY_S, self._look_after)
        if self._timeline.now - self._quiet_since_s < HEAL_EVERY_S or self._on_the_way:
            return
        for armed in self._armed:
            if armed.landed and armed.fault.heals:
                self._heal(armed)
        cluster, workers = self.run_under_test.cluster, self._plan.configuration.num_workers
        most = workers if isinstance(workers, int) else workers[1]
        tier = self.run_under_test.tier
        if self._leaves_by_itself(tier):
            return
        for _ in range(min(MOST_NODES_AT_ONCE, -(-(most - cluster.sound_nodes(tier)) // cluster.hosts))):
            arguments = {"tier": tier} if tier else {}
            self._help_with(FaultPlan("add_node", None, self._after_the_last(), arguments))
            cluster.add_node(self._joined, tier=tier)

    def _leaves_by_itself(self, name: str) -> bool:
        """A run that waits in vain for this tier has to try the next one."""
        others = self._plan.configuration.tiers[:-1]
        return any(tier["name"] == name and tier.get("capacity_timeout_s") is not None for tier in others)

    def _joined(self, node: SimulatedNode) -> None:
        self.harness.say(
            NodeJoined, node=node.number, node_id=node.node_id, slice=node.usable_slice, tier=node.tier
        )

    def _relaunch(self) -> bool:
        """A run that has come to no end gets another driver."""
        if self.run_under_test.ended or self._exits > MOST_RELAUNCHES or self._late:
            return False
        self._on_the_way += 1
        self._help_with(FaultPlan("relaunch_driver", None, {"event": "driver_exited", "nth": self._exits}))
        self._timeline.later(1.0, self._relaunched)
        return True

    def _relaunched(self) -> None:
        self._arrived()
        self.start_driver({})

    def _help_with(self, fault: FaultPlan) -> None:
        self._deadline_from_s = self._timeline.now
        self._help.append(fault)

    def _after_the_last(self) -> dict[str, Any]:
        landed = [armed.number for armed in self._armed if armed.landed]
        return {"after": landed[-1]} if landed else {"event": "term_began"}
