"""The training function raises: a bug, a bad batch, a NaN check.

A file named after the worker's pid asks for it; the wrapper around `report()` finds it at the next report, renames it
and raises `InjectedError`. The renamed file is the evidence. (A signal would not do: Ray Train runs the training
function in a thread that is not the main one.)
"""

from __future__ import annotations

from shaketable.chaos.faults.base import Fault, Scene
from shaketable.chaos.targets import Hit


class RaiseInWorker(Fault):
    name, thing = "raise_in_worker", "worker"

    def inject(self, scene: Scene, hit: Hit) -> None:
        for pid in hit.pids:
            (scene.directory / f"raise-{pid}").touch()

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        raised = hit.pids and all((scene.directory / f"raised-{pid}").exists() for pid in hit.pids)
        return "raised" if raised else None

    def heal(self, scene: Scene, hit: Hit) -> None:
        for pid in hit.pids:
            (scene.directory / f"raise-{pid}").unlink(missing_ok=True)
