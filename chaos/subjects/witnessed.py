"""The wrapper around any training function that makes its worker record: started, stepped, uploading, reported,
finished.

It travels to the workers by cloudpickle with the function inside, on every subject in the same way, and leaves the
function itself alone: what the function imports, calls and returns is its own business.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shaketable.chaos.history.events import WorkerFinished, WorkerStarted
from shaketable.chaos.history.witness import Witness, WitnessConfig
from shaketable.chaos.subjects import printed
from shaketable.chaos.workloads import worker_api
from shaketable.chaos.workloads.worker_api import InjectedError, Side, WorkerWitness

__all__ = ["InjectedError", "Witnessed"]

# The worker's end of each subject: a module with `enter() -> Side`. Imported in the worker only, by name, so that
# neither subject needs the other's packages.
SIDES = {
    "bundled": "shaketable.chaos.subjects.bundled.worker",
    "ray-train": "shaketable.chaos.subjects.ray_train.worker",
}


@dataclass(frozen=True)
class Witnessed:
    """`job` as a training function of `subject`. Without `witness` it runs the same way and records nothing."""

    job: Callable[..., Any]
    subject: str
    witness: WitnessConfig | None = None
    step_key: str = ""

    def __call__(self, config: dict[str, Any]) -> Any:
        side: Side = importlib.import_module(SIDES[self.subject]).enter()
        with ExitStack() as stack:
            witness = Witness(self.witness, "worker") if self.witness is not None else None
            directory = self.witness.directory if self.witness is not None else None
            if witness is not None and directory is not None:
                stack.callback(witness.close)
                stack.enter_context(printed.kept(Path(directory), witness.writer))
            here = WorkerWitness(side, witness, directory, self.step_key)
            stack.enter_context(worker_api.active(here))
            stack.enter_context(side.listening(here))
            return self._run(here, config)

    def _run(self, here: WorkerWitness, config: dict[str, Any]) -> Any:
        term, attempt, rank, world_size, node_id = here.side.where
        here.emit(
            WorkerStarted(
                term=term,
                attempt=attempt,
                rank=rank,
                world_size=world_size,
                node_id=node_id,
                pid=os.getpid(),
                resume=here.side.resume,
                slice=os.environ.get("TPU_NAME", ""),
                host=os.environ.get("TPU_WORKER_ID", ""),
                topology=os.environ.get("TPU_TOPOLOGY", ""),
                pod_type=os.environ.get("TPU_ACCELERATOR_TYPE", ""),
                megascale=_megascale(),
            )
        )
        result = self.job(config) if wants_config(self.job) else self.job()
        here.emit(WorkerFinished(term=term, attempt=attempt, rank=rank))
        return result


def _megascale() -> dict[str, str] | None:
    """By module: who trains without jax must not import it for this."""
    jax = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        return None
    return {name: value for name, value in os.environ.items() if name.startswith("MEGASCALE_")}


def wants_config(job: Callable[..., Any]) -> bool:
    """Whether the function takes the job's configuration: Ray Train accepts both kinds."""
    parameters = inspect.signature(job).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and p.default is p.empty for p in parameters)
