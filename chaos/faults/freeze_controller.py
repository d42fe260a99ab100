"""SIGSTOP to the process that decides for the run: with Ray Train the controller, an actor of its own that lives on
while its driver is stopped; with the bundled runtime the driver."""

from __future__ import annotations

import signal
from dataclasses import replace

from shaketable.chaos.faults.freeze_driver import FreezeDriver
from shaketable.chaos.faults.processes import all_stopped, send
from shaketable.chaos.history.events import TermBegan
from shaketable.chaos.injection.fault import Scene
from shaketable.chaos.injection.targets import ResolvedTarget


class FreezeController(FreezeDriver):
    """Stop the process of the run's controller; thaw it at `until`, or when the run is over."""

    # with Ray Train the controller may run on any machine of the cluster
    name, anywhere = "freeze_controller", False

    def __init__(self) -> None:
        super().__init__()
        self._stopped = ResolvedTarget()

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        self._stopped = replace(hit, pids=_controller(scene) or hit.pids)
        send(self._stopped, signal.SIGSTOP)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return all_stopped(self._stopped)

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        send(self._stopped, signal.SIGCONT)


def _controller(scene: Scene) -> tuple[int, ...]:
    """The pid of whoever last said that a term has begun, which stands in the name of that writer; empty: nobody."""
    began = [event for event in scene.collector.snapshot() if isinstance(event, TermBegan)]
    return tuple(int(event.writer.split("-")[-2]) for event in began[-1:])
