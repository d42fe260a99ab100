"""What faults do to processes and nodes, and the evidence that it was done."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from shaketable.chaos import procfs
from shaketable.chaos.history.events import AnyEvent, DriverExited, DriverStarted, RunEnded, WorkerStarted, read_events
from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.simulated_scene import SimulatedDriver
from shaketable.chaos.injection.targets import ResolvedTarget


class StopsProcesses(Fault):
    """SIGSTOP to the processes hit: they neither die nor answer. Healed by SIGCONT: they do not know that they were
    away."""

    heals, manner = True, "frozen"

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        send(hit, signal.SIGSTOP)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return all_stopped(hit)

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        send(hit, signal.SIGCONT)


class SignalsDriver(Fault):
    """A signal that ends the driver. The evidence is that it went because of the signal."""

    target_kind, loss, anywhere, drawn, needs = "driver", "driver", True, True, "driver"
    signal: ClassVar[signal.Signals]

    def __init__(self) -> None:
        self._hit: SimulatedDriver | None = None

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        send(hit, self.signal)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return ended_by(scene, hit, self.signal)

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        self._hit = simulated_driver(scene, hit)
        if self._hit is not None:
            self._hit.interrupt(self.signal)

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        ended = self._hit is not None and scene.exit_code(hit.pids[0]) == 128 + self.signal
        return "gone" if ended else None


class Announced(Fault):
    """A node that goes after a notice. The evidence is Ray's own view, or that the node is gone."""

    target_kind, loss, manner, drawn = "node", "node", "announced", True
    charged_to, causes = "max_preemption_failures", ("node_lost",)

    def __init__(self) -> None:
        # of each node, before this one (in simulation)
        self._notices: tuple[int, ...] | None = None

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        """Ray's own view has every node hit as draining or dead, or its processes are gone."""
        if all_gone(hit):
            return "gone"
        states = {scene.cluster.state(number) for number in hit.nodes}
        if not states or "alive" in states:
            return None
        return "draining" if "draining" in states else "dead"

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        """Of nodes that got this very notice."""
        nodes = [scene.cluster.at(number) for number in hit.nodes]
        if self._notices is None or any(n.notices <= before for n, before in zip(nodes, self._notices, strict=True)):
            return None
        if all(node.state == "gone" for node in nodes):
            return "gone"
        return "draining" if all(node.seen_draining or node.seen == "dead" for node in nodes) else None

    def remember(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        """Which notices the nodes had before this one."""
        self._notices = tuple(scene.cluster.at(number).notices for number in hit.nodes)


def send(hit: ResolvedTarget, sig: signal.Signals) -> None:
    """To every process that was hit and is still there. (One that is gone leaves its own evidence.)"""
    for pid in hit.pids:
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            # it died between the trigger and now; `observe` sees that it is gone
            pass


def send_to_nodes(scene: Scene, hit: ResolvedTarget, sig: signal.Signals) -> list[int]:
    """To all of them at once: two machines of one rack are lost together. Returns the pids that got it, as far as the
    cluster can see them."""
    with ThreadPoolExecutor(len(hit.nodes) or 1) as pool:
        sent = pool.map(lambda number: scene.cluster.signal_node(number, sig), hit.nodes)
        return [pid for pids in sent for pid in pids]


def all_gone(hit: ResolvedTarget) -> str | None:
    """Evidence that every process hit is gone. Hitting nothing is no evidence."""
    if not hit.pids or not all(map(procfs.gone, hit.pids)):
        return None
    return "gone"


def all_stopped(hit: ResolvedTarget) -> str | None:
    alive = [pid for pid in hit.pids if not procfs.gone(pid)]
    return "stopped" if alive and all(map(procfs.stopped, alive)) else None


def marked_all(scene: Scene, hit: ResolvedTarget, done: str) -> bool:
    """Every worker hit has renamed the file that it was asked with."""
    marks = [scene.directory / f"{done}-{pid}" for pid in hit.pids]
    return bool(marks) and all(map(scene.cluster.has_file, hit.node_ids, marks))


def last_word_s(scene: Scene, node_id: str, pid: int) -> float:
    """When that worker last recorded, by its own file where it can be read here, and by what was heard of it. A process
    on another machine may have the same number."""
    heard = [event for event in scene.collector.snapshot() if f"-{pid}-" in event.writer]
    others = {event.writer for event in heard if isinstance(event, WorkerStarted) and event.node_id != node_id}
    paths = [path for path in scene.directory.glob(f"*-{pid}-*.jsonl") if path.stem not in others]
    said = [event.at_s for event in heard if event.writer not in others]
    return max([*said, *(event.at_s for path in paths for event in read_events(path))], default=0.0)


def ended_by(scene: Scene, hit: ResolvedTarget, sig: signal.Signals) -> str | None:
    """Evidence that the driver hit has exited because of `sig`, not for reasons of its own."""
    events = scene.collector.snapshot()
    launches = {event.launch for event in events if isinstance(event, DriverStarted) and event.pid in hit.pids}
    for event in events:
        if isinstance(event, DriverExited) and event.launch in launches:
            return "gone" if event.code == 128 + sig or _interrupted(events, hit) else None
    return None


def _interrupted(events: list[AnyEvent], hit: ResolvedTarget) -> bool:
    """The driver itself said that it was interrupted, whatever code it then chose."""
    words = [event for event in events if isinstance(event, RunEnded) and event.outcome == "interrupted"]
    return any(f"-{pid}-" in event.writer for event in words for pid in hit.pids)


def simulated_driver(scene: SimulatedScene, hit: ResolvedTarget) -> SimulatedDriver | None:
    return scene.driver(hit.pids[0]) if hit.pids else None
