"""What driver, agents and workers say to each other, as msgpack frames. Nothing here is ever unpickled by the
receiver of a message, except by a worker, from an agent it was forked for.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shaketable.runtime.log.records import CheckpointCommitted
from shaketable.runtime.storage.file import File
from shaketable.runtime.text import told


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """What all have in common: the kind, as a tag."""


# ---- driver -> agent -----------------------------------------------------------------------------------------


class Setup(Message, frozen=True, kw_only=True, tag="setup"):
    """Everything an agent needs once. `task` is the cloudpickled (backend, function, config) of the run; `run_id` the
    id of the run's first record, which the agent has to find in storage before it believes or writes anything there."""

    task: bytes
    run_path: str
    run_key: str
    name: str
    preload: list[str]
    sys_path: list[str]
    heartbeat_s: float
    lease_s: float
    storage_outage_s: float
    staging_bytes_max: int | None
    run_id: str = ""
    # of the workers, beside what their agent has
    environment: dict[str, str] = {}


class Ping(Message, frozen=True, kw_only=True, tag="ping"):
    """The driver is there."""


class Fork(Message, frozen=True, kw_only=True, tag="fork"):
    """Fork the worker of `rank`; `resume` is the commit to restore first."""

    term: int
    attempt: int
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    first_index: int
    resume: CheckpointCommitted | None


class Kill(Message, frozen=True, kw_only=True, tag="kill"):
    """Kill and reap the worker of `attempt`, if it is still there; answered by Stopped in any case."""

    attempt: int


class TakeStacks(Message, frozen=True, kw_only=True, tag="take_stacks"):
    """Save the stacks of the worker of `attempt`; answered by Stacks, also where there is none to be had."""

    attempt: int


class Shutdown(Message, frozen=True, kw_only=True, tag="shutdown"):
    """Leave. `final`: the run is over, its cache on this node can go."""

    final: bool


# ---- driver -> worker, passed on by the agent ----------------------------------------------------------------


class HoldBegin(Message, frozen=True, kw_only=True, tag="hold_begin"):
    attempt: int


class HoldUntil(Message, frozen=True, kw_only=True, tag="hold_until"):
    attempt: int
    index: int


class HoldCancelled(Message, frozen=True, kw_only=True, tag="hold_cancelled"):
    attempt: int


class Preemption(Message, frozen=True, kw_only=True, tag="preemption"):
    """`deadline_s`: wall clock. `ranks`: by node, those on it."""

    attempt: int
    deadline_s: float
    node_ids: list[str]
    ranks: dict[str, list[int]] = {}


class Delivery(Message, frozen=True, kw_only=True, tag="delivery"):
    """Round `round` of the control collective is complete; `data` is what rank 0 gave."""

    attempt: int
    round: int
    data: bytes


class Settled(Message, frozen=True, kw_only=True, tag="settled"):
    """All reports up to `index` are made by all ranks, and those with a checkpoint are committed or given up."""

    attempt: int
    index: int


# ---- agent -> worker -----------------------------------------------------------------------------------------


class Task(Message, frozen=True, kw_only=True, tag="task"):
    """First message to a worker."""

    fork: Fork
    task: bytes
    name: str
    node_id: str
    node_ip: str
    run_path: str
    staging: str


class Restored(Message, frozen=True, kw_only=True, tag="restored"):
    """Where the checkpoint to resume from lies on this node, or why it could not be restored."""

    path: str | None
    error: str | None = None


class UploadDone(Message, frozen=True, kw_only=True, tag="upload_done"):
    """`staged`: as in its Report; nobody waits for this answer."""

    index: int
    error: str | None = None
    staged: bool = False


# ---- agent -> driver, mostly passed on from the worker -------------------------------------------------------


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """First message of an agent."""

    agent: int
    unit: int
    node_id: str
    pid: int
    place: int = 0


class Ready(Message, frozen=True, kw_only=True, tag="ready"):
    """The fork server is warm."""


class Unfit(Message, frozen=True, kw_only=True, tag="unfit"):
    """The agent cannot do its work here; it leaves."""

    detail: str


class Beat(Message, frozen=True, kw_only=True, tag="beat"):
    pass


class Retried(Message, frozen=True, kw_only=True, tag="retried"):
    """What this agent has had to ask of the storage again since it last said so, by kind of call."""

    counts: dict[str, int]


class Stopped(Message, frozen=True, kw_only=True, tag="stopped"):
    """No worker of the attempt is left here."""

    attempt: int


class Stacks(Message, frozen=True, kw_only=True, tag="stacks"):
    """`text`: the stacks of all threads; empty if the worker did not answer. `where`: the innermost frame."""

    attempt: int
    rank: int
    text: str
    where: str


class Report(Message, frozen=True, kw_only=True, tag="report"):
    """`metrics` is JSON. `directory`: a checkpoint of this rank to upload; `staged`: it is the agent's to delete."""

    attempt: int
    rank: int
    index: int
    metrics: bytes
    directory: str | None = None
    staged: bool = False


class AskSettled(Message, frozen=True, kw_only=True, tag="ask_settled"):
    """The rank waits until the reports up to `index` are settled; answered by Settled."""

    attempt: int
    rank: int
    index: int


class Contribution(Message, frozen=True, kw_only=True, tag="contribution"):
    """The rank has entered round `round` of the control collective; rank 0's `data` is what all will get."""

    attempt: int
    rank: int
    round: int
    data: bytes = b""


# ---- what a worker did, or what its agent says of it; to the driver, and there the controller's events ----------


class WorkerEvent(msgspec.Struct, frozen=True, gc=False, tag_field="kind", omit_defaults=True):
    """About a worker of `attempt`. One about an attempt that is over came late."""

    attempt: int


class WorkerEntered(WorkerEvent, frozen=True, gc=False, tag="entered"):
    """The worker is about to call the training function."""

    rank: int


class WorkerFinished(WorkerEvent, frozen=True, gc=False, tag="finished"):
    """The training function returned."""

    rank: int


class WorkerFailed(WorkerEvent, frozen=True, gc=False, tag="failed"):
    """The worker ended without finishing: told by the worker with its exception, by the agent once it is reaped.
    `error` is its traceback if it raised; `signal` what killed it, if any. `collateral`: it may only be the echo of a
    peer's end (broken collective, reset connection, SIGABRT). `fatal`: every attempt would fail like this."""

    rank: int
    detail: str
    error: str | None = None
    signal: int | None = None
    collateral: bool = False
    fatal: bool = False


class CheckpointCorrupt(WorkerEvent, frozen=True, gc=False, tag="broken"):
    """What `rank` was to resume from is not what was committed; the storage gave it twice (`detail`). With `outage`,
    the storage or the node's disk has failed for too long."""

    rank: int
    checkpoint: str
    detail: str
    outage: bool = False


class UploadFinished(WorkerEvent, frozen=True, gc=False, tag="uploaded"):
    rank: int
    index: int
    files: tuple[File, ...]


class UploadFailed(WorkerEvent, frozen=True, gc=False, tag="upload_failed"):
    """`outage`: it has been tried for `storage_outage_s`, and the staged files are kept."""

    rank: int
    index: int
    detail: str
    outage: bool = False


class HoldAnswered(WorkerEvent, frozen=True, gc=False, tag="hold_answer"):
    """The rank has returned from `returned` reports (a report index) and waits inside its next one."""

    rank: int
    returned: int


class HoldReached(WorkerEvent, frozen=True, gc=False, tag="hold_reached"):
    """The rank waits inside the report at which all were to stop."""

    rank: int
    index: int


# ---- agent <-> fork server -----------------------------------------------------------------------------------


class Warm(Message, frozen=True, kw_only=True, tag="warm"):
    """To the fork server: import these, then answer Ready."""

    preload: list[str]
    sys_path: list[str]
    environment: dict[str, str] = {}


class ForkChild(Message, frozen=True, kw_only=True, tag="fork_child"):
    """With the worker's end of its channel as file descriptor."""

    attempt: int


class Forked(Message, frozen=True, kw_only=True, tag="forked"):
    attempt: int
    pid: int


class Reaped(Message, frozen=True, kw_only=True, tag="reaped"):
    """`status` as from os.waitpid. Its descendants are gone too."""

    attempt: int
    pid: int
    status: int


AnyMessage = (
    Setup
    | Ping
    | Fork
    | Kill
    | TakeStacks
    | Shutdown
    | HoldBegin
    | HoldUntil
    | HoldCancelled
    | Preemption
    | Delivery
    | Settled
    | Task
    | Restored
    | UploadDone
    | Hello
    | Ready
    | Unfit
    | Beat
    | Retried
    | WorkerEntered
    | WorkerFinished
    | WorkerFailed
    | CheckpointCorrupt
    | Stopped
    | Stacks
    | Report
    | UploadFinished
    | UploadFailed
    | HoldAnswered
    | HoldReached
    | AskSettled
    | Contribution
    | Warm
    | ForkChild
    | Forked
    | Reaped
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)


def encode(message: AnyMessage) -> bytes:
    """Never refuses a text: what is not UTF-8, in a user's exception for instance, is escaped."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        return _encoder.encode(_as_utf8(msgspec.to_builtins(message, builtin_types=(bytes,))))


def _as_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return told(value)
    if isinstance(value, dict):
        return {key: _as_utf8(item) for key, item in value.items()}
    return [_as_utf8(item) for item in value] if isinstance(value, list | tuple) else value


def decode(data: bytes | bytearray | memoryview) -> AnyMessage:
    return _decoder.decode(data)
