"""Storage that takes nothing new. What is there can be read and deleted."""

from __future__ import annotations

from shaketable.chaos.injection.fault import Fault, SimulatedScene
from shaketable.chaos.injection.targets import ResolvedTarget
from shaketable.chaos.storage.rules import Rule, Struck


class RefusesWrites(Fault):
    """In simulation every PUT is refused, and one that was is the evidence."""

    target_kind, loss, manner, heals = "cluster", "storage", "hurt", True

    def __init__(self) -> None:
        self._struck = Struck(Rule("internal_error", ("PUT",)))

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        scene.struck.append(self._struck)

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        return f"{self._struck.hits[0]} refused" if self._struck.done else None

    def heal_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        scene.struck[:] = [struck for struck in scene.struck if struck is not self._struck]
