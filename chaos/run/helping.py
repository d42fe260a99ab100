"""Help that is in no method. A schedule of exploration breaks whatever it was drawn to break; then, where nothing gets
any further, a stated core comes back, as in simulation (`simulation/player.py`): what is frozen thaws, nodes are added
up to the maximum, and a driver is launched while the run has come to no end.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

from shaketable.chaos.faults.add_node import AddNode
from shaketable.chaos.faults.relaunch_driver import RelaunchDriver
from shaketable.chaos.history.collector import Collector
from shaketable.chaos.history.events import (
    AnyEvent,
    DriverExited,
    FaultHealed,
    FaultObserved,
    NodeJoined,
    RunEnded,
    Stepped,
    TermBegan,
)
from shaketable.chaos.injection.injector import Injector
from shaketable.chaos.plan import Configuration, FaultPlan, Trigger
from shaketable.chaos.run.drivers import Drivers
from shaketable.clusters.protocol import Cluster

# without a step: longer than a driver takes to find a node silent (`heartbeat_timeout_s` 5) and to start anew
QUIET_S = 8.0
# since a run was helped, hurt, or got further than ever; one that only repeats itself is stuck. Longer than the longest
# pauses before two retries (`runtime/controller/budget.py`)
PATIENCE_S = 120.0
LOOK_EVERY_S = 0.2
MOST_DRIVERS = 12
MOST_NODES = 24
ENDS_WITHIN_S = 70.0


class Helper:
    """Looks after one run until it is closed. `given`: what it did, as faults of a method; `stalled_s`: for how long at
    most this machine let it stand still, and so whatever it watched."""

    def __init__(
        self, configuration: Configuration, schedule: Injector, cluster: Cluster, drivers: Drivers, collector: Collector
    ) -> None:
        self._configuration = configuration
        self._schedule, self._cluster, self._drivers, self._collector = schedule, cluster, drivers, collector
        self.given: list[FaultPlan] = []
        self.stalled_s = 0.0
        self._acted_s = self._stepped_s = self._further_s = time.monotonic()
        self._looked_s = 0.0
        self._highest = 0
        self._landed: int | None = None
        self._exits, self._added, self._ended = 0, 0, False
        self._closed = threading.Event()
        self._error: BaseException | None = None
        self._unsubscribe: Callable[[], None] = collector.subscribe(self._hear)
        self._thread = threading.Thread(target=self._run, name="helper", daemon=True)
        self._thread.start()

    # ---- what the engine asks

    @property
    def left_s(self) -> float:
        """Until the run is late."""
        return max(self._acted_s, self._further_s) + PATIENCE_S - time.monotonic()

    def relaunched(self) -> bool:
        """No driver runs, and nothing is on its way: a run that has come to no end gets another driver."""
        if self._ended or len(self._drivers.pids) >= MOST_DRIVERS:
            return False
        self._help_with(FaultPlan(RelaunchDriver.name, None, {"event": "driver_exited", "nth": self._exits}))
        self._drivers.start({})
        return True

    def close(self) -> None:
        self._unsubscribe()
        self._closed.set()
        self._thread.join(ENDS_WITHIN_S)

    def check(self) -> None:
        """Raises what broke in it. ClusterError: a node did not come up, so nothing can be said of a run that needed
        it."""
        if self._error is not None:
            raise self._error

    # ---- on the collector's thread

    def _hear(self, event: AnyEvent) -> None:
        match event:
            case Stepped():
                self._stepped_s = time.monotonic()
                if event.step > self._highest:
                    self._highest, self._further_s = event.step, self._stepped_s
            case FaultObserved() | FaultHealed():
                self._acted_s = time.monotonic()
                self._landed = event.fault if isinstance(event, FaultObserved) else self._landed
            case DriverExited():
                self._exits += 1
            case TermBegan():
                self._ended = False
            case RunEnded():
                self._ended = event.outcome != "interrupted"

    # ---- on its own

    def _run(self) -> None:
        try:
            while not self._waited():
                quiet_s = time.monotonic() - max(self._stepped_s, self._acted_s, self._looked_s)
                if quiet_s > QUIET_S and self._drivers.running and not self._schedule.busy:
                    self._look_after()
        except BaseException as error:  # noqa: BLE001  (comes out of check())
            self._error = error

    def _waited(self) -> bool:
        """Until the next look; True: it is closed."""
        began_s = time.monotonic()
        closed = self._closed.wait(LOOK_EVERY_S)
        self.stalled_s = max(self.stalled_s, time.monotonic() - began_s - LOOK_EVERY_S)
        return closed

    def _look_after(self) -> None:
        self._schedule.heal_all()
        for tier, lacking in self._lacking():
            for _ in range(min(lacking, MOST_NODES - self._added)):
                if self._closed.is_set():
                    return
                self._help_with(FaultPlan(AddNode.name, None, self._after_the_last(), {"tier": tier} if tier else {}))
                for node in self._cluster.add_capacity(None, tier):
                    self._added += 1
                    joined = NodeJoined(node=node.number, node_id=node.node_id, slice=node.slice, tier=node.tier)
                    self._collector.emit(joined)
        # no help: a run that nothing more can be done for is late in the end
        self._looked_s = time.monotonic()

    def _lacking(self) -> Iterator[tuple[str, int]]:
        """Of each tier, how many nodes (or whole slices) are missing for a world of full size."""
        hosts, (_, most) = self._configuration.hosts_per_slice or 1, self._configuration.bounds
        there = [node for node in self._cluster.nodes() if self._cluster.state(node.number) == "alive"]
        for tier in [str(tier["name"]) for tier in self._configuration.tiers] or [""]:
            ours = [node for node in there if node.tier == tier]
            if self._configuration.hosts_per_slice:
                whole = Counter(node.slice for node in ours if node.slice)
                sound = sum(hosts for count in whole.values() if count >= hosts)
            else:
                sound = len(ours)
            yield tier, -(-(most - sound) // hosts)

    def _help_with(self, fault: FaultPlan) -> None:
        self._acted_s = time.monotonic()
        self.given.append(fault)

    def _after_the_last(self) -> Trigger:
        return {"event": "term_began"} if self._landed is None else {"after": self._landed}
