"""`RAY_TRAIN_CALLBACKS=shaketable.Recorder`: writes down what a Ray Train run in production goes through.

It watches in the controller alone, with the hooks of the harness's own observer, so that no worker waits for it; and it
never raises, since an exception in a callback ends a Ray Train run. What it writes, `shaketable judge` and `shaketable
reproduce` read: how attempts began and ended, reports and commits. Of the configuration only what `_configuration`
lists; no environment, no metrics, no arguments of the job, no text of any error.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.history.events import (
    AnyEvent,
    DriverStarted,
    Event,
    ExperimentBegan,
    Reported,
    RunEnded,
    TermBegan,
    WorkerFinished,
    WorkerStarted,
)
from shaketable.chaos.history.recording import DIRECTORY_ENV, RECORDING, Limits, Recording, recordings
from shaketable.chaos.subjects.ray_train.causes import Ending
from shaketable.chaos.subjects.ray_train.past import past
from shaketable.chaos.subjects.ray_train.watching import Watching, guarded, latest, member_of
from shaketable.chaos.subjects.recorded import read_record

# in the home directory, where a run is kept in an object store
HOME = "shaketable-recordings"
# at the run's end; nothing else ever waits for the disk
FLUSH_WITHIN_S = 1.0
logger = logging.getLogger(__name__)


class Recorder(Watching):
    """Made in the driver, pickled into the controller, and at work there. (No WorkerCallback: it never travels to a
    worker.)"""

    def __init__(self) -> None:
        self._driver = os.getpid()
        asked = os.environ.get(DIRECTORY_ENV, "")
        self._asked = Path(asked).expanduser().absolute() if asked else None
        self._limits = Limits.of(os.environ)
        self._recording: Recording | None = None
        self._returned: set[int] = set()
        self._begin(1, past([]))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_recording": None, "_manager": None}

    def _emit(self, event: Event) -> None:
        if self._recording is not None:
            self._recording.write(event)

    # ---- the run ----

    @guarded
    def after_controller_start(self, train_run_context: Any) -> None:
        run = train_run_context.run_config
        directory = self._place(run)
        before = _read(directory)
        term = 1 + max([_last_term(directory), *(e.term for e in before if isinstance(e, TermBegan))])
        self._begin(term, past(before))
        self._recording = Recording(directory, term, self._limits)
        configuration = _configuration(train_run_context)
        self._emit(
            ExperimentBegan(
                title=str(run.name),
                subject="ray-train",
                cluster="production",
                seed=0,
                recorded=True,
                configuration=configuration,
                expect={},
                versions=_versions(),
            )
        )
        self._emit(DriverStarted(launch=term - 1, pid=self._driver, changed=configuration))
        super().after_controller_start(train_run_context)

    def _place(self, run: Any) -> Path:
        """Beside the checkpoints, where that is a directory."""
        name = str(run.name).replace("/", "_")
        if self._asked is not None:
            return self._asked / name
        storage = run.storage_context
        if type(storage.storage_filesystem).__name__ == "LocalFileSystem":
            return Path(storage.experiment_fs_path) / RECORDING
        return Path.home() / HOME / name

    def _adopt(self, snapshot: Path) -> None:
        """Commits from before there was a Recorder, or that a killed controller could not tell of: how many reports
        they took is not known, and one each is assumed."""
        if not snapshot.exists():
            return
        index = max(self._indices.values(), default=0)
        for result in json.loads(snapshot.read_bytes())["checkpoint_results"]:
            if (name := result["checkpoint_dir_name"]) not in self._indices:
                index += 1
                self._commit(name, index, self._past.term)

    def _end(self, end: Ending) -> None:
        """The words of an error may hold anything: its type is written, not its text."""
        super()._end(replace(end, detail=end.error))

    def _run_ended(self, outcome: str, error: BaseException | None, metrics: dict[str, Any] | None) -> None:
        self._emit(
            RunEnded(term=self._term, outcome=outcome, error=type(error).__name__ if error is not None else None)
        )
        if self._recording is not None:
            self._recording.flush(FLUSH_WITHIN_S)

    # ---- the workers, as the controller sees them ----

    @guarded
    def after_worker_group_start(self, worker_group: Any) -> None:
        self._returned = set()
        super().after_worker_group_start(worker_group)

    @guarded
    def after_worker_group_training_start(self, worker_group: Any) -> None:
        """The training function has been started in all of them."""
        workers, resume = worker_group.get_workers(), latest(self._manager)
        for member in sorted(map(member_of, workers), key=lambda member: member.rank):
            self._emit(
                WorkerStarted(
                    term=self._term,
                    attempt=self._attempt,
                    rank=member.rank,
                    world_size=len(workers),
                    node_id=member.node_id,
                    pid=member.pid,
                    resume=resume,
                )
            )

    @guarded
    def after_report(self, training_report: Any, metrics: list[dict[str, Any]]) -> None:
        """All workers have made this report; one line says so, in rank 0's name."""
        super().after_report(training_report, metrics)
        self._emit(Reported(term=self._term, attempt=self._attempt, rank=0, step=self._index))

    @guarded
    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        for rank, status in worker_group_status.worker_statuses.items():
            if not status.running and status.error is None and rank not in self._returned:
                self._returned.add(rank)
                self._emit(WorkerFinished(term=self._term, attempt=self._attempt, rank=rank))


def _configuration(context: Any) -> dict[str, Any]:
    """All that is recorded of it."""
    scaling, failure = context.scaling_config, context.run_config.failure_config
    workers = scaling.num_workers
    return {
        "subject": "ray-train",
        "job": "",
        "num_workers": workers if isinstance(workers, int) else list(workers),
        "elastic_resize_monitor_interval_s": float(scaling.elastic_resize_monitor_interval_s),
        "max_failures": failure.max_failures,
        "max_preemption_failures": failure.max_preemption_failures,
    }


def _versions() -> dict[str, str]:
    packages = {name: importlib.metadata.version(name) for name in ("shaketable", "ray")}
    return {"python": platform.python_version(), **packages}


def _read(directory: Path) -> tuple[AnyEvent, ...]:
    """What earlier drivers recorded of this run; nothing where it cannot be read."""
    if not recordings(directory):
        return ()
    try:
        return read_record(directory).events
    except ExperimentError as error:
        logger.warning("shaketable: this driver's record does not go on from the one before: %s", error)
        return ()


def _last_term(directory: Path) -> int:
    """By the files' names, in case what is in them cannot be read."""
    return max((int(path.stem[1:].partition("-")[0]) for path in recordings(directory)), default=0)
