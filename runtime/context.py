"""Who a worker is, what its nodes have been told, and where its run lies: what a training function asks its context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shaketable.runtime.errors import ConfigurationError
from shaketable.runtime.refusals import CONTEXT_METHODS
from shaketable.runtime.storage.arrow import filesystem_of
from shaketable.runtime.storage.files import check_name

if TYPE_CHECKING:
    # the runtime itself does not need it
    import pyarrow.fs

# what the runtime keeps in the directory of a run
_OURS = frozenset({"log", "checkpoints", "snapshots", "stacks"})


@dataclass(frozen=True, slots=True)
class PreemptionInfo:
    """Nodes that have been announced to go (Ray Train: `ray.train.PreemptionInfo`). `deadline_s`: the first of their
    deadlines, wall clock, seconds since 1970. `node_ids`: the nodes, also those without a worker.
    `preempted_node_to_ranks`: the ranks on those that have workers."""

    deadline_s: float
    node_ids: tuple[str, ...]
    preempted_node_to_ranks: Mapping[str, list[int]] = field(default_factory=dict)

    @property
    def deadline_ms(self) -> int:
        """As Ray Train's: milliseconds since 1970."""
        return int(self.deadline_s * 1000)

    @property
    def preempted_node_ids(self) -> list[str]:
        """Sorted."""
        return sorted(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        """Sorted."""
        return sorted(rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks)


@dataclass(frozen=True, slots=True)
class RunStorage:
    """Where a run lies: what `get_context().get_storage()` gives. `experiment_fs_path`: its directory, or its URL."""

    experiment_fs_path: str

    @property
    def storage_fs_path(self) -> str:
        return self.experiment_fs_path.rpartition("/")[0]

    @property
    def experiment_dir_name(self) -> str:
        return self.experiment_fs_path.rpartition("/")[2]

    @property
    def storage_filesystem(self) -> pyarrow.fs.FileSystem:
        """Needs pyarrow."""
        return filesystem_of(self.experiment_fs_path)[0]

    def build_checkpoint_path_from_name(self, checkpoint_name: str) -> str:
        """A place beside the runtime's own files, for a function that writes to the storage itself. It belongs to the
        function: it is no commit, is never deleted, and has to have another name in each attempt that may write there
        at the same time. Raises ConfigurationError."""
        check_name("the name of the checkpoint directory", checkpoint_name)
        if checkpoint_name in _OURS:
            raise ConfigurationError(f"{checkpoint_name!r} is a directory of the runtime itself; use another name")
        return f"{self.experiment_fs_path}/{checkpoint_name}"


@dataclass(frozen=True, slots=True)
class TrainContext:
    """Who this worker is (Ray Train: `ray.train.get_context()`); `term` and `attempt` count from 1 over the run,
    `resume` is the name of the checkpoint it resumes from, None at the very start. `run_path`: the run's directory or
    URL. `node_ip`: the address of its node, at which the other nodes reach it."""

    term: int
    attempt: int
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    node_id: str
    name: str
    resume: str | None
    run_path: str = ""
    node_ip: str = ""

    def get_world_rank(self) -> int:
        return self.rank

    def get_world_size(self) -> int:
        return self.world_size

    def get_local_rank(self) -> int:
        return self.local_rank

    def get_local_world_size(self) -> int:
        return self.local_world_size

    def get_node_rank(self) -> int:
        return self.node_rank

    def get_experiment_name(self) -> str:
        return self.name

    def get_storage(self) -> RunStorage:
        return RunStorage(self.run_path)

    def __getattr__(self, name: str) -> Any:
        if name in CONTEXT_METHODS:
            raise AttributeError(f"TrainContext has no {name}, which was Ray Train's: {CONTEXT_METHODS[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
