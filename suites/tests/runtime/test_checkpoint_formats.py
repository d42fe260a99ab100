"""Torch DCP and Orbax checkpoints through the Checkpoint API: real processes save the shards of one array, which are
committed as one checkpoint and restored by another number of processes. On a local path and in an S3 server."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shaketable.runtime.backends.base import Backend
from shaketable.runtime.backends.jax import JaxBackend
from shaketable.runtime.backends.torch import TorchBackend
from shaketable.runtime.checkpoint import Checkpoint
from shaketable.runtime.checkpoints.store import verify
from shaketable.runtime.storage.files import CHECKPOINTS
from shaketable.runtime.transport.wire import Channel
from shaketable.suites.tests.rigs import checkpoint_jobs
from shaketable.suites.tests.rigs.s3_rig import s3, s3_server
from shaketable.suites.tests.rigs.worker_rig import fork_server, node_of

__all__ = ["s3", "s3_server"]
pytestmark = pytest.mark.xdist_group("checkpoint-formats")

JOBS = checkpoint_jobs.__name__


@dataclass(frozen=True)
class Kind:
    """`left`: what two processes leave, files or directories of such."""

    module: str
    backend: Backend
    preload: str
    first: Callable[[], None]
    second: Callable[[], None]
    left: frozenset[str]


DCP = Kind(
    "torch",
    TorchBackend(timeout_s=60.0),
    "torch.distributed.checkpoint",
    checkpoint_jobs.torch_dcp,
    checkpoint_jobs.torch_dcp_async,
    frozenset({".metadata", "__0_0.distcp", "__1_0.distcp"}),
)
ORBAX = Kind(
    "orbax",
    JaxBackend(timeout_s=60),
    "orbax.checkpoint",
    checkpoint_jobs.jax_orbax,
    checkpoint_jobs.jax_orbax,
    frozenset({"state/ocdbt.process_0", "state/ocdbt.process_1"}),
)
HERE = [kind for kind in (DCP, ORBAX) if importlib.util.find_spec(kind.module)]


@pytest.fixture(params=["local", "s3"])
def storage_path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "local" else f"{request.getfixturevalue('s3')}/runs"


def after(step: int) -> dict[str, Any]:
    return {"step": step, "numbers": [float(number + step) for number in range(checkpoint_jobs.SIZE)]}


@pytest.fixture(scope="module", params=HERE, ids=lambda kind: kind.module)
def warm(request: pytest.FixtureRequest) -> Iterator[tuple[Kind, Channel]]:
    """A kind of checkpoints, and a fork server that has its framework imported."""
    kind: Kind = request.param
    with fork_server((*kind.backend.preload, kind.preload, JOBS)) as forks:
        yield kind, forks


def test_shards_of_several_ranks_are_one_checkpoint_that_any_number_of_ranks_restores(
    tmp_path: Path, storage_path: str, warm: tuple[Kind, Channel]
) -> None:
    kind, forks = warm
    here = node_of(forks, storage_path, tmp_path)
    assert here.attempt(kind.backend, kind.first, 2) == [after(2)] * 2
    assert [commit.index for commit in here.commits] == [1, 2]
    listed = {file.path for file in here.commits[-1].files}
    assert kind.left <= listed | {str(parent) for path in listed for parent in Path(path).parents}
    assert here.attempt(kind.backend, kind.second, 3) == [after(4)] * 3
    assert here.attempt(kind.backend, kind.first, 1) == [after(6)]
    last = here.commits[-1]
    verify(here.run, last)
    with Checkpoint(str(here.run / CHECKPOINTS / last.checkpoint)).as_directory() as directory:
        found = {str(path.relative_to(directory)) for path in Path(directory).rglob("*") if path.is_file()}
    assert found == {file.path for file in last.files}
