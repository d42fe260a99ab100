"""`ray.train.torch`, with its import changed: models and data loaders, made fit for a worker group. Needs torch.

Which devices a worker sees is Ray's to say (`CUDA_VISIBLE_DEVICES`); on which of them it computes, the runtime's
(`backends/torch.py`).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

from shaketable.runtime.backends.torch import TorchConfig
from shaketable.runtime.refusals import TORCH_NAMES, no_such_name
from shaketable.runtime.session import get_context
from shaketable.runtime.trainer import TorchTrainer

__all__ = [
    "TorchConfig",
    "TorchTrainer",
    "enable_reproducibility",
    "get_device",
    "get_devices",
    "prepare_data_loader",
    "prepare_model",
]

_CUBLAS = ":4096:8"


def __getattr__(name: str) -> Any:
    raise no_such_name(__name__, name, TORCH_NAMES)


def get_device() -> torch.device:
    """On which this worker computes. Raises SessionError outside of a training function."""
    return get_devices()[0]


def get_devices() -> list[torch.device]:
    """All that this worker sees, the one it computes on first; the CPU, if it has no GPU."""
    get_context()
    if not torch.cuda.is_available():
        return [torch.device("cpu")]
    first, count = torch.cuda.current_device(), torch.cuda.device_count()
    return [torch.device("cuda", (first + offset) % count) for offset in range(count)]


def prepare_model(
    model: torch.nn.Module,
    move_to_device: bool | torch.device = True,
    parallel_strategy: str | None = "ddp",
    parallel_strategy_kwargs: dict[str, Any] | None = None,
) -> torch.nn.Module:
    """`model` on this worker's device (or on `move_to_device`), and with more than one worker wrapped by
    `parallel_strategy`: "ddp", "fsdp" (on GPUs only), or None for not at all. Raises ValueError, RuntimeError."""
    if parallel_strategy not in ("ddp", "fsdp", None):
        raise ValueError(f'prepare_model: parallel_strategy is {parallel_strategy!r}; use "ddp", "fsdp" or None')
    device = move_to_device if isinstance(move_to_device, torch.device) else get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if move_to_device:
        model = model.to(device)
    if parallel_strategy is None or get_context().get_world_size() == 1:
        return model
    given = parallel_strategy_kwargs or {}
    return _fsdp(model, given) if parallel_strategy == "fsdp" else _ddp(model, device, given)


def _ddp(model: torch.nn.Module, device: torch.device, given: dict[str, Any]) -> torch.nn.Module:
    on_gpu = {"device_ids": [device], "output_device": device} if device.type == "cuda" else {}
    return DistributedDataParallel(model, **{**on_gpu, **given})


def _fsdp(model: torch.nn.Module, given: dict[str, Any]) -> torch.nn.Module:
    if not torch.cuda.is_available():
        raise RuntimeError(
            'prepare_model: parallel_strategy="fsdp" needs GPUs; set use_gpu=True in ScalingConfig, or use "ddp"'
        )
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model, **given)


def prepare_data_loader(
    data_loader: DataLoader[Any], add_dist_sampler: bool = True, move_to_device: bool = True, auto_transfer: bool = True
) -> DataLoader[Any]:
    """`data_loader` with each rank's share of the samples, if there are several workers and it has no
    DistributedSampler and no IterableDataset; and its batches on this worker's device.

    A loader that shuffles goes on to do so: call `.sampler.set_epoch(epoch)` before each epoch. `auto_transfer`: copies
    to a GPU do not hold up the CPU (where the loader pins its memory).
    """
    if add_dist_sampler and get_context().get_world_size() > 1 and _may_share(data_loader):
        data_loader = _shared(data_loader)
    return _OnDevice(data_loader, get_device(), auto_transfer) if move_to_device else data_loader


def _may_share(loader: DataLoader[Any]) -> bool:
    return not isinstance(loader.sampler, DistributedSampler) and not isinstance(loader.dataset, IterableDataset)


def _shared(loader: DataLoader[Any]) -> DataLoader[Any]:
    if not isinstance(loader.sampler, SequentialSampler | RandomSampler) and get_context().get_world_rank() == 0:
        print(
            f"shaketable: prepare_data_loader replaces a {type(loader.sampler).__name__} by a DistributedSampler;"
            " keep yours with add_dist_sampler=False",
            flush=True,
        )
    context = get_context()
    sampler: DistributedSampler[Any] = DistributedSampler(
        loader.dataset,
        num_replicas=context.get_world_size(),
        rank=context.get_world_rank(),
        shuffle=not isinstance(loader.sampler, SequentialSampler),
    )
    return DataLoader(
        dataset=loader.dataset,
        batch_size=loader.batch_size,
        sampler=sampler,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )


class _OnDevice(DataLoader[Any]):
    """A data loader in all but its batches, which it puts on `device`."""

    def __init__(self, loader: DataLoader[Any], device: torch.device, auto_transfer: bool) -> None:
        # with its own `__init__` it would be another loader, with workers of its own
        self.__dict__.update(loader.__dict__)
        self._loader, self._device, self._non_blocking = loader, device, auto_transfer and device.type != "cpu"

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # torch's own is one of its iterators
        for batch in self._loader:
            yield self._moved(batch)

    def _moved(self, batch: Any) -> Any:
        """As it is, where it has nothing that could be moved."""
        if isinstance(batch, Mapping):
            return {key: self._moved(value) for key, value in batch.items()}
        if isinstance(batch, tuple | list):
            moved = [self._moved(value) for value in batch]
            return type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)
        to = getattr(batch, "to", None)
        return batch if to is None else to(self._device, non_blocking=self._non_blocking)


def enable_reproducibility(seed: int = 0) -> None:
    """Seed torch, Python and (where it is there) NumPy, and have torch compute deterministically."""
    torch.manual_seed(seed)
    random.seed(seed)
    try:
        import numpy
    except ImportError:
        pass
    else:
        numpy.random.seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = _CUBLAS
