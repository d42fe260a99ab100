"""Another run of the same job, beside this one and with nothing in common with it but the cluster. Its evidence is that
it has come to its end too, so an experiment in which one of the two starves the other shows no PASS."""

from __future__ import annotations

from typing import Any

from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.scene import OtherRun
from shaketable.chaos.injection.targets import ResolvedTarget


class SecondRun(Fault):
    """Start another run of the same job on the same cluster, which has to finish too; `changed`: configuration that
    differs in it."""

    name, target_kind, heals, observe_within_s = "second_run", "cluster", True, 1800.0
    anywhere = True

    def __init__(self, changed: dict[str, Any] | None = None) -> None:
        self.changed = changed or {}
        self._run: OtherRun | None = None

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        self._run = scene.drivers.beside(self.changed)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return self._finished()

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        self._stop()

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        self._run = scene.start_beside(self.changed)

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        return self._finished()

    def heal_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        self._stop()

    def _finished(self) -> str | None:
        """One that has ended otherwise never will."""
        return "it finished" if self._run is not None and self._run.exit_code == 0 else None

    def _stop(self) -> None:
        if self._run is not None:
            self._run.stop()
