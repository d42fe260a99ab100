"""The worker's end of the subject `ray-train`: Ray Train's own worker API, and an ear at its `report()`.

Ray Train knows no attempt numbers; the observer in the controller (`callbacks.py`) counts them and hands
each worker its `Placement` before the training function starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import ray
import ray.train
from ray.train import collective
from ray.train.v2._internal.execution.train_fn_utils import get_train_fn_utils

from shaketable.chaos.workloads.worker_api import Listener, Where


@dataclass(frozen=True, slots=True)
class Placement:
    """Which attempt of which term this worker belongs to. `indices` are the report indices of the checkpoints
    committed so far, by name."""

    term: int
    attempt: int
    indices: Mapping[str, int] = field(default_factory=dict)


# 0: the observer could not say
_placement = Placement(term=0, attempt=0)


def place(placement: Placement) -> None:
    global _placement
    _placement = placement


def name_of(checkpoint: Any) -> str | None:
    """The directory name of a Ray Train checkpoint."""
    return PurePosixPath(checkpoint.path).name if checkpoint is not None else None


class RayTrainApi:
    """Ray Train's names, where the bundled workloads look for them."""

    Checkpoint = ray.train.Checkpoint
    report = staticmethod(ray.train.report)
    get_checkpoint = staticmethod(ray.train.get_checkpoint)
    get_context = staticmethod(ray.train.get_context)
    broadcast_from_rank_zero = staticmethod(collective.broadcast_from_rank_zero)

    def checkpoint_requested(self) -> bool:
        # Ray Train never asks for one
        return False

    def notice(self) -> bool:
        return ray.train.get_preemption_info() is not None


class RayTrainSide:
    def __init__(self, placement: Placement) -> None:
        self.api = RayTrainApi()
        context = ray.train.get_context()
        node_id = ray.get_runtime_context().get_node_id()
        rank, world_size = context.get_world_rank(), context.get_world_size()
        self.where = Where(placement.term, placement.attempt, rank, world_size, node_id)
        self.node_ip = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        self.resume = name_of(ray.train.get_checkpoint())
        self._index = placement.indices.get(self.resume, 0) if self.resume is not None else 0

    @contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        """`ray.train.report` and everything else that reports goes through one object; its `report` is replaced on
        that object alone."""
        utils: Any = get_train_fn_utils()
        report = utils.report

        def heard(metrics: dict[str, Any], checkpoint: Any = None, **options: Any) -> None:
            self._index += 1
            listener.before_report(self._index, metrics, checkpoint)
            report(metrics=metrics, checkpoint=checkpoint, **options)
            listener.after_report(self._index)

        utils.report = heard
        try:
            yield
        finally:
            utils.report = report


def enter() -> RayTrainSide:
    return RayTrainSide(_placement)
