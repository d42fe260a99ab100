"""What a fault is: three small methods around one `Hit`, and how long its evidence may take.

`inject` does it, `observe` looks once for the evidence that it landed (a word or two, or None: not yet), `heal` undoes
what can be undone. No evidence, no verdict: a fault whose `inject` does nothing must never be observed.
"""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, get_args

from shaketable.chaos import processes
from shaketable.chaos.collector import Collector
from shaketable.chaos.history import AnyEvent, DriverExited, DriverStarted, RunEnded, read_events
from shaketable.chaos.plan import StorageKind
from shaketable.chaos.storage import Storage
from shaketable.chaos.targets import Hit, Thing
from shaketable.clusters.protocol import Cluster


class Drivers(Protocol):
    """Whoever starts the drivers of the run: the engine."""

    def start(self, changed: dict[str, Any]) -> int:
        """Launch the driver once more; returns its pid."""
        ...


@dataclass(frozen=True, slots=True)
class Scene:
    """What a fault can lay its hands on."""

    cluster: Cluster
    collector: Collector
    drivers: Drivers
    directory: Path  # the witnesses' directory: what is left here reaches every worker of the run
    storage: Storage  # where the run keeps its log and checkpoints


class Fault:
    """Base of all faults; the arguments of the experiment file are those of `__init__`."""

    name: ClassVar[str]
    thing: ClassVar[Thing]
    observe_within_s: ClassVar[float] = 10.0
    heals: ClassVar[bool] = False  # `heal` does something, so that `until` makes sense
    storages: ClassVar[tuple[StorageKind, ...]] = get_args(
        StorageKind
    )  # in which a run may be kept that it can hit
    anywhere: ClassVar[bool] = False  # asks nothing of the cluster but what Ray itself can do
    deadline_s: float | None = None  # of a notice: in so many seconds the node goes

    def inject(self, scene: Scene, hit: Hit) -> None:
        raise NotImplementedError

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        raise NotImplementedError

    def heal(self, scene: Scene, hit: Hit) -> None:
        """Nothing to undo."""


class StopsProcesses(Fault):
    """SIGSTOP to the processes hit: they neither die nor answer. Healed by SIGCONT: they do not know that they were
    away."""

    heals = True

    def inject(self, scene: Scene, hit: Hit) -> None:
        send(hit, signal.SIGSTOP)

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        return all_stopped(hit)

    def heal(self, scene: Scene, hit: Hit) -> None:
        send(hit, signal.SIGCONT)


def send(hit: Hit, sig: signal.Signals) -> None:
    """To every process that was hit and is still there. (One that is gone leaves its own evidence.)"""
    for pid in hit.pids:
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            pass  # it died between the trigger and now; `observe` sees that it is gone


def send_to_nodes(scene: Scene, hit: Hit, sig: signal.Signals) -> None:
    """To all of them at once: two machines of one rack are lost together."""
    with ThreadPoolExecutor(len(hit.nodes) or 1) as pool:
        list(pool.map(lambda number: scene.cluster.signal_node(number, sig), hit.nodes))


def all_gone(hit: Hit) -> str | None:
    """Evidence that every process hit is gone. Hitting nothing is no evidence."""
    if not hit.pids or not all(map(processes.gone, hit.pids)):
        return None
    return "gone"


def last_word_s(scene: Scene, pid: int) -> float:
    """When that process last testified, by its own file where it can be read here, and by what was heard of it."""
    files = [event for path in scene.directory.glob(f"*-{pid}-*.jsonl") for event in read_events(path)]
    heard = [event for event in scene.collector.snapshot() if f"-{pid}-" in event.writer]
    return max((event.at_s for event in files + heard), default=0.0)


def ended_by(scene: Scene, hit: Hit, sig: signal.Signals) -> str | None:
    """Evidence that the driver hit has exited because of `sig`, not for reasons of its own."""
    events = scene.collector.snapshot()
    launches = {
        event.launch for event in events if isinstance(event, DriverStarted) and event.pid in hit.pids
    }
    for event in events:
        if isinstance(event, DriverExited) and event.launch in launches:
            return "gone" if event.code == 128 + sig or _interrupted(events, hit) else None
    return None


def _interrupted(events: list[AnyEvent], hit: Hit) -> bool:
    """The driver itself said that it was interrupted, whatever code it then chose."""
    words = [event for event in events if isinstance(event, RunEnded) and event.outcome == "interrupted"]
    return any(f"-{pid}-" in event.writer for event in words for pid in hit.pids)


def all_stopped(hit: Hit) -> str | None:
    alive = [pid for pid in hit.pids if not processes.gone(pid)]
    return "stopped" if alive and all(map(processes.stopped, alive)) else None


def dead(scene: Scene, hit: Hit) -> str | None:
    """Evidence that the nodes hit are lost: their processes where those can be seen, else Ray's own view."""
    if all_gone(hit):
        return "gone"
    lost = hit.nodes and all(scene.cluster.state(number) == "dead" for number in hit.nodes)
    return "dead" if lost else None


def leaving(scene: Scene, hit: Hit) -> str | None:
    """Evidence that Ray's own view has every node hit as draining or dead, or that its processes are gone."""
    if all_gone(hit):
        return "gone"
    states = {scene.cluster.state(number) for number in hit.nodes}
    if not states or "alive" in states:
        return None
    return "draining" if "draining" in states else "dead"
