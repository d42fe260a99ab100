"""Short names for the records of a run log, for tests that write them by the dozen."""

from __future__ import annotations

from typing import Any

from shaketable.runtime.log.records import (
    Account,
    AttemptEnded,
    AttemptStarted,
    Cause,
    CheckpointCommitted,
    CheckpointDeleted,
    CheckpointQuarantined,
    MemberRecord,
    Opened,
)
from shaketable.runtime.log.run_state import checkpoint_name
from shaketable.runtime.storage.file import File

CONFIGURATION: dict[str, Any] = {
    "framework": "torch",
    "accelerator": "CPU",
    "topology": None,
    "train_loop_config": {"lr": 0.1, "layers": [1, 2]},
    "max_failures": 0,
}


def opened(term: int = 1, reopened: bool = False) -> Opened:
    return Opened(term=term, configuration=CONFIGURATION, reopened=reopened)


def started(attempt: int, term: int = 1, resume: str | None = None, first_index: int = 1) -> AttemptStarted:
    members = [MemberRecord(rank=0, node_id="n0")]
    return AttemptStarted(
        term=term, attempt=attempt, world_size=1, members=members, resume=resume, first_index=first_index
    )


def committed(index: int, attempt: int = 1, term: int = 1, files: list[File] | None = None) -> CheckpointCommitted:
    name = checkpoint_name(index, term, attempt)
    return CheckpointCommitted(
        term=term, attempt=attempt, index=index, checkpoint=name, files=files or [], metrics={"step": index}
    )


def ended(
    attempt: int, cause: Cause = "worker_death", account: Account | None = "max_failures", term: int = 1
) -> AttemptEnded:
    return AttemptEnded(term=term, attempt=attempt, cause=cause, account=account)


def deleted(index: int, attempt: int = 1, term: int = 1) -> CheckpointDeleted:
    return CheckpointDeleted(term=term, checkpoint=checkpoint_name(index, 1, attempt))


def quarantined(index: int, attempt: int = 1, term: int = 1) -> CheckpointQuarantined:
    return CheckpointQuarantined(term=term, checkpoint=checkpoint_name(index, 1, attempt), detail="bad")
