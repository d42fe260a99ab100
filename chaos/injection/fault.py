"""A fault is one class in one file, and everything that is said of it is said there: its name, what it hits and takes,
its arguments, how it is done and seen and undone on a real cluster and in simulation, and how exploration draws it.

`inject` does it, `observe` looks once for the evidence that it landed (a word or two, or None: not yet), `heal` undoes
what can be undone. No evidence, no verdict: a fault whose `inject` does nothing must never be observed.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, get_args

from shaketable.chaos.constraints import Account
from shaketable.chaos.fault_kinds import Cause, Loss, Manner
from shaketable.chaos.history.events import Needs
from shaketable.chaos.injection.scene import Drivers, Scene
from shaketable.chaos.injection.simulated_scene import SimulatedScene
from shaketable.chaos.injection.targets import ResolvedTarget, TargetKind
from shaketable.chaos.plan import StorageKind
from shaketable.clusters.protocol import Unsupported

__all__ = ["Drivers", "Fault", "Scene", "SimulatedScene"]


class Fault(ABC):
    """Base of all faults. The docstring of a fault says what it does, in the words of the vocabulary; its arguments in
    an experiment file are those of `__init__`, typed, and `until` where it heals."""

    name: ClassVar[str]
    # What a target is resolved to. One of a driver or of the cluster takes no target.
    target_kind: ClassVar[TargetKind]

    # ---- what the judge has to know (`fault_kinds.py`)

    loss: ClassVar[Loss] = "nothing"
    manner: ClassVar[Manner] = "none"
    # The account of the run that it may be charged to. None: it is never charged.
    charged_to: ClassVar[Account | None] = None
    # What an ending may be called that is charged for it.
    causes: ClassVar[tuple[Cause, ...]] = ()
    # What it must find when it lands. Without that there is nothing left to hit, and the experiment is INVALID.
    needs: ClassVar[Needs] = "run"
    # The loss that it makes good; exploration lets it follow such a loss. That such a fault missed says nothing about
    # the run, which may have needed it.
    makes_good: ClassVar[Loss] = "nothing"

    # The exit codes of a driver that somebody else ends because of it, so that fit() may say nothing.
    ends_with: ClassVar[tuple[int, ...]] = ()

    # ---- where it can be had

    # It asks nothing of the cluster but what Ray itself can do, so it can be had on one that is there already.
    anywhere: ClassVar[bool] = False
    # It can be had where nodes are pods that were made for the run. So can those that can be had anywhere.
    on_pods: ClassVar[bool] = False
    # It needs nodes that have a network of their own, or that are machines of their own with memory and disk as well,
    # or that are pods.
    apart: ClassVar[Literal["", "network", "machine", "pods"]] = ""
    storages: ClassVar[tuple[StorageKind, ...]] = get_args(StorageKind)
    # `shaketable explore` makes schedules of it.
    drawn: ClassVar[bool] = False
    # In some schedules it stands in the place of this fault, and all other schedules are what they would be without it.
    drawn_for: ClassVar[str] = ""

    observe_within_s: ClassVar[float] = 10.0
    # `heal` ends it, so `until` makes sense.
    heals: ClassVar[bool] = False
    # Of a notice: in so many seconds the node goes.
    deadline_s: float | None = None

    # ---- on a real cluster

    @abstractmethod
    def inject(self, scene: Scene, hit: ResolvedTarget) -> None: ...

    @abstractmethod
    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None: ...

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:  # noqa: B027
        """Nothing to undo."""

    # ---- in simulation

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        raise Unsupported(f"{self.name} has no simulated twin (inject_simulated); use cluster: local")

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        """No evidence."""
        return None

    def heal_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:  # noqa: B027
        """Nothing to undo."""

    # ---- in exploration

    @classmethod
    def drawn_arguments(cls, rng: random.Random, number: int, steps: int) -> dict[str, Any]:
        """For fault `number` of a schedule of a job with so many steps."""
        if cls.manner != "frozen":
            return {}
        until = (
            {"step": rng.randint(1, steps), "after": number},
            {"event": "attempt_started", "nth": 1, "after": number},
        )
        return {"until": rng.choice(until)}
