"""A small stand-in for a subject, for tests of the workloads: ranks are threads, checkpoints are directories.

It runs the real training functions over real sockets and files; only reporting and restarting are reduced to
what a test wants to look at.
"""

from __future__ import annotations

import contextlib
import queue
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shaketable.chaos.history.events import Event, Resumed, Stepped


@dataclass(frozen=True)
class FakeCheckpoint:
    directory: Path

    @classmethod
    def from_directory(cls, path: str) -> FakeCheckpoint:
        return cls(Path(path))

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        yield str(self.directory)


class Stopped(Exception):
    """The rig ends the attempt here, as a fault would."""


@dataclass
class Rig:
    """One run: `attempt(world_size)` starts its ranks; what they recorded stays in `events`."""

    folder: Path
    job: Callable[[dict[str, Any], Any], None]
    config: dict[str, Any]
    stop_at: int | None = None
    request_at: int | None = None
    events: list[Event] = field(default_factory=list)
    commits: list[Path] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    attempts: int = 0

    def attempt(self, world_size: int) -> list[BaseException | None]:
        """Run all ranks to their end; what each raised, by rank."""
        self.attempts += 1
        wires: list[queue.Queue[Any]] = [queue.Queue() for _ in range(world_size)]
        ends: list[BaseException | None] = [None] * world_size

        def main(rank: int) -> None:
            try:
                self.job(dict(self.config), RankSession(self, rank, world_size, self.attempts, wires))
            except (OSError, RuntimeError, ValueError, Stopped) as error:
                ends[rank] = error

        threads = [threading.Thread(target=main, args=(rank,), daemon=True) for rank in range(world_size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a rank hangs"
        return ends

    def digests(self) -> dict[int, set[str | None]]:
        """By step, the digests that any rank of any attempt recorded."""
        found: dict[int, set[str | None]] = {}
        for event in self.events:
            if isinstance(event, Stepped):
                found.setdefault(event.step, set()).add(event.digest)
        return found

    def resumed(self) -> list[Resumed]:
        return [event for event in self.events if isinstance(event, Resumed)]

    def steps(self, attempt: int, rank: int) -> list[Stepped]:
        steps = [event for event in self.events if isinstance(event, Stepped)]
        return [event for event in steps if (event.attempt, event.rank) == (attempt, rank)]


class RankSession:
    """`session` and Ray Train's API in one object, for one rank."""

    Checkpoint = FakeCheckpoint

    def __init__(self, rig: Rig, rank: int, world_size: int, attempt: int, wires: list[queue.Queue[Any]]) -> None:
        self._rig, self._rank, self._world_size, self._attempt = rig, rank, world_size, attempt
        self._wires = wires
        self._step = 0

    def api(self) -> RankSession:
        return self

    def emit(self, event: Event) -> None:
        self._rig.events.append(event)

    def where(self) -> tuple[int, int, int, int, str]:
        return 1, self._attempt, self._rank, self._world_size, "node"

    def node_ip(self) -> str:
        return "127.0.0.1"

    def stepped(self, step: int, **said: Any) -> None:
        self._step = step
        term, attempt, rank, world_size, _ = self.where()
        self.emit(Stepped(term=term, attempt=attempt, rank=rank, world_size=world_size, step=step, **said))

    def report(self, metrics: dict[str, Any], checkpoint: FakeCheckpoint | None = None) -> None:
        self._rig.metrics = metrics
        if checkpoint is not None:
            target = self._rig.folder / f"checkpoint-{self._step}-{self._attempt}"
            shutil.copytree(checkpoint.directory, target, dirs_exist_ok=True)
            if target not in self._rig.commits:
                self._rig.commits.append(target)
        if self._step == self._rig.stop_at and self._attempt == 1:
            raise Stopped

    def get_checkpoint(self) -> FakeCheckpoint | None:
        return FakeCheckpoint(self._rig.commits[-1]) if self._rig.commits else None

    def restoring(self) -> None:
        """Nobody listens for that."""

    def checkpoint_requested(self) -> bool:
        return self._step + 1 == self._rig.request_at

    def notice(self) -> bool:
        return self.checkpoint_requested()

    def broadcast_from_rank_zero(self, data: Any) -> Any:
        if self._rank == 0:
            for wire in self._wires[1:]:
                wire.put(data)
            return data
        return self._wires[self._rank].get(timeout=30)
