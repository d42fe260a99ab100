"""A real training job: a tiny network under torch's DistributedDataParallel on CPU (gloo), the same data
whatever the world size. Its metrics are compared with a run without faults (metrics-match); the digest it
records is that of the parameters' bytes, so that what an attempt resumed can be compared with what was
committed.

The process group is the subject's (its TorchTrainer sets it up). torch is imported when the job runs, numpy
never.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from shaketable.chaos.history.events import Resumed
from shaketable.chaos.workloads.scratch import scratch, sweep
from shaketable.chaos.workloads.surroundings import Surroundings

if TYPE_CHECKING:
    import torch

FEATURES = 8
HIDDEN = 16
FILE = "state.pt"


@dataclass(frozen=True, slots=True)
class DdpConfig:
    """The job's configuration (`job_config` of an experiment)."""

    steps: int = 40
    step_s: float = 0.05
    checkpoint_every: int = 1
    global_batch: int = 12
    seed: int = 0
    learning_rate: float = 0.05

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> DdpConfig:
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(config) - known):
            raise ValueError(f"torch_ddp: unknown job_config {unknown}; known are {sorted(known)}")
        return cls(**config)


def torch_ddp(config: dict[str, Any]) -> None:
    """The training function."""
    from shaketable.chaos.workloads import worker_api as surroundings

    run(config, cast(Surroundings, surroundings))


def run(raw: dict[str, Any], surroundings: Surroundings) -> None:
    """The same with its surroundings given."""
    import torch

    config = DdpConfig.of(raw)
    if not torch.distributed.is_initialized():
        raise RuntimeError("torch_ddp: no process group; run this job under a TorchTrainer")
    torch.set_num_threads(1)
    sweep()
    training = _Training(config, surroundings)
    for step in range(training.resume() + 1, config.steps + 1):
        began_s = time.monotonic()
        loss = training.step(step)
        training.report(step, loss)
        left_s = began_s + config.step_s - time.monotonic()
        if left_s > 0:
            # simulated computation
            time.sleep(left_s)


class _Training:
    def __init__(self, config: DdpConfig, surroundings: Surroundings) -> None:
        import torch

        self._config = config
        self._surroundings = surroundings
        self._term, self._attempt, self._rank, self._world_size, _ = surroundings.where()
        torch.manual_seed(config.seed)
        layers = (torch.nn.Linear(FEATURES, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 1))
        self._model = torch.nn.Sequential(*layers)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=config.learning_rate, momentum=0.9)

    def resume(self) -> int:
        """Load what there is, wrap the model, and return the last step done."""
        import torch

        step = 0
        self._surroundings.restoring()
        checkpoint = self._surroundings.api().get_checkpoint()
        if checkpoint is not None:
            with checkpoint.as_directory() as directory:
                # unpickles no objects
                saved = torch.load(Path(directory) / FILE, weights_only=True)
            self._model.load_state_dict(saved["model"])
            self._optimizer.load_state_dict(saved["optimizer"])
            step = int(saved["step"])
        found = Resumed(term=self._term, attempt=self._attempt, rank=self._rank, step=step, digest=self._digest())
        self._surroundings.emit(found)
        # Else DDP orders its buckets anew after the first step of every attempt, and three ranks or more sum in another
        # order then: the metrics would not be those of a run without faults to the bit.
        self._ddp = torch.nn.parallel.DistributedDataParallel(self._model, find_unused_parameters=True)
        return step

    def step(self, step: int) -> float:
        """One optimizer step over the global batch; returns its mean loss, the same on every rank."""
        import torch

        inputs, targets = _batch(step, self._config)
        mine = slice(self._rank, None, self._world_size)
        squares = torch.nn.functional.mse_loss(self._ddp(inputs[mine]), targets[mine], reduction="sum")
        mean = squares / self._config.global_batch
        self._optimizer.zero_grad()
        # DDP divides the sum of the gradients by the world size
        torch.autograd.backward(mean * self._world_size)
        self._optimizer.step()
        total = mean.detach().clone()
        torch.distributed.all_reduce(total)
        return float(total)

    def report(self, step: int, loss: float) -> None:
        import torch

        api, config = self._surroundings.api(), self._config
        due = step % config.checkpoint_every == 0 or step == config.steps or api.checkpoint_requested()
        gives = due and self._rank == 0
        metrics: dict[str, Any] = {"step": step, "loss": loss}
        samples = list(range((step - 1) * config.global_batch, step * config.global_batch))
        mine = samples[self._rank :: self._world_size]
        self._surroundings.stepped(step, digest=self._digest(), samples=mine, checkpoint=gives, metrics=metrics)
        if not gives:
            api.report(metrics, checkpoint=None)
            return
        with scratch() as directory:
            state = {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict(), "step": step}
            torch.save(state, Path(directory) / FILE)
            api.report(metrics, checkpoint=api.Checkpoint.from_directory(directory))

    def _digest(self) -> str:
        """Of the parameters' bytes, in order."""
        import torch

        digest = hashlib.sha256()
        for parameter in self._model.parameters():
            digest.update(bytes(parameter.detach().contiguous().view(torch.uint8).flatten().tolist()))
        return digest.hexdigest()


def _batch(step: int, config: DdpConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """The global batch of `step`: from the seed and the step alone."""
    import torch

    generator = torch.Generator().manual_seed(config.seed * 1_000_003 + step)
    inputs = torch.randn(config.global_batch, FEATURES, generator=generator)
    return inputs, inputs.sum(dim=1, keepdim=True).sin()
