"""What can happen to a run (events) and what the controller can ask for (commands). Values only.

A unit is what is leased together (one placement group); an agent is one worker's keeper on one node; a unit on
CPU/GPU has one agent. Every message about workers names its attempt, so that a late one is known as late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from shaketable.runtime.records import AnyRecord, File

UnitId = int
AgentId = int


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as Ray shows it. `drain_deadline_s` is wall-clock seconds, 0 for a drain without a deadline."""

    node_id: str
    alive: bool
    draining: bool = False
    drain_deadline_s: float = 0.0


# ---- events: capacity ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """The log has been opened by this driver; the controller may act."""


@dataclass(frozen=True, slots=True)
class UnitPlaced:
    """The unit's placement group has its place; its agents are being started there."""

    unit: UnitId
    node_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AgentReady:
    """The agent has connected and its fork server is warm."""

    agent: AgentId
    unit: UnitId
    node_id: str


@dataclass(frozen=True, slots=True)
class AgentLost:
    """The agent's connection broke, its actor died, or it has been silent for `heartbeat_timeout_s`."""

    agent: AgentId
    detail: str


@dataclass(frozen=True, slots=True)
class AgentFailed:
    """An agent of the unit could not be started; the executor tries again."""

    unit: UnitId
    detail: str


@dataclass(frozen=True, slots=True)
class NodesChanged:
    nodes: tuple[NodeView, ...]


# ---- events: workers -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkerEntered:
    """The worker is about to call the training function."""

    attempt: int
    rank: int


@dataclass(frozen=True, slots=True)
class WorkerFinished:
    """The training function returned."""

    attempt: int
    rank: int


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """The worker ended without finishing. `error` is its traceback if it raised; `signal` what killed it, if any.
    `collateral`: it may only be the echo of a peer's end (broken collective, reset connection, SIGABRT)."""

    attempt: int
    rank: int
    detail: str
    error: str | None = None
    signal: int | None = None
    collateral: bool = False


@dataclass(frozen=True, slots=True)
class WorkersStopped:
    """The agent has no child any more: killed or ended, and reaped."""

    attempt: int
    rank: int


@dataclass(frozen=True, slots=True)
class ReportReceived:
    """Rank's watermark: it has passed every report up to `index`. With `uploading`, a checkpoint of this rank for
    `index` is on its way and UploadFinished or UploadFailed follows."""

    attempt: int
    rank: int
    index: int
    metrics: Mapping[str, Any]
    uploading: bool = False


@dataclass(frozen=True, slots=True)
class UploadFinished:
    attempt: int
    rank: int
    index: int
    files: tuple[File, ...]


@dataclass(frozen=True, slots=True)
class UploadFailed:
    attempt: int
    rank: int
    index: int
    detail: str


@dataclass(frozen=True, slots=True)
class HoldAnswered:
    """The rank has returned from `returned` reports (a report index) and waits inside its next one."""

    attempt: int
    rank: int
    returned: int


@dataclass(frozen=True, slots=True)
class HoldReached:
    """The rank waits inside the report at which all were to stop."""

    attempt: int
    rank: int
    index: int


# ---- events: the rest ----------------------------------------------------------------------------------------

Timer = Literal["settle", "resize", "uploads", "collateral", "backoff", "hold", "unit_wait", "commit"]


@dataclass(frozen=True, slots=True)
class TimerFired:
    timer: Timer


@dataclass(frozen=True, slots=True)
class Interrupted:
    """SIGINT or SIGTERM reached the driver."""

    signal: int


@dataclass(frozen=True, slots=True)
class LogFailed:
    """The run log cannot be written any more: a newer driver has taken over (`fenced`), or the storage is gone."""

    detail: str
    fenced: bool


Event = (
    Begin | UnitPlaced | AgentReady | AgentLost | AgentFailed | NodesChanged | WorkerEntered | WorkerFinished
    | WorkerFailed | WorkersStopped | ReportReceived | UploadFinished | UploadFailed | HoldAnswered | HoldReached
    | TimerFired | Interrupted | LogFailed
)  # fmt: skip


# ---- commands ------------------------------------------------------------------------------------------------
# Executed strictly in order: what follows an AppendRecord happens only once the record is durable.


@dataclass(frozen=True, slots=True)
class RequestUnit:
    """Ask the cluster for one more unit: one pending placement group, which is also the autoscaler's demand."""

    unit: UnitId


@dataclass(frozen=True, slots=True)
class ProbeUnit:
    """Start a new agent where a lost one was: if it answers, the node is well."""

    unit: UnitId


@dataclass(frozen=True, slots=True)
class ReleaseUnit:
    """Give the unit back, agents and placement group."""

    unit: UnitId


@dataclass(frozen=True, slots=True)
class AppendRecord:
    record: AnyRecord


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Fork one worker per member, rank by rank. `resume` names the checkpoint to restore."""

    attempt: int
    members: tuple[AgentId, ...]
    resume: str | None
    first_index: int


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """Kill every worker of the attempt that is still there; each agent answers WorkersStopped."""

    attempt: int


@dataclass(frozen=True, slots=True)
class BeginHold:
    """Ask every rank how far it is, and to wait inside its next report."""

    attempt: int


@dataclass(frozen=True, slots=True)
class HoldAt:
    """Tell every rank to give a checkpoint at report `index` and to wait there."""

    attempt: int
    index: int


@dataclass(frozen=True, slots=True)
class CancelHold:
    attempt: int


@dataclass(frozen=True, slots=True)
class NotifyPreemption:
    """What `get_preemption_info()` shows from the next report on."""

    attempt: int
    deadline_s: float
    node_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteCheckpoint:
    """Its record is already in the log."""

    checkpoint: str


@dataclass(frozen=True, slots=True)
class SetTimer:
    """(Re)arm the named timer; at_s None disarms it."""

    timer: Timer
    at_s: float | None


@dataclass(frozen=True, slots=True)
class Warn:
    text: str


@dataclass(frozen=True, slots=True)
class FinishRun:
    """The run is over for this driver; everything leased is already given back."""

    outcome: Literal["finished", "failed", "interrupted", "fenced"]
    error: str | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    signal: int = 0


Command = (
    RequestUnit | ProbeUnit | ReleaseUnit | AppendRecord | StartAttempt | StopAttempt | BeginHold | HoldAt
    | CancelHold | NotifyPreemption | DeleteCheckpoint | SetTimer | Warn | FinishRun
)  # fmt: skip
