"""The storage fails its clients in one of the ways of the S3 fault gateway (`storage/rules.py`): throttles, errors,
loses answers, is slow, or is gone. Healed by taking the rule away.

Needs a run that is kept in an object store (`storage: s3`); one in a directory makes no requests that could be hurt.
"""

from __future__ import annotations

from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.targets import ResolvedTarget
from shaketable.chaos.storage.rules import Effect, Rule, Struck


class HurtStorage(Fault):
    """The storage throttles ("slow_down"), errs ("internal_error"), refuses ("expired_credentials"), is out ("outage"),
    breaks off ("reset", "truncate_answer"), loses answers ("lose_answer") or is slow ("latency", "bandwidth"):
    requests of these methods for these keys (a pattern), at most `times`; until `until`, or the end of the run."""

    name, target_kind, loss, manner, heals = "hurt_storage", "cluster", "storage", "hurt", True
    observe_within_s = 120.0
    storages, anywhere = ("s3",), True

    def __init__(
        self,
        effect: Effect = "slow_down",
        methods: tuple[str, ...] = (),
        key: str = "*",
        probability: float = 1.0,
        times: int | None = None,
        latency_s: float = 0.0,
        bytes_per_s: float = 0.0,
    ) -> None:
        self.rule = Rule(
            effect,
            tuple(methods),
            key,
            probability=probability,
            times=times,
            latency_s=latency_s,
            bytes_per_s=bytes_per_s,
        )
        self._struck: Struck | None = None

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        if scene.storage.gateway is not None:
            self._struck = scene.storage.gateway.add(self.rule)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        """The gateway has counted a request that it hurt."""
        return told(self._struck)

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        if self._struck is not None and scene.storage.gateway is not None:
            scene.storage.gateway.remove(self._struck)

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        self._struck = Struck(self.rule)
        scene.struck.append(self._struck)

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        return told(self._struck)

    def heal_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        scene.struck[:] = [struck for struck in scene.struck if struck is not self._struck]


def told(struck: Struck | None) -> str | None:
    if struck is None or not struck.done:
        return None
    return f"{struck.rule.effect} for {struck.hits[0]}"
