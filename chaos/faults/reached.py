"""No fault, but what an experiment relies on besides its faults: the run got to where the trigger says. A run that
never does has not been put through what the experiment is about, so it is INVALID."""

from __future__ import annotations

from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.targets import ResolvedTarget


class Reached(Fault):
    """No fault: demands that the run gets there, or else the experiment proves nothing and is INVALID."""

    name, target_kind, anywhere = "reached", "cluster", True
    needs = "nothing"

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        """Nothing: that the trigger came true is all there is to it."""

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return "reached"

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        """Nothing, as on a real cluster."""

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        return "reached"
