"""What the harness needs of a subject: what its driver is started with, and to read afterwards what it left.

Whatever happens while it runs comes to the harness as events (`chaos/history/witness.py`), never through this
interface, so that a driver can be killed at any instant without taking anything of the harness along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from shaketable.chaos.history.events import AnyEvent, CheckpointProbed, LogRecord
from shaketable.chaos.history.witness import WitnessConfig
from shaketable.chaos.plan import Configuration
from shaketable.clusters.protocol import DriverCommand


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of the driver of the run `(storage_path, name)`: the `launch`-th, counted from 0. `changed` is what
    differs from `configuration` in this launch (a larger budget, for example)."""

    configuration: Configuration
    address: str
    storage_path: str
    name: str
    witness: WitnessConfig
    launch: int
    changed: dict[str, Any] = field(default_factory=dict)

    @property
    def effective(self) -> Configuration:
        """The configuration with this launch's changes. An unknown key raises TypeError."""
        # JSON has no tuples
        changed: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in self.changed.items()
        }
        return replace(self.configuration, **changed)


class Subject(Protocol):
    """`bundled` or `ray-train`."""

    name: str

    def driver(self, launch: Launch, log: Path) -> DriverCommand:
        """What it is started with; what it prints goes to `log`."""
        ...

    def log_records(self, storage_path: str, name: str) -> list[LogRecord]:
        """The subject's own durable log, as read back from storage; empty where it has none."""
        ...

    def probe_checkpoints(self, events: Sequence[AnyEvent], storage_path: str, name: str) -> list[CheckpointProbed]:
        """Every checkpoint that was committed and not deleted, really read back."""
        ...

    def files_left(self, storage_path: str, name: str) -> list[str]:
        """One line for each thing in storage that belongs to no checkpoint and no record: temporaries, uploads that
        were never committed. Call it before anything that opens the run again, which may sweep."""
        ...
