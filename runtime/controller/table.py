"""The life of a run: its states, and the two literal tables of what may follow what. Pure.

    NEW          the log is open; nothing has been decided
    WAITING      no attempt; units are asked for, and an attempt starts when enough of them are usable
    STARTING     an attempt is recorded and forked; not every rank is in the training function yet
    RUNNING      every rank is
    HOLDING      every rank is asked to stop at one report, so that no step is lost
    STOPPING     the attempt is over: its workers are killed and reaped, its staged uploads finished
    SETTLED      its end is recorded; what is next follows from the log. Lasts no longer than one event
    BACKOFF      no attempt; a pause before the next one
    FINISHED, FAILED, INTERRUPTED, FENCED     the run is over, at least for this driver

**Two tables.** An event leads to a state, and nothing else is decided there: an event can end an attempt, but it never
starts the next one. That is the first table. What follows from the state itself is the second: conditions in their
order, asked after every event until none holds any more. So an attempt that is over always goes the same way, whatever
ended it: STOPPING until nothing is left of it, SETTLED, and from there to the next attempt, to a pause or to the end.

**What bites.** An event without a cell raises before anything is touched. A handler raises when it goes where its cell
does not lead, when it stays where its cell does not let it, and when one of its steps is in neither table. What is
done on the way of the second table may change no state at all. A controller that has raised accepts nothing more. A
cell names one state wherever the event alone decides; it names more where the decision lies in what the event says.

**Evidence.** What shows that an attempt is over is collected as signs: an exception, a death, a lost agent, a hang. A
sign says what was seen, and never what it means. What it means is decided once, when nobody of the attempt runs any
more (`attempt.decide_cause`), from all signs together: a node that is lost shows first as the death of its worker, and
only later as lost, or as announced to go.

**Echo.** When one rank dies its peers fail too: their collective breaks, their connection is reset. Such a sign may
only be the echo of another, so it does not end the attempt. It waits: a moment for the root, then until every rank has
ended or been silent for too long. Where nothing but echoes came, they are the evidence (`only echoes`).

**Settling.** STOPPING ends when nobody of the attempt runs, no upload can still complete a checkpoint, and the nodes
have been looked at since one was lost (`nothing left`). Only then is the cause known. It is recorded before anything
else, never changed, and charged to one account at most.

**Hold.** A resize, or leaving a node that will go, begins in RUNNING: all ranks are asked to give a checkpoint at one
report and to wait there. HOLDING ends in STOPPING once that checkpoint is committed, and back in RUNNING if the ranks
do not stop in time, if one has finished, or if there is still time to wait for a replacement.

**Switch.** A signal to the driver is a switch: once thrown it stays so, and the run ends as INTERRUPTED after whatever
is going on. The attempt's end does not need to know of it; the handler of the signal must throw it (`SWITCHES`).

**Late.** Three kinds of events may come too late. They are legal, have no cell and change nothing: one about a worker
of an attempt that is over, a timer that means nothing in this state, and what the cluster or a signal says once the run
is over and only its last records are on their way to the log (`LATE`).

A timer is an event like any other, known by its name. Where it has a cell is where it means something.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Literal, get_args

from shaketable.runtime.controller import events as ev
from shaketable.runtime.errors import ShaketableError


class State(StrEnum):
    NEW = "NEW"
    WAITING = "WAITING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    HOLDING = "HOLDING"
    STOPPING = "STOPPING"
    SETTLED = "SETTLED"
    BACKOFF = "BACKOFF"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    INTERRUPTED = "INTERRUPTED"
    FENCED = "FENCED"


(NEW, WAITING, STARTING, RUNNING, HOLDING, STOPPING, SETTLED, BACKOFF, FINISHED, FAILED, INTERRUPTED, FENCED) = State

# An event's class, or the name of the timer that is due.
Kind = type[ev.Event] | ev.Timer

# ---- the first table: what an event leads to -----------------------------------------------------------------

EVENT_TRANSITIONS: Mapping[State, Mapping[Kind, tuple[State, ...]]] = {
    NEW: {ev.Begin: (SETTLED,)},
    WAITING: {
        ev.UnitPlaced: (WAITING,),
        ev.AgentReady: (WAITING,),
        ev.AgentLost: (WAITING,),
        ev.AgentFailed: (WAITING,),
        ev.NodesChanged: (WAITING,),
        ev.LoopPaused: (WAITING,),
        "settle": (WAITING,),
        "unit_wait": (BACKOFF,),
        "capacity": (WAITING,),
        "quarantine": (WAITING,),
        ev.Interrupted: (INTERRUPTED,),
        ev.LogFailed: (FAILED,),
        ev.TakenOver: (FENCED,),
    },
    STARTING: {
        ev.UnitPlaced: (STARTING,),
        ev.AgentReady: (STARTING,),
        ev.AgentLost: (STARTING, STOPPING),
        ev.AgentFailed: (STARTING,),
        ev.NodesChanged: (STARTING, STOPPING),
        # HOLDING: a notice has come meanwhile.
        ev.WorkerEntered: (STARTING, RUNNING, HOLDING),
        ev.WorkerFailed: (STARTING, STOPPING),
        ev.WorkersStopped: (STARTING,),
        ev.CheckpointCorrupt: (STOPPING,),
        ev.StacksTaken: (STARTING, STOPPING),
        ev.LoopPaused: (STARTING,),
        "collateral": (STARTING, STOPPING),
        "hang": (STARTING, STOPPING),
        "quarantine": (STARTING,),
        ev.Interrupted: (STOPPING,),
        ev.LogFailed: (FAILED,),
        ev.TakenOver: (FENCED,),
    },
    RUNNING: {
        ev.UnitPlaced: (RUNNING,),
        ev.AgentReady: (RUNNING, HOLDING),
        ev.AgentLost: (RUNNING, STOPPING),
        ev.AgentFailed: (RUNNING,),
        ev.NodesChanged: (RUNNING, HOLDING, STOPPING),
        # STOPPING, here and below: ranks that contradict each other about one checkpoint end the attempt.
        ev.ReportReceived: (RUNNING, STOPPING),
        ev.UploadFinished: (RUNNING, STOPPING),
        ev.UploadFailed: (RUNNING, STOPPING),
        ev.HoldAnswered: (RUNNING,),
        ev.HoldReached: (RUNNING,),
        ev.WorkerFinished: (RUNNING, STOPPING),
        ev.WorkerFailed: (RUNNING, STOPPING),
        ev.WorkersStopped: (RUNNING,),
        # RUNNING: a checkpoint that is not to be resumed from any more harms nobody.
        ev.CheckpointCorrupt: (RUNNING, STOPPING),
        ev.StacksTaken: (RUNNING, STOPPING),
        ev.LoopPaused: (RUNNING,),
        "resize": (RUNNING, HOLDING),
        "notices": (RUNNING, HOLDING),
        "collateral": (RUNNING, STOPPING),
        "commit": (RUNNING,),
        "hang": (RUNNING, STOPPING),
        "quarantine": (RUNNING,),
        ev.Interrupted: (STOPPING,),
        ev.LogFailed: (FAILED,),
        ev.TakenOver: (FENCED,),
    },
    HOLDING: {
        ev.UnitPlaced: (HOLDING,),
        ev.AgentReady: (HOLDING,),
        ev.AgentLost: (HOLDING, STOPPING),
        ev.AgentFailed: (HOLDING,),
        ev.NodesChanged: (HOLDING, STOPPING),
        # STOPPING: the checkpoint of the hold is committed. RUNNING: it is, and a replacement is waited for.
        ev.ReportReceived: (HOLDING, RUNNING, STOPPING),
        ev.UploadFinished: (HOLDING, RUNNING, STOPPING),
        ev.UploadFailed: (HOLDING, RUNNING, STOPPING),
        ev.HoldAnswered: (HOLDING,),
        # RUNNING: the checkpoint at which all were to stop was refused.
        ev.HoldReached: (HOLDING, RUNNING),
        # A run that is ending is not resized any more.
        ev.WorkerFinished: (RUNNING, STOPPING),
        ev.WorkerFailed: (HOLDING, STOPPING),
        ev.WorkersStopped: (HOLDING,),
        ev.CheckpointCorrupt: (HOLDING, STOPPING),
        ev.StacksTaken: (HOLDING, STOPPING),
        ev.LoopPaused: (HOLDING,),
        # HOLDING: an echo came first, and waits for its root.
        "hold": (HOLDING, RUNNING, STOPPING),
        "collateral": (HOLDING, STOPPING),
        "commit": (HOLDING,),
        "hang": (HOLDING, STOPPING),
        "quarantine": (HOLDING,),
        ev.Interrupted: (STOPPING,),
        ev.LogFailed: (FAILED,),
        ev.TakenOver: (FENCED,),
    },
    STOPPING: {
        ev.UnitPlaced: (STOPPING,),
        ev.AgentReady: (STOPPING,),
        ev.AgentLost: (STOPPING,),
        ev.AgentFailed: (STOPPING,),
        ev.NodesChanged: (STOPPING,),
        ev.WorkerEntered: (STOPPING,),
        ev.ReportReceived: (STOPPING,),
        ev.UploadFinished: (STOPPING,),
        ev.UploadFailed: (STOPPING,),
        ev.HoldAnswered: (STOPPING,),
        ev.HoldReached: (STOPPING,),
        ev.WorkerFinished: (STOPPING,),
        ev.WorkerFailed: (STOPPING,),
        ev.WorkersStopped: (STOPPING,),
        ev.CheckpointCorrupt: (STOPPING,),
        ev.StacksTaken: (STOPPING,),
        ev.LoopPaused: (STOPPING,),
        "look": (STOPPING,),
        "uploads": (STOPPING,),
        "quarantine": (STOPPING,),
        ev.Interrupted: (STOPPING,),
        ev.LogFailed: (FAILED,),
        ev.TakenOver: (FENCED,),
    },
    SETTLED: {},
    BACKOFF: {
        ev.UnitPlaced: (BACKOFF,),
        ev.AgentReady: (BACKOFF,),
        ev.AgentLost: (BACKOFF,),
        ev.AgentFailed: (BACKOFF,),
        ev.NodesChanged: (BACKOFF,),
        ev.LoopPaused: (BACKOFF,),
        "backoff": (WAITING,),
        "capacity": (BACKOFF,),
        "quarantine": (BACKOFF,),
        ev.Interrupted: (INTERRUPTED,),
        ev.LogFailed: (FAILED,),
        ev.TakenOver: (FENCED,),
    },
    # The end is decided, and its records are on their way to the log, which may not take them.
    FINISHED: {ev.LogFailed: (FAILED,), ev.TakenOver: (FENCED,)},
    FAILED: {ev.LogFailed: (FAILED,), ev.TakenOver: (FENCED,)},
    INTERRUPTED: {ev.LogFailed: (FAILED,), ev.TakenOver: (FENCED,)},
    FENCED: {},
}

# ---- the second table: what follows from a state -------------------------------------------------------------

Condition = Literal[
    "only echoes",
    "all returned",
    "nothing left",
    "run finished",
    "over budget",
    "storage out",
    "all corrupt",
    "interrupted",
    "pause due",
    "otherwise",
    "given up",
    "enough units",
]

# The first condition that holds decides; `following.py` has what each means and what is done on the way.
STATE_TRANSITIONS: Mapping[State, tuple[tuple[Condition, State], ...]] = {
    NEW: (),
    STARTING: (("only echoes", STOPPING),),
    RUNNING: (("all returned", SETTLED), ("only echoes", STOPPING)),
    HOLDING: (("only echoes", STOPPING),),
    STOPPING: (("nothing left", SETTLED),),
    SETTLED: (
        ("run finished", FINISHED),
        ("over budget", FAILED),
        ("storage out", FAILED),
        ("all corrupt", FAILED),
        ("interrupted", INTERRUPTED),
        ("pause due", BACKOFF),
        ("otherwise", WAITING),
    ),
    WAITING: (("given up", FAILED), ("enough units", STARTING)),
    BACKOFF: (("given up", FAILED),),
    FINISHED: (),
    FAILED: (),
    INTERRUPTED: (),
    FENCED: (),
}

# Every state that a state can lead to, whatever the reason: no handler gets from STOPPING back to RUNNING.
LEADS_TO: Mapping[State, frozenset[State]] = {
    state: frozenset(target for targets in row.values() for target in targets)
    | {target for _, target in STATE_TRANSITIONS[state]}
    for state, row in EVENT_TRANSITIONS.items()
}

# What must hold once the event has been handled, in whatever state, and holds from then on.
SWITCHES: Mapping[Kind, Condition] = {ev.Interrupted: "interrupted"}

# What may still come in these states, and changes nothing.
OVER = (FINISHED, FAILED, INTERRUPTED)
LATE: tuple[Kind, ...] = (
    *(ev.UnitPlaced, ev.AgentReady, ev.AgentLost, ev.AgentFailed, ev.NodesChanged),
    *(ev.LoopPaused, ev.Interrupted),
)

# ---- what the tables say -------------------------------------------------------------------------------------

Transition = tuple[State, Kind | Condition, State]


class IllegalEvent(ShaketableError):
    """The event cannot happen in this state, or its handler left the tables: a bug in the runtime."""


def kind_of(event: ev.Event) -> Kind:
    """What the first table knows the event by."""
    return event.timer if type(event) is ev.TimerFired else type(event)


def meaningless_in(*states: State) -> frozenset[ev.Timer]:
    """The timers that have a cell in none of these states."""
    known = {kind for state in states for kind in EVENT_TRANSITIONS[state]}
    return frozenset(name for name in get_args(ev.Timer) if name not in known)


def declared() -> Iterator[Transition]:
    """Every transition of the two tables."""
    for state, row in EVENT_TRANSITIONS.items():
        for kind, targets in row.items():
            yield from ((state, kind, target) for target in targets)
    for state, rows in STATE_TRANSITIONS.items():
        yield from ((state, condition, target) for condition, target in rows)


def in_words(transition: Transition) -> tuple[str, str, str]:
    """State, why, next state; for people and for JSON."""
    state, why, target = transition
    return state.value, named(why), target.value


def named(why: Kind | Condition) -> str:
    """An event by its class; a timer and a condition say that they are one."""
    if not isinstance(why, str):
        return why.__name__
    return f"timer {why}" if why in get_args(ev.Timer) else f"when {why}"
