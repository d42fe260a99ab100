"""What can happen to a run (events) and what the controller can ask for (commands). Frozen values only; like the
records they are msgspec's, because they are made by the million.

A unit is what is leased together (one placement group); an agent is one worker's keeper on one node; a unit on
CPU/GPU has one agent. Every message about workers names its attempt, so that a late one is known as late.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from shaketable.runtime.log.records import AnyRecord

# What agents and workers say is an event as it comes.
from shaketable.runtime.transport.messages import CheckpointCorrupt as CheckpointCorrupt
from shaketable.runtime.transport.messages import HoldAnswered as HoldAnswered
from shaketable.runtime.transport.messages import HoldReached as HoldReached
from shaketable.runtime.transport.messages import UploadFailed as UploadFailed
from shaketable.runtime.transport.messages import UploadFinished as UploadFinished
from shaketable.runtime.transport.messages import WorkerEntered as WorkerEntered
from shaketable.runtime.transport.messages import WorkerEvent as WorkerEvent
from shaketable.runtime.transport.messages import WorkerFailed as WorkerFailed
from shaketable.runtime.transport.messages import WorkerFinished as WorkerFinished

UnitId = int
AgentId = int


class NodeView(msgspec.Struct, frozen=True, gc=False):
    """One node as Ray shows it. `drain_deadline_s`: on the clock whose `now` the controller is given; 0 for a drain
    without a deadline."""

    node_id: str
    alive: bool
    draining: bool = False
    drain_deadline_s: float = 0.0


# ---- events: capacity ----------------------------------------------------------------------------------------


class Begin(msgspec.Struct, frozen=True, gc=False):
    """The log has been opened by this driver; the controller may act."""


class UnitPlaced(msgspec.Struct, frozen=True, gc=False):
    """The unit's placement group has its place; its agents are being started there."""

    unit: UnitId
    node_ids: tuple[str, ...]


class AgentReady(msgspec.Struct, frozen=True, gc=False):
    """The agent has connected and its fork server is warm. `place`: which worker of its unit it is, from 0; on TPU in
    the order of the hosts' worker ids."""

    agent: AgentId
    unit: UnitId
    node_id: str
    place: int = 0


class AgentLost(msgspec.Struct, frozen=True, gc=False):
    """The agent's connection broke, its actor died, or it has been silent for `heartbeat_timeout_s`."""

    agent: AgentId
    detail: str


class AgentFailed(msgspec.Struct, frozen=True, gc=False):
    """An agent of the unit could not be started; the executor tries again."""

    unit: UnitId
    detail: str


class NodesChanged(msgspec.Struct, frozen=True, gc=False):
    """Ray's view of the nodes is another than before, or LookAtNodes had asked for it. `skipped`: why slices that
    there are do not count, one sentence each (TPU)."""

    nodes: tuple[NodeView, ...]
    skipped: tuple[str, ...] = ()


# ---- events: workers -----------------------------------------------------------------------------------------


class WorkersStopped(WorkerEvent, frozen=True, gc=False):
    """The agent has no child any more: killed or ended, and reaped."""

    rank: int


class ReportReceived(WorkerEvent, frozen=True, gc=False):
    """Rank's watermark: it has passed every report up to `index`. With `uploading`, a checkpoint of this rank for
    `index` is on its way and UploadFinished or UploadFailed follows."""

    rank: int
    index: int
    metrics: Mapping[str, Any]
    uploading: bool = False


class StacksTaken(WorkerEvent, frozen=True, gc=False):
    """Where the rank stands, in a few words: its innermost frame. Empty: it did not answer."""

    rank: int
    where: str


# ---- events: the rest ----------------------------------------------------------------------------------------

Timer = Literal[
    "settle",
    "resize",
    "uploads",
    "collateral",
    "backoff",
    "hold",
    "unit_wait",
    "commit",
    "hang",
    "notices",
    "capacity",
    "look",
    "quarantine",
]


class TimerFired(msgspec.Struct, frozen=True, gc=False):
    timer: Timer


class LoopPaused(msgspec.Struct, frozen=True, gc=False):
    """The executor's own loop did not turn for so long: nobody's silence counts in that time. With
    `silent` false it did, but could not tell workers to go on. `agents`: those that were connected then."""

    seconds: float
    silent: bool = True
    agents: frozenset[AgentId] = frozenset()


class Interrupted(msgspec.Struct, frozen=True, gc=False):
    """SIGINT or SIGTERM reached the driver. `detail`: no signal did, and why it has to go all the same."""

    signal: int
    detail: str = ""


class LogFailed(msgspec.Struct, frozen=True, gc=False):
    """The run log cannot be written any more: the storage is gone."""

    detail: str


class TakenOver(LogFailed, frozen=True, gc=False):
    """The run log is another's: a newer driver has taken the run over, and this one is fenced."""


Event = (
    Begin
    | UnitPlaced
    | AgentReady
    | AgentLost
    | AgentFailed
    | NodesChanged
    | WorkerEntered
    | WorkerFinished
    | WorkerFailed
    | CheckpointCorrupt
    | WorkersStopped
    | ReportReceived
    | UploadFinished
    | UploadFailed
    | HoldAnswered
    | HoldReached
    | StacksTaken
    | TimerFired
    | LoopPaused
    | Interrupted
    | LogFailed
    | TakenOver
)


# ---- commands ------------------------------------------------------------------------------------------------
# Executed strictly in order: what follows an AppendRecord happens only once the record is durable.


class RequestUnit(msgspec.Struct, frozen=True, gc=False):
    """Ask the cluster for one more unit: one pending placement group, which is also the autoscaler's demand.
    `selector`: labels that its nodes have to have; `avoid`: the ids of nodes that it is not to be on."""

    unit: UnitId
    selector: tuple[tuple[str, str], ...] = ()
    avoid: tuple[str, ...] = ()


class ProbeUnit(msgspec.Struct, frozen=True, gc=False):
    """Start a new agent where a lost one was: if it answers, the node is well."""

    unit: UnitId


class LookAtNodes(msgspec.Struct, frozen=True, gc=False):
    """Ask Ray anew; answered by NodesChanged in any case."""


class ReleaseUnit(msgspec.Struct, frozen=True, gc=False):
    """Give the unit back, agents and placement group."""

    unit: UnitId


class AppendRecord(msgspec.Struct, frozen=True, gc=False):
    record: AnyRecord


class StartAttempt(msgspec.Struct, frozen=True, gc=False):
    """Fork one worker per member, rank by rank. `resume` names the checkpoint to restore."""

    attempt: int
    members: tuple[AgentId, ...]
    resume: str | None
    first_index: int


class StopAttempt(msgspec.Struct, frozen=True, gc=False):
    """Kill every worker of the attempt that is still there; each agent answers WorkersStopped."""

    attempt: int


class TakeStacks(msgspec.Struct, frozen=True, gc=False):
    """Save the stacks of every rank; each agent answers StacksTaken."""

    attempt: int


class BeginHold(msgspec.Struct, frozen=True, gc=False):
    """Ask every rank how far it is, and to wait inside its next report."""

    attempt: int


class HoldAt(msgspec.Struct, frozen=True, gc=False):
    """Tell every rank to give a checkpoint at report `index` and to wait there."""

    attempt: int
    index: int


class CancelHold(msgspec.Struct, frozen=True, gc=False):
    """`at_s`: when that was decided; the workers stand still until they hear of it, which a record may put off."""

    attempt: int
    at_s: float


class NotifyPreemption(msgspec.Struct, frozen=True, gc=False):
    """What `get_preemption_info()` shows from the next report on, there in wall-clock time. `deadline_s` is on the
    controller's own clock."""

    attempt: int
    deadline_s: float
    node_ids: tuple[str, ...]


class DeleteCheckpoint(msgspec.Struct, frozen=True, gc=False):
    """Its record is already in the log."""

    checkpoint: str


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    """(Re)arm the named timer; at_s None disarms it."""

    timer: Timer
    at_s: float | None


class Warn(msgspec.Struct, frozen=True, gc=False):
    text: str


class FinishRun(msgspec.Struct, frozen=True, gc=False):
    """The run is over for this driver; everything leased is already given back."""

    outcome: Literal["finished", "failed", "interrupted", "fenced"]
    error: str | None = None
    metrics: Mapping[str, Any] = msgspec.field(default_factory=dict)
    signal: int = 0


Command = (
    RequestUnit
    | ProbeUnit
    | LookAtNodes
    | ReleaseUnit
    | AppendRecord
    | StartAttempt
    | StopAttempt
    | TakeStacks
    | BeginHold
    | HoldAt
    | CancelHold
    | NotifyPreemption
    | DeleteCheckpoint
    | SetTimer
    | Warn
    | FinishRun
)
