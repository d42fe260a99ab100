"""What Ray Train has and this runtime has not: refused by its name, with what to do instead. Pure.

The table is the only place that says so. The decorator reads it at every call, the page docs/ray-train.md is written
from it, and a test holds it against the signatures of the Ray that is installed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from shaketable.runtime.errors import ConfigurationError

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Refusal:
    """`instead`: why, and what to do. `harmless`: values that ask for nothing, as Ray Train's default; they pass."""

    instead: str
    harmless: tuple[Any, ...] = (None,)


_DATA = Refusal(
    "a worker is a forked process and no Ray worker, so it cannot take blocks from Ray Data's executor. Read the files"
    " in the training function (torch's DataLoader, pyarrow.dataset), each rank its share, by get_world_rank() of its"
    " context; what Ray Data computes, write to files first (write_parquet)",
    (None, {}),
)
_VALIDATION = Refusal(
    "nothing validates checkpoints beside the training. Validate in the training function before report(), or"
    " afterwards with Result.best_checkpoints",
    (None, False),
)
_TUNE = Refusal("Ray Train V2 has removed it as well. Leave it out", (None, "DEPRECATED"))
_GRACE = "a hold saves a checkpoint of all ranks before a node goes, so leave it out; look at checkpoint_requested()"
_TRAINER = {
    "datasets": _DATA,
    "dataset_config": _DATA,
    "validation_config": _VALIDATION,
    "metadata": Refusal("Ray Train V2 has removed it as well. Put the values into train_loop_config"),
    "resume_from_checkpoint": Refusal(
        "Ray Train V2 has removed it as well. The same RunConfig(storage_path, name) resumes by itself; to begin a new"
        " run from files, put their path into train_loop_config"
    ),
}

ARGUMENTS: Mapping[str, Mapping[str, Refusal]] = MappingProxyType(
    {
        "ElasticTrainer": _TRAINER,
        "TorchTrainer": _TRAINER,
        "JaxTrainer": {
            **_TRAINER,
            "jax_config": Refusal("what jax runs on is said once: ScalingConfig(use_gpu=True) or (use_tpu=True, ...)"),
        },
        "RunConfig": {
            "logging_config": Refusal(
                "the runtime logs nothing through `logging`; it prints to the driver's stdout. Leave it out"
            ),
            **dict.fromkeys(("sync_config", "verbose", "stop", "progress_reporter", "log_to_file"), _TUNE),
        },
        "FailureConfig": {
            "fail_fast": _TUNE,
            "controller_failure_limit": Refusal(
                "the controller lives in the driver. When the driver dies, launch the same run again: it goes on from"
                " the last commit, as often as it takes",
                (None, -1),
            ),
            "relax_collectives_on_preemption": Refusal(_GRACE, (None, False)),
            "preemption_grace_s": Refusal(_GRACE, (None, 0, 0.0)),
        },
        "CheckpointConfig": dict.fromkeys(("checkpoint_frequency", "checkpoint_at_end"), _TUNE),
        "ScalingConfig": {
            "trainer_resources": Refusal("Ray Train V2 has removed it as well. The driver needs no resources")
        },
        "report": {"validation": _VALIDATION},
    }
)
"""Arguments, by what they are given to. What has all of Ray Train's arguments is not in here."""

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "BackendConfig": "pass TorchTrainer(torch_config=shaketable.runtime.torch.TorchConfig(...)), or set the"
        " framework up at the beginning of the training function",
        "DataConfig": _DATA.instead,
        "LoggingConfig": "the runtime logs nothing through `logging`. Leave it out",
        "NCCLHangError": "set RunConfig(hang_timeout_s=...): a hang ends the attempt, and the error names the ranks",
        "SyncConfig": "checkpoints are uploaded by report(); there is nothing to synchronize. Leave it out",
        "TRAIN_DATASET_KEY": _DATA.instead,
        "ValidationConfig": _VALIDATION.instead,
        "ValidationFn": _VALIDATION.instead,
        "ValidationTaskConfig": _VALIDATION.instead,
    }
)
"""Names of `ray.train` that cannot be imported from here."""

TORCH_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "TorchCheckpoint": "write the state with torch.save into a directory, and use Checkpoint.from_directory",
        "accelerate": "Ray Train V2 has removed it as well. Use torch.amp",
        "backward": "Ray Train V2 has removed it as well. Use torch.amp.GradScaler",
        "prepare_optimizer": "Ray Train V2 has removed it as well. Use the optimizer as it is",
    }
)
"""Names of `ray.train.torch` that cannot be imported from `shaketable.runtime.torch`."""

CONTEXT_METHODS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        ("get_metadata", "get_trial_name", "get_trial_id", "get_trial_resources", "get_trial_dir"),
        "Ray Train V2 has removed it as well. Put what the function needs into train_loop_config",
    )
)
"""Methods of `TrainContext`."""


def refused(owner: str, name: str, value: Any) -> None:
    """ConfigurationError, unless `value` asks for nothing."""
    refusal = ARGUMENTS[owner][name]
    if not any(value is harmless or _same(value, harmless) for harmless in refusal.harmless):
        raise ConfigurationError(f"{owner}({name}=...) is Ray Train's and not supported: {refusal.instead}")


def _same(value: Any, harmless: Any) -> bool:
    # a Dataset or a tensor need not be compared
    return type(value) in (bool, int, float, str, dict) and bool(value == harmless)


def refuses(owner: str) -> Callable[[Function], Function]:
    """Decorates what takes arguments of its own: Ray Train's others are refused by name, or dropped where they ask for
    nothing. Its signature stays that of its own arguments."""
    names = ARGUMENTS[owner]

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            for name in [name for name in given if name in names]:
                refused(owner, name, given.pop(name))
            return function(*args, **given)

        return checked  # type: ignore[return-value]  # the same arguments, and some that are refused

    return decorate


def refusing(cls: type[Any]) -> None:
    """The same for a dataclass, whose `__init__` nobody writes."""
    cls.__init__ = refuses(cls.__name__)(cls.__init__)


def no_such_name(module: str, name: str, known: Mapping[str, str]) -> Exception:
    """What a module's `__getattr__` raises. `from module import name` hides the text of an AttributeError."""
    if name in known:
        return ImportError(f"{module} has no {name}, which is Ray Train's: {known[name]}", name=module)
    return AttributeError(f"module {module!r} has no attribute {name!r}")
