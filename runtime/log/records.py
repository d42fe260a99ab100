"""The records of the run log: the only truth about a run. Everything else is folded from them (`run_state.py`).

Each record says which term wrote it. `id` is random and tells a writer that lost an answer its own record from
somebody else's at the same number (docs/architecture.md, "Run log").
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

from shaketable.runtime.storage.file import File

SCHEMA = 1

Account = Literal["max_failures", "max_preemption_failures", "max_start_failures"]
ACCOUNTS: tuple[Account, ...] = get_args(Account)
Cause = Literal[
    "finished",
    "worker_error",
    "worker_death",
    "node_lost",
    "hung",
    "preempted",
    "start_failed",
    "resized",
    "driver_lost",
    "interrupted",
    "checkpoint_corrupt",
    "storage_outage",
]


# Calls to the storage that failed and were made again since the attempt before: who ("driver", "rank 0") -> kind -> how
# many. The driver's include what opened the run; the append of the record itself is not in it any more.
Retried = dict[str, dict[str, int]]


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """`id` and `at_s` (wall clock, for people) are set by the run log when it appends."""

    term: int
    id: str = ""
    at_s: float = 0.0


class Opened(Record, frozen=True, kw_only=True, tag="opened"):
    """A driver has taken the run over. `reopened`: the run had failed; its budgets start afresh.
    `configuration` is the whole configuration as JSON; `changed` names the keys that differ from the term before."""

    schema: int = SCHEMA
    configuration: dict[str, Any]
    changed: list[str] = []
    reopened: bool = False


class MemberRecord(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    node_id: str


class AttemptStarted(Record, frozen=True, kw_only=True, tag="attempt_started"):
    """`attempt` counts from 1 over the whole run. `resume` names the committed checkpoint, None: from scratch.
    The first report of this attempt has index `first_index`."""

    attempt: int
    world_size: int
    members: list[MemberRecord]
    resume: str | None
    first_index: int
    # where the run has tiers
    tier: str = ""
    # why this size: the scaling decision's own words
    reason: str = ""


class CheckpointCommitted(Record, frozen=True, kw_only=True, tag="checkpoint_committed"):
    """From here on the run resumes from `checkpoint` (a directory name below `<run>/checkpoints/`)."""

    attempt: int
    index: int
    checkpoint: str
    files: list[File]
    metrics: dict[str, Any]


class AttemptEnded(Record, frozen=True, kw_only=True, tag="attempt_ended"):
    """Every attempt ends exactly once. `account` is what the ending is charged to, None: nothing. `settled_s`: when the
    controller settled that, by its driver's wall clock; what is counted over a time is counted by this."""

    attempt: int
    cause: Cause
    account: Account | None
    detail: str = ""
    rank: int | None = None
    node_id: str | None = None
    settled_s: float = 0.0
    retried: Retried = {}


class NodeQuarantined(Record, frozen=True, kw_only=True, tag="node_quarantined"):
    """Nothing is to run on the node before `until_s` (wall clock): so many `failures`, that of the attempt that ended
    last included, named it."""

    node_id: str
    failures: int
    until_s: float


class TierChanged(Record, frozen=True, kw_only=True, tag="tier_changed"):
    """From here on the run asks for units of the tier of that name. What was spent on the one before counts no more."""

    tier: str
    reason: str


class CheckpointDeleted(Record, frozen=True, kw_only=True, tag="checkpoint_deleted"):
    """Appended before the first byte is touched."""

    checkpoint: str


class CheckpointQuarantined(Record, frozen=True, kw_only=True, tag="checkpoint_quarantined"):
    """The storage has given something else than was committed, twice (`detail`). Nothing resumes from it any more; its
    files stay where they are, for people to look at."""

    checkpoint: str
    detail: str = ""


class CheckpointReinstated(Record, frozen=True, kw_only=True, tag="checkpoint_reinstated"):
    """A relaunch has found every checkpoint quarantined, has verified this one again, and it is whole: the run may
    resume from it. `commit` is its record, as it was."""

    commit: CheckpointCommitted


class Uncommitted(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that the last attempt handed over with report `index`, and why no commit came of it."""

    index: int
    detail: str


class RunFinished(Record, frozen=True, kw_only=True, tag="run_finished"):
    """`metrics`: what rank 0 reported last."""

    metrics: dict[str, Any]
    uncommitted: list[Uncommitted] = []


class RunFailed(Record, frozen=True, kw_only=True, tag="run_failed"):
    error: str


AnyRecord = (
    Opened
    | AttemptStarted
    | CheckpointCommitted
    | AttemptEnded
    | NodeQuarantined
    | TierChanged
    | CheckpointDeleted
    | CheckpointQuarantined
    | CheckpointReinstated
    | RunFinished
    | RunFailed
)
