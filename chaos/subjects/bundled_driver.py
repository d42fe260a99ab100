"""The driver's end of the subject `bundled`: shaketable's own trainer around the job, and a callback that testifies
each record of the run log as it becomes durable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shaketable.chaos.history import (
    AttemptEnded,
    AttemptStarted,
    CheckpointDeleted,
    Committed,
    Event,
    Member,
    StateChanged,
    TermBegan,
)
from shaketable.chaos.plan import Outcome
from shaketable.chaos.subjects.jobs import Job, uses_torch
from shaketable.chaos.subjects.protocol import Launch
from shaketable.chaos.subjects.witnessed import Witnessed
from shaketable.chaos.witness import Witness
from shaketable.runtime import ElasticTrainer, FailureConfig, RunConfig, ScalingConfig, TorchTrainer, records
from shaketable.runtime.errors import Fenced
from shaketable.runtime.fold import RunState, fold
from shaketable.runtime.runlog import RunLog
from shaketable.runtime.storage import locate_run

# What the wrapper needs in the worker, imported before the fork: the testimony's cost is not the subject's.
PRELOAD = ("shaketable.chaos.subjects.witnessed", "shaketable.chaos.subjects.bundled_worker")


class Scribe:
    """Tells the harness what the controller has written down, and in which state it is."""

    def __init__(self, log: RunLog, witness: Witness) -> None:
        self._log = log
        self._witness = witness
        self.term = 0

    def begin(self) -> None:
        """A finished run is not taken over again, and its driver writes no record to tell of."""
        state = fold(self._log.read())
        if state.outcome == "finished":
            self.term = state.term
            self._witness.testify(TermBegan(term=state.term, spent=spent(state), finished=True))

    def on_record(self, number: int, record: records.AnyRecord) -> None:
        if isinstance(record, records.Opened):
            self.term = record.term
            state = fold(upto(number, self._log.read()))
            self._witness.testify(TermBegan(term=record.term, spent=spent(state)))
        elif (event := as_event(number, record)) is not None:
            self._witness.testify(event)

    def on_state(self, term: int, state: str) -> None:
        self._witness.testify(StateChanged(term=term, state=state))


Numbered = Iterable[tuple[int, records.AnyRecord]]


def upto(number: int, numbered: Numbered) -> Numbered:
    return ((at, record) for at, record in numbered if at <= number)


def spent(state: RunState) -> dict[str, int]:
    return {account: count for account, count in state.spent.items() if count}


def as_event(number: int, record: records.AnyRecord) -> Event | None:
    """The record as the history calls it; None for the end of the run, which is told by what `fit()` gives."""
    match record:
        case records.AttemptStarted():
            return _started(record)
        case records.CheckpointCommitted(term=term, attempt=attempt, index=index, checkpoint=name):
            return Committed(term=term, attempt=attempt, index=index, checkpoint=name, number=number)
        case records.CheckpointDeleted(term=term, checkpoint=name):
            return CheckpointDeleted(term=term, checkpoint=name)
        case records.AttemptEnded(term=term, attempt=attempt, cause=cause, account=account):
            return AttemptEnded(
                term=term,
                attempt=attempt,
                cause=cause,
                account=account,
                detail=record.detail,
                rank=record.rank,
            )
        case _:
            return None


def _started(record: records.AttemptStarted) -> AttemptStarted:
    """The log knows no pids (0): the workers testify theirs."""
    return AttemptStarted(
        term=record.term,
        attempt=record.attempt,
        world_size=record.world_size,
        members=[Member(rank=member.rank, node_id=member.node_id, pid=0) for member in record.members],
        resume=record.resume,
        resume_index=record.first_index - 1 if record.resume is not None else None,
    )


class BundledRun:
    def __init__(self, launch: Launch, job: Job, witness: Witness) -> None:
        self._scribe = Scribe(RunLog(locate_run(launch.storage_path, launch.name)), witness)
        self._trainer = _trainer(launch, job, self._scribe)

    @property
    def term(self) -> int:
        return self._scribe.term

    def fit(self) -> dict[str, Any] | None:
        self._scribe.begin()
        return self._trainer.fit().metrics

    def outcome(self, error: Exception) -> Outcome:
        """A driver that was superseded says nothing about the run, which goes on under the newer one."""
        return "interrupted" if isinstance(error, Fenced) else "failed"


def _trainer(launch: Launch, job: Job, scribe: Scribe) -> ElasticTrainer:
    configuration = launch.effective
    kind = TorchTrainer if uses_torch(job) else ElasticTrainer
    return kind(
        Witnessed(job, "bundled", launch.witness, configuration.step_key),
        train_loop_config=configuration.job_config,
        scaling_config=ScalingConfig(
            num_workers=configuration.num_workers,
            elastic_resize_monitor_interval_s=configuration.elastic_resize_monitor_interval_s,
        ),
        run_config=RunConfig(
            name=launch.name,
            storage_path=launch.storage_path,
            failure_config=FailureConfig(
                max_failures=configuration.max_failures,
                max_preemption_failures=configuration.max_preemption_failures,
            ),
            heartbeat_timeout_s=configuration.heartbeat_timeout_s,
            callbacks=[scribe],
            preload=PRELOAD,
        ),
    )


def run(launch: Launch, job: Job, witness: Witness) -> BundledRun:
    return BundledRun(launch, job, witness)
