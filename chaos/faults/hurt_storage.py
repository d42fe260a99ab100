"""The storage fails its clients in one of the ways of the S3 fault gateway (`storage/rules.py`): throttles, errors,
loses answers, is slow, or is gone. Healed by taking the rule away.

Needs a run that is kept in an object store (`storage: s3`); one in a directory makes no requests that could be hurt.
"""

from __future__ import annotations

from shaketable.chaos.faults.base import Fault, Scene
from shaketable.chaos.faults.storage.rules import Effect, Rule, Struck
from shaketable.chaos.targets import Hit


class HurtStorage(Fault):
    name, thing, heals, observe_within_s = "hurt_storage", "cluster", True, 120.0
    storages = ("s3",)

    def __init__(
        self, effect: Effect = "slow_down", methods: tuple[str, ...] = (), key: str = "*", probability: float = 1.0,
        times: int | None = None, latency_s: float = 0.0, bytes_per_s: float = 0.0,
    ) -> None:  # fmt: skip
        self.rule = Rule(
            effect, tuple(methods), key, probability=probability, times=times, latency_s=latency_s,
            bytes_per_s=bytes_per_s,
        )  # fmt: skip
        self._struck: Struck | None = None

    def inject(self, scene: Scene, hit: Hit) -> None:
        if scene.storage.gateway is not None:
            self._struck = scene.storage.gateway.add(self.rule)

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        """The gateway has counted a request that it hurt."""
        return told(self._struck)

    def heal(self, scene: Scene, hit: Hit) -> None:
        if self._struck is not None and scene.storage.gateway is not None:
            scene.storage.gateway.remove(self._struck)


def told(struck: Struck | None) -> str | None:
    if struck is None or not struck.done:
        return None
    return f"{struck.rule.effect} for {struck.hits[0]}"
