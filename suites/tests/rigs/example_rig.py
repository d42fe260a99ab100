"""The training function of an example, in a worker of ours: under `ray.train` it finds our session, of which the
examples use nothing but what both have in common. Quick, and no Ray; with Ray Train they run in test_examples.py.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

from shaketable.runtime import session
from shaketable.runtime.checkpoint import Checkpoint


def train(text: str, epochs: int, checkpoint_at: int | None, storage: str) -> None:
    """Run the example's `train`. Of its checkpoints only that of its report `checkpoint_at` is handed in."""
    sys.modules |= _modules(checkpoint_at, storage)
    space: dict[str, Any] = {"__name__": "example"}
    exec(compile(text, "example.py", "exec"), space)
    space["train"]({"epochs": epochs})


class _Context:
    """With a place that all ranks see, for those that write there by themselves."""

    def __init__(self, storage: str) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(session.get_context(), name)

    def get_storage(self) -> Any:
        return SimpleNamespace(experiment_fs_path=self._storage, storage_filesystem=None)


def _modules(checkpoint_at: int | None, storage: str) -> dict[str, ModuleType]:
    reports = 0

    def report(metrics: dict[str, Any], checkpoint: Any = None, checkpoint_upload_mode: Any = None) -> None:
        nonlocal reports
        reports += 1
        session.report(metrics, checkpoint if reports == checkpoint_at else None)

    class OurCheckpoint(Checkpoint):
        def __init__(self, path: Any, filesystem: Any = None) -> None:
            super().__init__(str(path))

    modules = {name: ModuleType(name) for name in ("ray", "ray.train", "ray.train.torch", "ray.train.v2.jax")}
    collective = SimpleNamespace(broadcast_from_rank_zero=session.broadcast_from_rank_zero)
    modules["ray.train"].__dict__.update(
        report=report,
        Checkpoint=OurCheckpoint,
        get_checkpoint=session.get_checkpoint,
        collective=collective,
        get_context=lambda: _Context(storage),
        CheckpointUploadMode=SimpleNamespace(NO_UPLOAD=None),
        torch=modules["ray.train.torch"],
    )
    modules["ray"].__dict__.update(train=modules["ray.train"])
    modules["ray.train.torch"].__dict__.update(TorchTrainer=None, prepare_model=_in_parallel)
    modules["ray.train.v2.jax"].__dict__.update(JaxConfig=None, JaxTrainer=None)
    return modules | {"ray.train.v2": ModuleType("ray.train.v2")}


def _in_parallel(model: Any) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model)
