"""What the training function sees: `report`, `get_checkpoint`, `get_context`, and what Ray Train calls a session.

A worker has one session and one thread that may use it. What the controller wants takes effect inside `report()` only,
so that it changes at the same report index on every rank (docs/architecture.md, "Hold").
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

import msgspec

from shaketable.runtime import messages as msg
from shaketable.runtime.checkpoint import Checkpoint, CheckpointUploadMode
from shaketable.runtime.checkpoints import stage
from shaketable.runtime.wire import Channel, ChannelClosed


class Listener(Protocol):
    """Watches the session of this process; see `listeners`."""

    def before_report(self, index: int, metrics: dict[str, Any], checkpoint: Checkpoint | None) -> None: ...

    def after_report(self, index: int) -> None: ...


listeners: list[Listener] = []
"""Called around every `report()` of this process, on the training function's own thread."""


class SessionError(RuntimeError):
    """The session API was used where there is no session, or against its rules."""


@dataclass(frozen=True, slots=True)
class PreemptionInfo:
    """Nodes that have been announced to go. `deadline_s`: wall clock, seconds since 1970."""

    deadline_s: float
    node_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrainContext:
    """Who this worker is (Ray Train: `ray.train.get_context()`); `term` and `attempt` count from 1 over the run,
    `resume` is the name of the checkpoint it resumes from, None at the very start."""

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


class Session:
    """The worker's end of everything. The training function's thread calls it; a second thread hears what the agent
    says. What both touch is guarded by `_changed`; `_returned` is the index of the last report returned from."""

    def __init__(self, channel: Channel, task: msg.Task) -> None:
        fork = task.fork
        self.context = TrainContext(
            term=fork.term,
            attempt=fork.attempt,
            rank=fork.rank,
            world_size=fork.world_size,
            local_rank=fork.local_rank,
            local_world_size=fork.local_world_size,
            node_rank=fork.node_rank,
            node_id=task.node_id,
            name=task.name,
            resume=fork.resume.checkpoint if fork.resume else None,
        )
        self._attempt, self._rank = fork.attempt, fork.rank
        self.node_ip = task.node_ip
        self.checkpoint_requested = False
        self.preemption: PreemptionInfo | None = None
        self._channel = channel
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._staging = Path(task.staging)
        self._restored: msg.Restored | None = None
        self._returned = fork.first_index - 1
        self._uploaded: set[int] = set()
        self._failed_upload: str | None = None
        self._holding = False
        self._hold_at: int | None = None
        self._requested: set[int] = set()  # reports at which a checkpoint was asked for
        self._reached = False
        self._announced: PreemptionInfo | None = None
        self._round = 0
        self._delivered: dict[int, bytes] = {}

    def listen(self, messages: Iterable[msg.AnyMessage]) -> None:
        """Take in what has arrived already, and start to hear the rest."""
        self._take_in(messages)
        threading.Thread(target=self._hear, name="shaketable-session", daemon=True).start()

    def send(self, message: msg.AnyMessage) -> None:
        with self._sending:
            self._channel.send(message)
            self._channel.drain()

    # ---- report

    def report(
        self, metrics: dict[str, Any], checkpoint: Checkpoint | None, mode: CheckpointUploadMode
    ) -> None:
        index = self._returned + 1
        for listener in listeners:
            listener.before_report(index, metrics, checkpoint)
        self._send_report(index, metrics, checkpoint, mode)
        with self._changed:
            self._raise_failed_upload()
            self._changed.wait_for(lambda: self._may_return(index))
            self._returned = index
            self._requested.discard(index)
            self.checkpoint_requested = index + 1 in self._requested
            self.preemption = self._announced
        for listener in listeners:
            listener.after_report(index)

    def _send_report(
        self, index: int, metrics: dict[str, Any], checkpoint: Checkpoint | None, mode: CheckpointUploadMode
    ) -> None:
        encoded = _encode_metrics(metrics)
        staged = checkpoint is not None and mode is CheckpointUploadMode.ASYNC
        source = checkpoint.path if checkpoint is not None else None
        if staged and source is not None:
            source = str(stage(Path(source), self._staging))
        report = msg.Report(
            attempt=self._attempt,
            rank=self._rank,
            index=index,
            metrics=encoded,
            directory=source,
            staged=staged,
        )
        self.send(report)
        if source is not None and not staged:
            with self._changed:
                self._changed.wait_for(lambda: index in self._uploaded)
                self._uploaded.clear()

    def _raise_failed_upload(self) -> None:
        if self._failed_upload is not None:
            detail, self._failed_upload = self._failed_upload, None
            raise OSError(f"a checkpoint could not be uploaded: {detail}")

    def _may_return(self, index: int) -> bool:
        """The rules of the hold (protocols 4): having answered, wait to be told; then stop at the common report, until
        the attempt is stopped, which kills us, or the hold is cancelled."""
        if not self._holding:
            return True
        if index == self._hold_at and not self._reached:
            self._reached = True
            self.send(msg.HoldReached(attempt=self._attempt, rank=self._rank, index=index))
        return self._hold_at is not None and index != self._hold_at

    # ---- the rest of the API

    def get_checkpoint(self) -> Checkpoint | None:
        if self.context.resume is None:
            return None
        with self._changed:
            self._changed.wait_for(lambda: self._restored is not None)
        assert self._restored is not None
        if self._restored.path is None:
            raise OSError(f"the checkpoint to resume from could not be restored: {self._restored.error}")
        return Checkpoint(self._restored.path)

    def exchange(self, data: bytes) -> bytes:
        """One round of the control collective: returns rank 0's `data` once every rank has called it."""
        self._round += 1
        mine = data if self.context.rank == 0 else b""
        self.send(msg.Contribution(attempt=self._attempt, rank=self._rank, round=self._round, data=mine))
        with self._changed:
            self._changed.wait_for(lambda: self._round in self._delivered)
            return self._delivered.pop(self._round)

    # ---- what the agent says, on its own thread

    def _hear(self) -> None:
        """Beside the training function: it may be in a collective that ends only once a peer has been told to go on, so
        a hold has to be answered from wherever it is."""
        try:
            while self._channel.wait(None):
                self._take_in(self._channel.receive())
        except ChannelClosed:
            os._exit(1)  # no agent, no worker

    def _take_in(self, messages: Iterable[msg.AnyMessage]) -> None:
        with self._changed:
            for message in messages:
                self._on(message)
            self._changed.notify_all()

    def _on(self, message: msg.AnyMessage) -> None:
        match message:
            case msg.Restored():
                self._restored = message
            case msg.UploadDone(index=index, error=error):
                self._uploaded.add(index)
                self._failed_upload = error or self._failed_upload
            case msg.HoldBegin():
                self._holding, self._hold_at, self._reached = True, None, False
                self.send(msg.HoldAnswer(attempt=self._attempt, rank=self._rank, returned=self._returned))
            case msg.HoldUntil(index=index):
                self._hold_at = index
                self._requested.add(index)
            case msg.HoldCancelled():
                # What was requested stays so: a peer may have returned from its report before this came.
                self._holding, self._hold_at = False, None
            case msg.Preemption():
                self._announced = PreemptionInfo(message.deadline_s, tuple(message.node_ids))
            case msg.Delivery():
                self._delivered[message.round] = message.data


def _encode_metrics(metrics: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(metrics, enc_hook=msg.jsonable)
    except (TypeError, msgspec.MsgspecError) as error:
        for key, value in metrics.items():
            try:
                msgspec.json.encode(value, enc_hook=msg.jsonable)
            except (TypeError, msgspec.MsgspecError):
                raise TypeError(f"report: metrics[{key!r}] cannot be sent: {error}") from error
        raise


_session: Session | None = None


def start(session: Session) -> None:
    """Make `session` the one of this process."""
    global _session
    _session = session


def _current() -> Session:
    return _session if _session is not None else _no_session()


def _no_session() -> NoReturn:
    raise SessionError(
        "there is no training session in this process: call this inside the function given to a trainer, "
        "in the worker itself (not in a DataLoader's worker or another child process)"
    )


# ---- public ---------------------------------------------------------------------------------------------------


def report(
    metrics: dict[str, Any],
    checkpoint: Checkpoint | None = None,
    *,
    checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
) -> None:
    """One step of the training function: its metrics (numbers, strings, lists and dicts of them) and, from any ranks
    that have one, a checkpoint. Every rank reports as often as every other. Follows `ray.train.report`.

    Raises OSError if a checkpoint could not be uploaded, TypeError for metrics that cannot be sent.
    """
    _current().report(metrics, checkpoint, checkpoint_upload_mode)


def get_checkpoint() -> Checkpoint | None:
    """The checkpoint to resume from, verified and restored once per node; None at the very start of a run."""
    return _current().get_checkpoint()


def get_context() -> TrainContext:
    """Rank, world size and the rest of who this worker is."""
    return _current().context


def checkpoint_requested() -> bool:
    """True if the next `report()` should bring a checkpoint: the run is about to be resized or to leave a node, and a
    function that looks loses no step. Changes inside `report()` only, at the same report on every rank."""
    return _current().checkpoint_requested


def get_preemption_info() -> PreemptionInfo | None:
    """What has been announced to go, or None. Changes inside `report()` only."""
    return _current().preemption


def broadcast_from_rank_zero(data: Any) -> Any:
    """Rank 0's `data` (picklable), on every rank; all ranks have to call it. As `ray.train.collective`'s."""
    session = _current()
    mine = pickle.dumps(data) if session.context.rank == 0 else b""
    return pickle.loads(session.exchange(mine))


def barrier() -> None:
    """Wait until every rank is here. As `ray.train.collective.barrier`."""
    _current().exchange(b"")
