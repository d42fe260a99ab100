"""The hash-chain job with one of two habits, as in Ray's nightly preemption benchmark (ray-project/ray#65047): it saves
every so many steps and never looks whether its node will go, or it saves besides as soon as that is announced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from shaketable.chaos.workloads import hash_chain, worker_api
from shaketable.chaos.workloads.surroundings import Api, Surroundings


def periodic(config: dict[str, Any]) -> None:
    """The training function that never looks."""
    hash_chain.run(config, _surroundings(lambda api: False))


def just_in_time(config: dict[str, Any]) -> None:
    """The one that looks before each report."""
    told = _Told()
    hash_chain.run(config, _surroundings(told.asks))


class _Told:
    """What each subject's documentation says to look at: `checkpoint_requested()` of ours, and of Ray Train the first
    `get_preemption_info()` that there is, after which training goes on."""

    def __init__(self) -> None:
        self._saved = False

    def asks(self, api: Api) -> bool:
        if api.checkpoint_requested():
            return True
        if self._saved or not type(api).__module__.startswith("shaketable.chaos.subjects.ray_train"):
            return False
        import ray.train

        # a collective: every rank asks at every step
        self._saved = ray.train.get_preemption_info() is not None
        return self._saved


class _With:
    """Somebody's attributes, but for those that are given."""

    def __init__(self, other: Any, **given: Any) -> None:
        self._other = other
        vars(self).update(given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)


def _surroundings(asks: Callable[[Api], bool]) -> Surroundings:
    api = worker_api.api()
    asking = _With(api, checkpoint_requested=lambda: asks(api))
    return cast(Surroundings, _With(worker_api, api=lambda: asking))
