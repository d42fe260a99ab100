"""An agent's copying without the agent: its actions are run here, and what it says is kept."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shaketable.runtime.agent.checkpoint_io import Copying, Place
from shaketable.runtime.log.records import CheckpointCommitted
from shaketable.runtime.storage.store import RunPath
from shaketable.runtime.transport import messages as msg

WITHIN_S = 20.0


def setup(run: RunPath, run_id: str) -> msg.Setup:
    return msg.Setup(
        task=b"",
        run_path=str(run),
        run_key="key",
        name="run",
        preload=[],
        sys_path=[],
        heartbeat_s=1.0,
        lease_s=60.0,
        storage_outage_s=60.0,
        staging_bytes_max=None,
        run_id=run_id,
    )


class CopyingRig:
    """`told`: to the driver; `answered`: to the worker; `why_unfit`: why the agent leaves."""

    def __init__(self, setup: msg.Setup, folder: Path) -> None:
        self.told: list[msg.AnyMessage] = []
        self.answered: list[msg.AnyMessage] = []
        self.why_unfit: list[str] = []
        self._actions: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.copying = Copying(
            setup,
            Place("node", "127.0.0.1", folder / "node"),
            1,
            ThreadPoolExecutor(2),
            later=self._actions.put,
            to_driver=self.told.append,
            to_worker=lambda message, attempt: self.answered.append(message),
            unfit=self._unfit,
        )

    def _unfit(self, detail: str) -> None:
        self.why_unfit.append(detail)
        raise Unfit

    def until(self, condition: Callable[[], object]) -> None:
        """Run what is to be run on the agent's loop until `condition`."""
        deadline_s = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < deadline_s, "it has not come to that"
            try:
                self._actions.get(timeout=0.05)()
            except (queue.Empty, Unfit):
                pass

    @staticmethod
    def report(source: Path, index: int = 1, attempt: int = 1, *, staged: bool = False) -> msg.Report:
        return msg.Report(attempt=attempt, rank=0, index=index, metrics=b"{}", directory=str(source), staged=staged)

    @staticmethod
    def fork(resume: CheckpointCommitted | None, attempt: int = 2) -> msg.Fork:
        return msg.Fork(
            term=1,
            attempt=attempt,
            rank=0,
            world_size=1,
            local_rank=0,
            local_world_size=1,
            node_rank=0,
            first_index=1,
            resume=resume,
        )


class Unfit(Exception):
    """The loop has ended."""
