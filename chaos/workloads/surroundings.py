"""What a workload needs from the subject that runs it, as types: the part of
`shaketable.chaos.workloads.worker_api` that is used here. A workload imports that module only when it runs, so
its mathematics can be used without any subject.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from shaketable.chaos.history.events import Event

# term, attempt, rank, world size, node id
Where = tuple[int, int, int, int, str]


class Checkpoint(Protocol):
    def as_directory(self) -> AbstractContextManager[Any]: ...


class Api(Protocol):
    """Ray Train's names."""

    @property
    def Checkpoint(self) -> Any: ...

    def report(self, metrics: dict[str, Any], checkpoint: Any = None) -> None: ...

    def get_checkpoint(self) -> Any: ...

    def checkpoint_requested(self) -> bool: ...

    def notice(self) -> bool: ...

    def broadcast_from_rank_zero(self, data: Any) -> Any: ...


class Surroundings(Protocol):
    def api(self) -> Api: ...

    def emit(self, event: Event) -> None: ...

    def restoring(self) -> None: ...

    def where(self) -> Where: ...

    def node_ip(self) -> str: ...

    def stepped(
        self,
        step: int,
        *,
        digest: str | None = None,
        samples: list[int] | None = None,
        checkpoint: bool = False,
        metrics: dict[str, Any] | None = None,
    ) -> None: ...
