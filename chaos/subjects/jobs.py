"""How a job is named and found: `package.module:function`, a command such as `python train.py`, or a file that a
test's function was pickled into.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast

from shaketable.chaos.errors import ChaosError
from shaketable.chaos.job_kinds import is_command

__all__ = ["Job", "JobError", "framework_of", "is_command", "load_job", "one_line"]

Job = Callable[..., Any]
ERROR_LENGTH = 1000
FRAMEWORKS: tuple[Literal["torch", "jax"], ...] = ("torch", "jax")
# of ours those that import one when they run
WORKLOADS: dict[tuple[str, str], Literal["torch", "jax"]] = {
    ("shaketable.chaos.workloads.torch_ddp", "torch_ddp"): "torch",
    ("shaketable.chaos.workloads.jax_sharded", "jax_sharded"): "jax",
}


class JobError(ChaosError):
    """The job cannot be found or loaded; the message names it and says what is expected."""


def load_job(text: str) -> Job:
    """The training function that `job` of the configuration names."""
    job = _unpickled(Path(text)) if text.endswith(".pkl") else _imported(text)
    if not callable(job):
        raise JobError(f"job {text!r} is a {type(job).__name__}, not a function")
    return cast(Job, job)


def _imported(text: str) -> Any:
    module, _, function = text.partition(":")
    if not module or not function:
        raise JobError(f"job {text!r}: write package.module:function")
    try:
        return getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(error.name + ".")):
            raise JobError(f"job {text!r}: no module named {error.name!r} on {_path()}") from error
        raise
    except AttributeError as error:
        raise JobError(f"job {text!r}: module {module!r} has no {function!r}") from error


def _unpickled(path: Path) -> Any:
    # the same that Ray takes the function to its workers with
    from ray import cloudpickle

    if not path.is_file():
        raise JobError(f"job {str(path)!r}: no such file")
    return cloudpickle.loads(path.read_bytes())


def _path() -> str:
    import sys

    return ", ".join(entry or "." for entry in sys.path)


def framework_of(job: Job) -> Literal["torch", "jax"] | None:
    """Whose processes the subject has to bring together for it. A function may say so (`job.backend = "torch"`, or
    None); otherwise it is the first of which its module holds anything."""
    if known := WORKLOADS.get((job.__module__, getattr(job, "__name__", ""))):
        return known
    if hasattr(job, "backend"):
        return next((name for name in FRAMEWORKS if job.backend == name), None)
    held = {_package(value) for value in getattr(job, "__globals__", {}).values()}
    return next((name for name in FRAMEWORKS if name in held), None)


def _package(value: object) -> str:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    if not isinstance(name, str):
        return ""
    return "torch" if name.startswith("ray.train.torch") else name.partition(".")[0]


def one_line(error: BaseException) -> str:
    """Its beginning and its end: a traceback says what happened in its last line."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    half = ERROR_LENGTH // 2
    return text if len(text) <= ERROR_LENGTH else f"{text[:half]} ... {text[-half:]}"
