"""What a fault can lay its hands on where processes are real."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from shaketable.chaos.history.collector import Collector
from shaketable.clusters.protocol import Cluster

# needs the extra `storage`
if TYPE_CHECKING:
    from shaketable.chaos.storage.gateway import Gateway


class OtherRun(Protocol):
    """A run beside the one under test."""

    @property
    def exit_code(self) -> int | None:
        """Of its driver; None: it runs."""
        ...

    def stop(self) -> None: ...


class Drivers(Protocol):
    """Whoever starts the drivers of the run: the engine."""

    def start(self, changed: dict[str, Any]) -> int:
        """Launch the driver once more; returns its pid."""
        ...

    def beside(self, changed: dict[str, Any]) -> OtherRun:
        """Launch another run of the same job."""
        ...


class RunStorage(Protocol):
    """Where the run keeps its log and checkpoints."""

    @property
    def directory(self) -> Path | None:
        """None: it cannot be looked into."""
        ...

    @property
    def gateway(self) -> Gateway | None:
        """Where requests for it can be hurt."""
        ...


@dataclass(frozen=True, slots=True)
class Scene:
    """One run on one cluster. `directory` is that of the witnesses: what is left there reaches every worker."""

    cluster: Cluster
    collector: Collector
    drivers: Drivers
    directory: Path
    storage: RunStorage
