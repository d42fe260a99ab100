"""What the training function sees: `report`, `get_checkpoint`, `get_context`, and what Ray Train calls a session.

A worker has one session and one thread that may use it. What the controller wants takes effect inside `report()` only,
so that it changes at the same report index on every rank (docs/architecture.md, "Hold").
"""

from __future__ import annotations

import os
import pickle
import threading
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, Protocol

from shaketable.runtime.checkpoint import (
    Checkpoint,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
    commit_at,
    reported_checkpoints,
)
from shaketable.runtime.checkpoints.store import stage
from shaketable.runtime.context import PreemptionInfo, TrainContext
from shaketable.runtime.errors import ConfigurationError, ShaketableError, StorageError
from shaketable.runtime.handover import Handover, UploadFunction, handover
from shaketable.runtime.log.metrics import encode
from shaketable.runtime.log.run_state import checkpoint_name
from shaketable.runtime.refusals import ARGUMENTS, refused
from shaketable.runtime.text import described
from shaketable.runtime.transport import messages as msg
from shaketable.runtime.transport.wire import Channel, ChannelClosed


class Listener(Protocol):
    """Watches the session of this process; see `listeners`."""

    def before_report(self, index: int, metrics: dict[str, Any], checkpoint: Checkpoint | None) -> None: ...

    def after_report(self, index: int) -> None: ...


listeners: list[Listener] = []
"""Called around every `report()` of this process, on the training function's own thread."""


class SessionError(ShaketableError, RuntimeError):
    """The session API was used where there is no session, or against its rules."""


class Session:
    """The worker's end of everything. The training function's thread calls it; a second thread hears what the agent
    says. What both touch is guarded by `_changed`; `_returned` is the index of the last report left, by a return or
    by an exception."""

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
            run_path=task.run_path,
            node_ip=task.node_ip,
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
        # What the agent said of the checkpoint of the report that waits for it: by index, the error or None.
        self._uploads: dict[int, str | None] = {}
        # The checkpoint that this rank uploaded last: its index.
        self._newest: int | None = None
        self._settled = fork.first_index - 1
        # Of checkpoints that nobody waits for (ASYNC), by index; raised once by a later report.
        self._failed_uploads: dict[int, str] = {}
        self._holding = False
        self._hold_at: int | None = None
        # reports at which a checkpoint was asked for
        self._requested: set[int] = set()
        self._reached = False
        self._announced: PreemptionInfo | None = None
        self._round = 0
        self._delivered: dict[int, bytes] = {}

    def listen(self, messages: Iterable[msg.AnyMessage]) -> None:
        """Take in what has arrived already, and start to hear the rest."""
        self._take_in(messages)
        threading.Thread(target=self._hear, name="shaketable-session", daemon=True).start()

    def abandon(self) -> None:
        """In a forked child of the worker: the connection is the worker's alone."""
        self._channel.close()

    def send(self, message: msg.AnyMessage) -> None:
        with self._sending:
            self._channel.send(message)
            self._channel.drain()

    # ---- report

    def report(
        self,
        metrics: dict[str, Any],
        checkpoint: Checkpoint | None,
        mode: CheckpointUploadMode,
        asked: Callable[[], Handover] | None = None,
    ) -> None:
        """Whatever is raised in here, the index is consumed, and the rank votes against the commit of a report that it
        has failed (promise commit-7). Otherwise the next report would write into the directory of this one, and all
        later commits would mix the steps of this rank with those of its peers."""
        index, failed = self._returned + 1, True
        try:
            for listener in listeners:
                listener.before_report(index, metrics, checkpoint)
            # arguments that are refused are a report that has failed
            how = Handover(mode) if asked is None else asked()
            self._hand_over(index, metrics, checkpoint, how)
            failed = False
        except BaseException as error:
            self._vote_no(index, error)
            raise
        finally:
            self._leave(index, failed=failed)
        for listener in listeners:
            listener.after_report(index)
        self._raise_failed_uploads(before=index)

    def _hand_over(self, index: int, metrics: dict[str, Any], given: Checkpoint | None, how: Handover) -> None:
        encoded = encode(metrics)
        source: str | None = None
        if given is not None:
            source = how.source(how.brought(given, index))
            if how.staged:
                source = self._stage(index, Path(source), how)
        self.send(
            msg.Report(
                attempt=self._attempt,
                rank=self._rank,
                index=index,
                metrics=encoded,
                directory=source,
                staged=how.staged and source is not None,
            )
        )
        if given is None:
            return
        if not how.staged:
            self._wait_for_upload(index)
            self._newest = index
        how.tidy(given)

    def _stage(self, index: int, source: Path, how: Handover) -> str:
        try:
            return str(stage(source, self._staging, take=how.may_take))
        except StorageError as error:
            raise OSError(f"the checkpoint of report {index} could not be staged: {error}") from error

    def _wait_for_upload(self, index: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: index in self._uploads)
            error = self._uploads[index]
        if error is not None:
            raise OSError(f"the checkpoint of report {index} could not be uploaded: {error}")

    def _vote_no(self, index: int, error: BaseException) -> None:
        """Of a failed upload the agent has told the driver itself."""
        if not self._uploads.get(index):
            detail = f"report() raised {described(error)}"
            self.send(msg.UploadFailed(attempt=self._attempt, rank=self._rank, index=index, detail=detail))

    def _leave(self, index: int, *, failed: bool) -> None:
        """As soon as the rules of the hold allow it. An exception that comes meanwhile, from a signal's handler, waits:
        a rank that left early would miss that a checkpoint is requested, and the commit would lack its part."""
        late: BaseException | None = None
        with self._changed:
            while True:
                try:
                    self._changed.wait_for(lambda: self._may_leave(index, failed=failed))
                    break
                except ChannelClosed:
                    raise
                except BaseException as error:  # noqa: BLE001 - it is raised below
                    late = error
            self._returned = index
            self._uploads.clear()
            self._requested.discard(index)
            self.checkpoint_requested = index + 1 in self._requested
            self.preemption = self._announced
        if late is not None:
            raise late

    def _raise_failed_uploads(self, before: int) -> None:
        """Not that of report `before` itself, however soon the storage refused it: the last report of a function would
        raise or not, as chance has it."""
        with self._changed:
            earlier = [index for index in self._failed_uploads if index < before]
            details = [self._failed_uploads.pop(index) for index in earlier]
        if details:
            raise OSError(f"{'; '.join(details)}. (This report itself is done)")

    def _may_leave(self, index: int, *, failed: bool) -> bool:
        """The rules of the hold (docs/architecture.md): having answered, wait to be told; then stop at the common
        report, until the attempt is stopped, which kills us, or the hold is cancelled. Who has failed the common report
        says that it is there, for the sake of its peers, and goes: there is nothing to wait for."""
        if not self._holding:
            return True
        if index == self._hold_at and not self._reached:
            self.send(msg.HoldReached(attempt=self._attempt, rank=self._rank, index=index))
            self._reached = True
        return self._hold_at is not None and (failed or index != self._hold_at)

    # ---- the rest of the API

    def get_checkpoint(self) -> Checkpoint | None:
        with self._changed:
            newest = self._newest
        if newest is not None:
            return commit_at(self.context.run_path, checkpoint_name(newest, self.context.term, self.context.attempt))
        if self.context.resume is None:
            return None
        with self._changed:
            self._changed.wait_for(lambda: self._restored is not None)
        assert self._restored is not None
        if self._restored.path is None:
            raise OSError(f"the checkpoint to resume from could not be restored: {self._restored.error}")
        return Checkpoint(self._restored.path, committed=True)

    def reported_checkpoints(self, timeout_s: float | None) -> list[ReportedCheckpoint]:
        if not self.settled(timeout_s):
            raise TimeoutError(
                f"get_all_reported_checkpoints: the reports up to {self._returned} are not settled after {timeout_s} s:"
                " other ranks have not made them, or their uploads go on"
            )
        return reported_checkpoints(self.context.run_path)

    def settled(self, within_s: float | None) -> bool:
        """Wait for it: every rank has made the reports that this one has made, and what they brought is committed or
        given up."""
        with self._changed:
            asked = self._returned
            if self._settled >= asked:
                return True
        self.send(msg.AskSettled(attempt=self._attempt, rank=self._rank, index=asked))
        with self._changed:
            return self._changed.wait_for(lambda: self._settled >= asked, within_s)

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
            # No agent, no worker.
            os._exit(1)
        except BaseException:  # noqa: BLE001 - the outermost of this thread: without it nobody is heard any more
            traceback.print_exc()
            os._exit(1)

    def _take_in(self, messages: Iterable[msg.AnyMessage]) -> None:
        with self._changed:
            for message in messages:
                self._on(message)
            self._changed.notify_all()

    def _on(self, message: msg.AnyMessage) -> None:
        match message:
            case msg.Restored():
                self._restored = message
            case msg.UploadDone():
                self._on_upload_done(message)
            case msg.HoldBegin():
                self._holding, self._hold_at, self._reached = True, None, False
                self.send(msg.HoldAnswered(attempt=self._attempt, rank=self._rank, returned=self._returned))
            case msg.HoldUntil(index=index):
                self._hold_at = index
                self._requested.add(index)
            case msg.HoldCancelled():
                # What was requested stays so: a peer may have returned from its report before this came.
                self._holding, self._hold_at = False, None
            case msg.Preemption():
                self._announced = PreemptionInfo(message.deadline_s, tuple(message.node_ids), message.ranks)
            case msg.Settled(index=index):
                self._settled = max(self._settled, index)
            case msg.Delivery():
                self._delivered[message.round] = message.data

    def _on_upload_done(self, done: msg.UploadDone) -> None:
        """A report that was left by an exception does not wait any more, and has said no."""
        if not done.staged:
            self._uploads[done.index] = done.error
        elif done.error is None:
            self._newest = max(done.index, self._newest or 0)
        else:
            detail = f"the checkpoint of report {done.index} could not be uploaded: {done.error}"
            self._failed_uploads[done.index] = detail


_session: Session | None = None
# in a forked child of the worker: who that is
_parent: TrainContext | None = None


def start(session: Session) -> None:
    """Make `session` the one of this process."""
    global _session
    _session = session


def _forked() -> None:
    """In a forked child of the worker, a DataLoader's for instance: what it said would be taken for the worker's. It
    still knows the rank, by which it may choose its samples."""
    global _session, _parent
    session, _session = _session, None
    if session is not None:
        _parent = session.context
        session.abandon()


os.register_at_fork(after_in_child=_forked)


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
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
    delete_local_checkpoint_after_upload: bool | None = None,
    checkpoint_upload_fn: UploadFunction | None = None,
    validation: Any = False,
) -> None:
    """One step of the training function: its metrics (numbers, strings, lists and dicts of them) and, from any ranks
    that have one, a checkpoint. Every rank reports as often as every other. Follows `ray.train.report`.

    * `checkpoint_dir_name`: what `checkpoint_upload_fn` is told. A commit has a name of the runtime's own.
    * `delete_local_checkpoint_after_upload`: True: the directory goes. False: it stays as it is. None: it stays, and
      ASYNC takes its entries away.
    * `checkpoint_upload_fn(checkpoint, name)`: called before `report()` returns, with every mode. It puts the files
      where this node can read them, and returns the Checkpoint of that place; a copy of it becomes the commit.
    * `validation`: refused.

    Raises OSError if a checkpoint could not be staged or uploaded, of this report or (ASYNC) of an earlier one, and
    TypeError for metrics that cannot be recorded, ValueError for arguments that are refused. A report that raises
    counts as made: do not make it again, go on with the next one. Its checkpoint is not committed, unless the error
    speaks of an earlier one.
    """

    def asked() -> Handover:
        refused("report", "validation", validation)
        return handover(
            checkpoint_upload_mode, checkpoint_dir_name, delete_local_checkpoint_after_upload, checkpoint_upload_fn
        )

    _current().report(metrics, checkpoint, checkpoint_upload_mode, asked)


def get_checkpoint() -> Checkpoint | None:
    """The newest: what this rank's reports of this attempt have uploaded last; before that the checkpoint to resume
    from, verified and restored once per node; None at the very start of a run."""
    return _current().get_checkpoint()


def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED, timeout_s: float | None = None
) -> list[ReportedCheckpoint]:
    """The commits that are kept, oldest first, once all ranks have made the reports that this rank has made, and their
    checkpoints are committed or given up. Nothing is validated, so both modes are the same. Raises TimeoutError."""
    CheckpointConsistencyMode(getattr(consistency_mode, "value", consistency_mode))
    return _current().reported_checkpoints(timeout_s)


def get_dataset_shard(dataset_name: str | None = None) -> NoReturn:
    """Refused, with what to do instead (ConfigurationError)."""
    raise ConfigurationError(f"get_dataset_shard({dataset_name!r}): {ARGUMENTS['ElasticTrainer']['datasets'].instead}")


def get_context() -> TrainContext:
    """Rank, world size and the rest of who this worker is; also in its forked children."""
    return _parent if _parent is not None else _current().context


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
