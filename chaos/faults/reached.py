"""No fault, but what an experiment relies on besides its faults: the run got to where the trigger says. A run that
never does has not been put through what the experiment is about, so it is INVALID."""

from __future__ import annotations

from shaketable.chaos.faults.base import Fault, Scene
from shaketable.chaos.targets import Hit


class Reached(Fault):
    name, thing, anywhere = "reached", "cluster", True

    def inject(self, scene: Scene, hit: Hit) -> None:
        """Nothing: that the trigger came true is all there is to it."""

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        return "reached"
