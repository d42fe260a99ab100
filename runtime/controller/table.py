"""What may follow what: the states of a run, and the literal table of the events that are legal in each and of where
they may lead. Pure.

    WAITING    no attempt; units are asked for, and an attempt starts when enough of them are usable
    STARTING   an attempt has been recorded and forked; not every rank is in the training function yet
    RUNNING    every rank is
    HOLDING    every rank is asked to stop at one report, so that no step is lost (protocols 4)
    STOPPING   the attempt is over: workers are being killed and reaped, staged uploads finished, the cause settled
    BACKOFF    a pause before the next attempt
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from shaketable.runtime import events as ev


class State(StrEnum):
    NEW = "NEW"
    WAITING = "WAITING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    HOLDING = "HOLDING"
    STOPPING = "STOPPING"
    BACKOFF = "BACKOFF"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    INTERRUPTED = "INTERRUPTED"
    FENCED = "FENCED"


NEW, WAITING, STARTING, RUNNING, HOLDING, STOPPING, BACKOFF, FINISHED, FAILED, INTERRUPTED, FENCED = State
N, W, S, R, H, P, B = NEW, WAITING, STARTING, RUNNING, HOLDING, STOPPING, BACKOFF
DONE, LOST, GONE, OUT = FINISHED, FAILED, INTERRUPTED, FENCED
# Where an event can lead that ends the attempt: to STOPPING, and through it where nobody is left to be stopped.
END = (P, W, S, B, DONE, LOST, GONE)


def _over(state: State) -> Mapping[type, tuple[State, ...]]:
    """The end is decided, and its records are on their way to the log. What else comes is nobody's business any more,
    unless the log cannot take them."""
    late = (
        ev.UnitPlaced, ev.AgentReady, ev.AgentLost, ev.AgentFailed, ev.NodesChanged, ev.TimerFired, ev.Interrupted,
    )  # fmt: skip
    return {**dict.fromkeys(late, (state,)), ev.LogFailed: (OUT, LOST)}


TRANSITIONS: Mapping[State, Mapping[type, tuple[State, ...]]] = {
    N: {
        ev.Begin: (W, DONE, LOST),  # which is the first of all
    },
    W: {
        ev.UnitPlaced: (W,), ev.AgentReady: (W, S), ev.AgentLost: (W,), ev.AgentFailed: (W, LOST),
        ev.NodesChanged: (W, S), ev.TimerFired: (W, S, B, LOST), ev.Interrupted: (GONE,), ev.LogFailed: (OUT, LOST),
    },
    S: {
        ev.UnitPlaced: (S,), ev.AgentReady: (S,), ev.AgentLost: (S, *END), ev.AgentFailed: (S,),
        ev.NodesChanged: (S, *END), ev.TimerFired: (S, *END), ev.WorkerEntered: (S, R, H), ev.WorkerFailed: (S, *END),
        ev.CheckpointBroken: (S, *END), ev.WorkersStopped: (S, *END), ev.StacksTaken: (S, *END), ev.LoopPaused: (S,),
        ev.Interrupted: END,
        ev.LogFailed: (OUT, LOST),
    },
    R: {
        ev.UnitPlaced: (R,), ev.AgentReady: (R, H), ev.AgentLost: (R, H, *END), ev.AgentFailed: (R,),
        ev.NodesChanged: (R, H, *END), ev.TimerFired: (R, H, *END), ev.ReportReceived: (R, *END),
        ev.UploadFinished: (R, *END), ev.UploadFailed: (R, *END), ev.HoldAnswered: (R,), ev.HoldReached: (R,),
        ev.WorkerFailed: (R, *END), ev.WorkerFinished: (R, *END), ev.WorkersStopped: (R, *END),
        ev.CheckpointBroken: (R, *END), ev.StacksTaken: (R, *END), ev.LoopPaused: (R,), ev.Interrupted: END,
        ev.LogFailed: (OUT, LOST),
    },
    H: {
        ev.UnitPlaced: (H,), ev.AgentReady: (H,), ev.AgentLost: (H, *END), ev.AgentFailed: (H,),
        ev.NodesChanged: (H, *END), ev.TimerFired: (H, R, *END), ev.ReportReceived: (H, R, *END),
        ev.UploadFinished: (H, R, *END), ev.UploadFailed: (H, R, *END), ev.HoldAnswered: (H,), ev.HoldReached: (H,),
        ev.WorkerFailed: (H, *END), ev.WorkerFinished: (R, *END), ev.WorkersStopped: (H, *END),
        ev.CheckpointBroken: (H, *END), ev.StacksTaken: (H, *END), ev.LoopPaused: (H,), ev.Interrupted: END,
        ev.LogFailed: (OUT, LOST),
    },
    P: {
        ev.UnitPlaced: (P,), ev.AgentReady: (P,), ev.AgentLost: END, ev.AgentFailed: (P,), ev.NodesChanged: END,
        ev.TimerFired: END, ev.ReportReceived: END, ev.UploadFinished: END, ev.UploadFailed: END,
        ev.WorkersStopped: END, ev.WorkerFailed: END, ev.WorkerFinished: (P,), ev.WorkerEntered: (P,),
        ev.HoldAnswered: (P,), ev.HoldReached: (P,), ev.CheckpointBroken: (P,), ev.StacksTaken: (P,),
        ev.LoopPaused: (P,), ev.Interrupted: (P,), ev.LogFailed: (OUT, LOST),
    },
    B: {
        ev.UnitPlaced: (B,), ev.AgentReady: (B,), ev.AgentLost: (B,), ev.AgentFailed: (B, LOST),
        ev.NodesChanged: (B,), ev.TimerFired: (B, W, S, LOST), ev.Interrupted: (GONE,), ev.LogFailed: (OUT, LOST),
    },
    DONE: _over(DONE), LOST: _over(LOST), GONE: _over(GONE), OUT: {},
}  # fmt: skip


class IllegalEvent(Exception):
    """The event cannot happen in this state, or its handler left the table: a bug in the runtime."""
