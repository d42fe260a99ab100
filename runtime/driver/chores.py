"""Storage work that nothing waits for: the files of deleted checkpoints, the stacks of a hung worker. It is done on a
thread of its own, so that no record and no look at the fence ever stands behind it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Literal

from shaketable.runtime.checkpoints import store
from shaketable.runtime.errors import StorageError
from shaketable.runtime.storage.store import RunPath

# checkpoints removed at a time
BATCH = 32

Chore = Callable[[], None]


class Chores:
    """`warn` is told what could not be done; a checkpoint's files that stay are collected by the next driver, or at the
    end of the run."""

    def __init__(self, run_path: RunPath, warn: Callable[[str], None]) -> None:
        self._run_path, self._warn = run_path, warn
        self._waiting: queue.SimpleQueue[str | Chore | None] = queue.SimpleQueue()
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self, guarded: Callable[[Chore], Chore]) -> None:
        """`guarded` makes of the thread's work what may run on a thread."""
        self._thread = threading.Thread(target=guarded(self._run), name="shaketable-chores", daemon=True)
        self._thread.start()

    def delete(self, checkpoint: str) -> None:
        """Its deletion is in the log."""
        self._waiting.put(checkpoint)

    def finish_deletes(self, deleted: Iterable[str]) -> None:
        """What earlier terms recorded as deleted, and had no time to remove."""
        self._waiting.put(lambda: self._finish(deleted))

    def do(self, chore: Chore) -> None:
        """It may raise StorageError."""
        self._waiting.put(chore)

    def close(self, timeout_s: float) -> None:
        """Nothing more is begun. Returns when what is under way is done, or after `timeout_s`."""
        self._closing = True
        self._waiting.put(None)
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        more: str | Chore | Literal[False] | None = False
        while not self._closing:
            chore = self._waiting.get() if more is False else more
            more = False
            if isinstance(chore, str):
                names, more = self._batch(chore)
                self._tried(lambda names=names: store.delete(self._run_path, names))  # type: ignore[misc]
            elif chore is not None:
                self._tried(chore)

    def _batch(self, first: str) -> tuple[list[str], str | Chore | Literal[False] | None]:
        """The checkpoints that wait, and what came behind them if it is something else."""
        names = [first]
        while len(names) < BATCH:
            try:
                chore = self._waiting.get_nowait()
            except queue.Empty:
                break
            if not isinstance(chore, str):
                return names, chore
            names.append(chore)
        return names, False

    def _finish(self, deleted: Iterable[str]) -> None:
        left = store.left_of(self._run_path, deleted)
        for start in range(0, len(left), BATCH):
            if not self._closing:
                store.delete(self._run_path, left[start : start + BATCH])

    def _tried(self, chore: Chore) -> None:
        try:
            chore()
        except StorageError as error:
            self._warn(f"put off to the end of the run or its next driver: {error}")
