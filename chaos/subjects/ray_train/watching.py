"""What can be seen of a Ray Train run from inside its controller, as events of a history: for the observer of the
harness and for the Recorder of production runs.

An exception in a callback ends a Ray Train run, so every hook is guarded: an observer that fails must not look like a
failure of the subject. What it could not say is then missing from the history, and logged.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from ray.train.v2._internal.execution.callback import ControllerCallback, ReportCallback, WorkerGroupCallback
from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import CheckpointManager
from ray.train.v2._internal.execution.controller.state import (
    ErroredState,
    FinishedState,
    ReschedulingState,
    ResizingState,
    RestartingState,
    ShuttingDownState,
)

from shaketable.chaos.history.events import (
    AttemptEnded,
    AttemptStarted,
    CheckpointDeleted,
    Committed,
    Event,
    Member,
    StateChanged,
    TermBegan,
)
from shaketable.chaos.subjects.ray_train.causes import Ending, ending
from shaketable.chaos.subjects.ray_train.past import Past
from shaketable.chaos.subjects.ray_train.worker import Placement, name_of

logger = logging.getLogger(__name__)
Returned = TypeVar("Returned")


def guarded(hook: Callable[..., Returned]) -> Callable[..., Returned | None]:
    """The hook without its exceptions, whatever they are: see the file's first lines."""

    @functools.wraps(hook)
    def safe(*args: Any, **kwargs: Any) -> Returned | None:
        try:
            return hook(*args, **kwargs)
        except Exception:
            logger.exception("shaketable: not in the history: %s", hook.__name__)
            return None

    return safe


class Watching(ControllerCallback, WorkerGroupCallback, ReportCallback):
    """What can be seen in the controller, as events of a history. Who is told is for the subclass to say."""

    def _begin(self, term: int, past: Past) -> None:
        """`past`: what earlier launches of the run are known to have done."""
        self._term, self._past = term, past
        self._indices = dict(past.indices)
        # committed, and not recorded as deleted
        self._kept = list(past.kept)
        # Ray Train's, in the controller
        self._manager: Any = None
        self._attempt = past.attempts
        # the attempt has started and has not ended
        self._open = False
        # of the last report that every worker of this attempt has made
        self._index = 0
        self._state = ""
        self._placement = Placement(term, self._attempt)

    def _emit(self, event: Event) -> None:
        raise NotImplementedError

    def _run_ended(self, outcome: str, error: BaseException | None, metrics: dict[str, Any] | None) -> None:
        raise NotImplementedError

    # ---- the controller ----

    @guarded
    def after_controller_start(self, train_run_context: Any) -> None:
        """Its checkpoint manager has read the snapshot by now. Budgets start at nothing: Ray Train keeps them in
        memory only."""
        self._emit(TermBegan(term=self._term, spent={}))
        self._changed("INITIALIZING")
        self._adopt(Path(train_run_context.run_config.storage_context.checkpoint_manager_snapshot_path))

    def _adopt(self, snapshot: Path) -> None:
        """The one commit that may be in the snapshot and not in the history. (Of several nobody knows the index.)"""
        if not snapshot.exists():
            return
        listed = [result["checkpoint_dir_name"] for result in json.loads(snapshot.read_bytes())["checkpoint_results"]]
        unknown = [name for name in listed if name not in self._indices]
        index = self._past.index_of(unknown[0]) if len(unknown) == 1 else None
        if index is not None:
            self._commit(unknown[0], index, self._past.term)

    @guarded
    def after_controller_state_update(self, previous_state: Any, current_state: Any) -> None:
        self._changed(current_state._state_type.state_name)
        if (end := _end_of_attempt(current_state)) is not None:
            self._end(end)

    @guarded
    def before_controller_abort(self) -> None:
        self._end(Ending("interrupted", None))
        self._run_ended("interrupted", None, None)

    @guarded
    def after_controller_finish(self, result: Any) -> None:
        """Where the controller gave up without a state update, the attempt is still open."""
        if result.error is not None:
            self._end(ending(result.error))
        self._run_ended("failed" if result.error is not None else "finished", result.error, result.metrics)

    def _changed(self, state: str) -> None:
        if state != self._state:
            self._state = state
            self._emit(StateChanged(term=self._term, state=state))

    def _end(self, end: Ending) -> None:
        if self._open:
            self._open = False
            self._emit(
                AttemptEnded(
                    term=self._term,
                    attempt=self._attempt,
                    cause=end.cause,
                    account=end.account,
                    detail=end.detail,
                    rank=end.rank,
                )
            )

    # ---- the worker group ----

    def before_init_train_context(self, workers: list[Any]) -> dict[str, list[Any]]:
        """What is set here goes to the workers with the observer, right after this."""
        self._placement = Placement(self._term, self._attempt + 1, dict(self._indices))
        return {}

    @guarded
    def after_worker_group_start(self, worker_group: Any) -> None:
        """All workers are there; none is in the training function yet."""
        self._attempt = self._placement.attempt
        self._open = True
        self._manager = _manager(worker_group)
        resume = latest(self._manager)
        resume_index = self._indices.get(resume) if resume is not None else None
        self._index = resume_index or 0
        members = [member_of(worker) for worker in worker_group.get_workers()]
        self._emit(
            AttemptStarted(
                term=self._term,
                attempt=self._attempt,
                world_size=len(members),
                members=sorted(members, key=lambda member: member.rank),
                resume=resume,
                resume_index=resume_index,
            )
        )

    @guarded
    def after_report(self, training_report: Any, metrics: list[dict[str, Any]]) -> None:
        """Comes after the checkpoint manager's own hook: the snapshot on storage names the checkpoint by now."""
        self._index += 1
        if training_report.checkpoint is not None:
            self._commit(PurePosixPath(training_report.checkpoint.path).name, self._index, self._term)
            self._emit_deletions()

    def _emit_deletions(self) -> None:
        """`num_to_keep`: what the manager has just dropped from its list is deleted."""
        kept = {name_of(result.checkpoint) for result in self._manager.best_checkpoint_results}
        for name in [name for name in self._kept if name not in kept]:
            self._kept.remove(name)
            self._emit(CheckpointDeleted(term=self._term, checkpoint=name))

    def _commit(self, name: str, index: int, term: int) -> None:
        self._indices[name] = index
        self._kept.append(name)
        self._emit(Committed(term=term, attempt=self._attempt, index=index, checkpoint=name))


def _end_of_attempt(state: Any) -> Ending | None:
    """Whether entering `state` ends the attempt, and how. A decision is carried out after the state was entered, so
    this comes before the workers are stopped."""
    if isinstance(state, RestartingState | ReschedulingState):
        return ending(state.training_failed_error)
    if isinstance(state, ResizingState):
        return Ending("resized", None)
    if isinstance(state, ShuttingDownState):
        return _end_of_attempt(state.next_state)
    if isinstance(state, ErroredState):
        return ending(state.training_failed_error)
    if isinstance(state, FinishedState):
        return Ending("finished", None)
    return None


def _manager(worker_group: Any) -> CheckpointManager:
    return next(c for c in worker_group._callbacks if isinstance(c, CheckpointManager))


def latest(manager: CheckpointManager) -> str | None:
    """The checkpoint that the workers were given, from the manager that gave it."""
    latest = manager.latest_checkpoint_result
    return name_of(latest.checkpoint) if latest is not None else None


def member_of(worker: Any) -> Member:
    metadata = worker.metadata
    return Member(rank=worker.distributed_context.world_rank, node_id=metadata.node_id, pid=metadata.pid)
