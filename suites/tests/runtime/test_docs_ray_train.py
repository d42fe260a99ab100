"""docs/ray-train.md, "Ray Train, name by name", is written from the Ray that is installed, from our own signatures, and
from `runtime/refusals.py`. A name or an argument that Ray Train has and that is neither here nor refused fails here.

`python -m shaketable.suites.tests.runtime.test_docs_ray_train` writes it anew.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from shaketable.runtime import refusals

os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
ray_train = pytest.importorskip("ray.train")
# where torch is imported anyway
pytestmark = pytest.mark.xdist_group("torch-here")

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "ray-train.md"
BEGIN, END = "<!-- names: begin -->", "<!-- names: end -->"
OURS, RAYS = "shaketable.runtime", "ray.train"
# Ray Train's module, its name there, ours; and what of it is compared: its arguments, its attributes.
CALLED = (
    (f"{RAYS}.v2.api.data_parallel_trainer", "DataParallelTrainer", OURS, "ElasticTrainer"),
    (f"{RAYS}.torch", "TorchTrainer", f"{OURS}.torch", "TorchTrainer"),
    (f"{RAYS}.v2.jax.jax_trainer", "JaxTrainer", OURS, "JaxTrainer"),
    (f"{RAYS}.torch", "TorchConfig", f"{OURS}.torch", "TorchConfig"),
    *((RAYS, name, OURS, name) for name in ("RunConfig", "ScalingConfig", "FailureConfig", "CheckpointConfig")),
    *((RAYS, name, OURS, name) for name in ("Checkpoint", "report", "get_checkpoint", "get_context")),
    *((RAYS, name, OURS, name) for name in ("get_all_reported_checkpoints", "get_dataset_shard")),
    (RAYS, "get_preemption_info", OURS, "get_preemption_info"),
    *((f"{RAYS}.torch", name, f"{OURS}.torch", name) for name in ("prepare_model", "prepare_data_loader")),
    *((f"{RAYS}.torch", name, f"{OURS}.torch", name) for name in ("get_device", "get_devices")),
    (f"{RAYS}.torch", "enable_reproducibility", f"{OURS}.torch", "enable_reproducibility"),
    (f"{RAYS}.collective", "barrier", f"{OURS}.collective", "barrier"),
    (f"{RAYS}.collective", "broadcast_from_rank_zero", f"{OURS}.collective", "broadcast_from_rank_zero"),
)
HAVING = ("Checkpoint", "Result", "TrainContext", "PreemptionInfo", "ReportedCheckpoint", "UserCallback")
MODULES = (RAYS, f"{RAYS}.torch", f"{RAYS}.collective")
# What has the same name, and is not quite the same.
DIFFERS: Mapping[str, str] = {
    "report(checkpoint_dir_name)": "what `checkpoint_upload_fn` is told. A commit has a directory of its own name, so"
    " that no attempt writes into another's",
    "report(checkpoint_upload_fn)": "called before `report()` returns. The commit is a copy of what it returns",
    "report(delete_local_checkpoint_after_upload)": "by default `ASYNC` takes the entries of the"
    " directory, and leaves it",
    "RunConfig(name)": "without one, no later driver can resume the run",
    "RunConfig(storage_path)": "a path or URL without parameters; endpoint and credentials are in the environment",
    "RunConfig(storage_filesystem)": "a local one; others are refused, with the URL to use",
    "RunConfig(worker_runtime_env)": "`env_vars`; the rest is refused: it belongs to the whole job",
    "ScalingConfig(label_selector)": "one dict for all workers; a list is refused",
    "ScalingConfig(placement_strategy)": '`"PACK"`; others are refused: each worker has a placement group of its own',
    "ElasticTrainer(backend_config)": "a `TorchConfig`; others are refused",
    "TorchConfig(init_method)": "both are the same: rank 0 has the store",
    "get_dataset_shard": "refused: " + refusals.ARGUMENTS["ElasticTrainer"]["datasets"].instead,
    "Result.return_value": "refused: `report()` what the driver is to know",
    "Result.config": "refused: Ray Train V2 has removed it as well",
    "get_preemption_info": "no collective: it changes inside `report()` only",
    "WorkerGroupError": "`worker_failures` has the rank that the last attempt is charged for, as a `WorkerFailure`",
    "PreemptionError": "without Ray Train's attributes",
    "CheckpointUploadMode": "`NO_UPLOAD` copies a directory that the node can read: only what was read can be verified",
    "CheckpointConsistencyMode": "both are the same: nothing is validated",
    "UserCallback.after_report": "of plain reports within 50 ms of each other, some may be passed over",
    "UserCallback.after_exception": "with the rank that the attempt is charged for",
    "Checkpoint(filesystem)": "a local one; others are refused, with the URL to use",
}


def rows() -> Iterator[tuple[str, str, str]]:
    """Ray Train's name, ours, and what there is to say. Raises AssertionError for what is neither here nor refused."""
    for module in MODULES:
        yield from _names(module, module.replace(RAYS, OURS))
    for where, name, our_module, ours in CALLED:
        theirs, here = _get(where, name), _get(our_module, ours)
        for argument in _arguments(theirs):
            yield _row(f"{name}({argument})", f"{ours}({argument})", argument in _arguments(here), ours, argument)
    for name in HAVING:
        theirs, here = _get(RAYS, name), _get(OURS, name)
        for attribute in _attributes(theirs):
            there = attribute in _attributes(here)
            yield _row(f"{name}.{attribute}", f"{name}.{attribute}", there, name, attribute)


def _names(module: str, ours: str) -> Iterator[tuple[str, str, str]]:
    refused = refusals.TORCH_NAMES if module.endswith("torch") else refusals.NAMES
    for name in sorted(_public(module)):
        said = f"refused: {refused[name]}" if name in refused else DIFFERS.get(name, "")
        here = name in refused or hasattr(importlib.import_module(ours), name)
        assert here, f"{module}.{name} is neither in {ours} nor refused (runtime/refusals.py)"
        yield f"{module}.{name}", "" if name in refused else f"{ours}.{name}", said


def _row(theirs: str, ours: str, here: bool, owner: str, name: str) -> tuple[str, str, str]:
    refused = refusals.ARGUMENTS.get(owner, {}).get(name)
    removed = refusals.CONTEXT_METHODS.get(name) if owner == "TrainContext" else None
    said = refused.instead if refused else removed
    assert here or said, f"Ray Train's {theirs} is neither here nor refused (runtime/refusals.py)"
    return theirs, "" if said else ours, f"refused: {said}" if said else DIFFERS.get(ours, "")


def _public(module: str) -> list[str]:
    found = importlib.import_module(module)
    return list(getattr(found, "__all__", None) or ["barrier", "broadcast_from_rank_zero"])


def _get(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _arguments(called: Any) -> list[str]:
    return [name for name in inspect.signature(called).parameters if name != "self"]


def _attributes(cls: type[Any]) -> list[str]:
    fields = list(getattr(cls, "__dataclass_fields__", {}))
    named = [name for name, _ in inspect.getmembers_static(cls)]
    # `Checkpoint` of Ray sets two in its __init__.
    made = ["path", "filesystem"] if cls.__name__ == "Checkpoint" else []
    return sorted({name for name in (*fields, *named, *made) if not name.startswith("_")})


def table() -> str:
    lines = ["| Ray Train 2.60 | here | |", "|---|---|---|"]
    lines += [f"| `{theirs}` | {f'`{ours}`' if ours else '-'} | {said} |" for theirs, ours, said in rows()]
    return "\n" + "\n".join(lines) + "\n"


def test_the_page_of_names_is_that_of_the_ray_that_is_installed() -> None:
    text = DOCUMENT.read_text()
    assert text.split(BEGIN)[1].split(END)[0] == table(), f"write it anew: python -m {__spec__.name}"


def test_an_argument_that_is_new_in_ray_is_missed() -> None:
    with pytest.raises(AssertionError, match=r"RunConfig\(brand_new\) is neither here nor refused"):
        _row("RunConfig(brand_new)", "RunConfig(brand_new)", False, "RunConfig", "brand_new")


def test_what_is_refused_is_ray_trains_and_not_also_ours() -> None:
    refused = {(owner, name) for owner, names in refusals.ARGUMENTS.items() for name in names}
    ours = {"report": "session", "ElasticTrainer": "trainer", "TorchTrainer": "trainer", "JaxTrainer": "trainer"}
    for owner, name in refused - {("report", "validation")}:
        called = _get(f"{OURS}.{ours.get(owner, 'config')}", owner)
        assert name not in _arguments(called), f"{owner}({name}) is refused and has a meaning"
    told = {(said.split("(")[0], said.split("(")[1].rstrip(")")) for _, said, _ in rows() if "(" in said}
    assert not refused & told


def test_every_remark_is_about_something_of_ray_trains() -> None:
    names = {ours for _, ours, _ in rows()} | {ours.rpartition(".")[2] for _, ours, _ in rows()}
    assert set(DIFFERS) <= names, set(DIFFERS) - names


if __name__ == "__main__":
    old = DOCUMENT.read_text()
    DOCUMENT.write_text(old.split(BEGIN)[0] + BEGIN + table() + END + old.split(END)[1])
