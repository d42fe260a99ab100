"""The history: what happened in one experiment, as typed events, one JSON object a line.

Everything is judged from this file and can be judged again. Every process that records appends to a file of
its own (`chaos/history/witness.py`) before it acts; the harness merges the files into `history.jsonl`. Events of one
writer are ordered by `seq`; across writers invariants order by (term, attempt, report index, log number), and
use the clock `at_s` only for durations within a stated skew.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from shaketable.chaos.errors import ChaosError

SCHEMA = 1
# of one checkpoint that are named in a history
MOST_FILES = 1000


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True, gc=False):
    """What every line carries. `writer` names the process ("harness", "driver-<pid>", "worker-<pid>-<hex>"),
    `seq` counts its lines from 0, `at_s` is its wall clock in seconds since 1970."""

    writer: str = ""
    seq: int = 0
    at_s: float = 0.0


class Member(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One worker of an attempt. `node_id` is Ray's hex id of its node."""

    rank: int
    node_id: str
    pid: int


# What a fault must find when it lands: "attempt": an attempt that uses what it hits; "driver": a driver that runs;
# "run": a driver that runs or is still to come; "nothing".
Needs = Literal["attempt", "driver", "run", "nothing"]


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One fault of the plan, with what the judge has to know of its kind. `helps`: it takes nothing away, and the run
    may need it to go on. `heals`: it is undone, at `until` among its arguments or when the run is over."""

    name: str
    at: dict[str, Any]
    target: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    needs: Needs = "nothing"
    helps: bool = False
    heals: bool = False


# ---- the harness ---------------------------------------------------------------------------------------------


class ExperimentBegan(Event, frozen=True, kw_only=True, tag="experiment_began"):
    """First line of every history, and the plan. `configuration` is the resolved configuration of the experiment file,
    `faults` its method (None: a history of a version that wrote none). `unplanned_from`: faults of this number and
    above are no part of the plan but disturbances of a simulated world (None: there are none). `recorded`: no
    experiment, but a production run under `shaketable.Recorder`; then it is the first line of each file, and
    `configuration` holds what the trainer was given of the same keys."""

    schema: int = SCHEMA
    title: str
    subject: str
    cluster: str
    seed: int
    configuration: dict[str, Any]
    expect: dict[str, Any]
    versions: dict[str, str]
    recorded: bool = False
    faults: list[PlannedFault] | None = None
    unplanned_from: int | None = None


class NodeJoined(Event, frozen=True, kw_only=True, tag="node_joined"):
    """Worker node `node` (the harness's number) is alive in Ray's own view. `slice`: the TPU slice of which it is a
    host, if that is one that a run could use."""

    node: int
    node_id: str
    slice: str = ""
    # where the experiment has tiers
    tier: str = ""


class NodeLeft(Event, frozen=True, kw_only=True, tag="node_left"):
    """Worker node `node` is dead in Ray's own view."""

    node: int
    node_id: str


class DriverStarted(Event, frozen=True, kw_only=True, tag="driver_started"):
    """The harness launched the driver for the `launch`-th time (from 0). `changed` is configuration that
    differs."""

    launch: int
    pid: int
    changed: dict[str, Any] = {}


class DriverExited(Event, frozen=True, kw_only=True, tag="driver_exited"):
    """`code` is what the shell would see: 0.., or 128+n for signal n."""

    launch: int
    code: int


class FaultTriggered(Event, frozen=True, kw_only=True, tag="fault_triggered"):
    """Fault number `fault` (its place in the method, from 0): its trigger came true. `step` is the step that
    was recorded then; `by` names the event's writer and seq."""

    fault: int
    name: str
    trigger: dict[str, Any]
    by: str
    step: int | None = None


class FaultInjected(Event, frozen=True, kw_only=True, tag="fault_injected"):
    """What was hit. `hits` lists what it is about to take down: ranks of the current attempt, pids, node
    numbers. `deadline_s`: of a notice with a deadline, in so many seconds the node goes."""

    fault: int
    name: str
    target: dict[str, Any]
    pids: list[int] = []
    nodes: list[int] = []
    ranks: list[int] = []
    term: int | None = None
    attempt: int | None = None
    deadline_s: float | None = None


class FaultObserved(Event, frozen=True, kw_only=True, tag="fault_observed"):
    """The evidence that it landed, and how long after the injection it was seen. `hit_ms`: how long after the line of
    its injection it had been done, which on a slow harness is later than that line; None where both are one moment."""

    fault: int
    name: str
    evidence: str
    after_ms: float
    hit_ms: float | None = None


class FaultMissed(Event, frozen=True, kw_only=True, tag="fault_missed"):
    """It never landed: the trigger never came true, or there is no evidence. Makes the experiment INVALID."""

    fault: int
    name: str
    reason: str


class FaultHealed(Event, frozen=True, kw_only=True, tag="fault_healed"):
    fault: int
    name: str


class SubjectBroke(Event, frozen=True, kw_only=True, tag="subject_broke"):
    """The subject's own checks stopped it: an event that its tables do not allow, a record that is not legal (in
    simulation, where it runs in the harness's own process)."""

    error: str


class Healed(Event, frozen=True, kw_only=True, tag="healed"):
    """End of the break phase: every fault has landed and what can be healed is healed. Liveness counts from
    here."""


class DeadlinePassed(Event, frozen=True, kw_only=True, tag="deadline_passed"):
    """The run did not end within `within_s` seconds; the harness stopped it."""

    within_s: float


class LeakCheck(Event, frozen=True, kw_only=True, tag="leak_check"):
    """After the run ended: what of it was still there past the deadline (empty lists: nothing)."""

    processes: list[str]
    cluster: list[str]
    files: list[str]
    waited_s: float


class CheckpointProbed(Event, frozen=True, kw_only=True, tag="checkpoint_probed"):
    """After the run ended the harness tried to restore a committed checkpoint through the subject's own
    reader. `digest` is the hash-chain digest found in it (None when the job has none), `files` what is in it (None: not
    looked), `read` the size and checksum of each file of it, as the harness measured them (None: it did not)."""

    checkpoint: str
    index: int
    ok: bool
    reason: str = ""
    digest: str | None = None
    step: int | None = None
    files: list[str] | None = None
    read: dict[str, tuple[int, str]] | None = None


class LogRecord(Event, frozen=True, kw_only=True, tag="log_record"):
    """One record of the subject's own durable log, read back from storage after the run (bundled: its run
    log). `number` is the log number, `record` its content."""

    number: int
    record: dict[str, Any]


class ToldMetrics(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One report of a run without faults: its step, and what it said."""

    step: int
    metrics: dict[str, Any]


class ReferenceRun(Event, frozen=True, kw_only=True, tag="reference_run"):
    """The same job without faults: what it reported at its end, for metrics-match. `world_sizes`: of its attempts;
    only where both runs kept one and the same are the metrics compared to the bit."""

    metrics: dict[str, Any]
    tolerance: float
    world_sizes: list[int] = []
    # of rank 0, report by report
    steps: list[int] = []
    # report indices of the first two
    commits: list[int] = []
    # that the script gave its run
    name: str = ""
    # by rank, report by report
    reports: dict[int, list[ToldMetrics]] = {}


class ControlFailed(Event, frozen=True, kw_only=True, tag="control_failed"):
    """The job does not do what an experiment needs even without faults; `reason` says what, and what to do. Makes the
    experiment INVALID. `output`: the driver's last lines; the whole of it is in `log`."""

    reason: str
    output: list[str] = []
    log: str = ""


# ---- the controller of the subject, observed -----------------------------------------------------------------


class TermBegan(Event, frozen=True, kw_only=True, tag="term_began"):
    """A driver has taken the run over. `spent` are the charges per account it starts from."""

    term: int
    spent: dict[str, int]
    finished: bool = False


class RunConfigured(Event, frozen=True, kw_only=True, tag="run_configured"):
    """A script's own trainer, as it was when `fit()` was called for the `fit`-th time in that process. `address` is the
    cluster that the script joined, `storage_path` the script's own; the run itself is kept in the result folder.
    `max_workers` 0: in the driver's own process."""

    term: int
    fit: int
    pid: int
    address: str
    name: str
    storage_path: str
    min_workers: int
    max_workers: int
    max_failures: int
    max_preemption_failures: int
    elastic_resize_monitor_interval_s: float
    resources_per_worker: dict[str, float] = {}


class StateChanged(Event, frozen=True, kw_only=True, tag="state_changed"):
    """The controller is in `state` now (its own name for it)."""

    term: int
    state: str


class AttemptStarted(Event, frozen=True, kw_only=True, tag="attempt_started"):
    """`resume` names the checkpoint it starts from (None: from scratch), `resume_index` its report index."""

    term: int
    attempt: int
    world_size: int
    members: list[Member]
    resume: str | None
    resume_index: int | None


class Committed(Event, frozen=True, kw_only=True, tag="committed"):
    """A checkpoint became the one to resume from. `number` is the log number where the subject has one."""

    term: int
    attempt: int
    index: int
    checkpoint: str
    number: int | None = None


class CheckpointDeleted(Event, frozen=True, kw_only=True, tag="checkpoint_deleted"):
    term: int
    checkpoint: str


class CheckpointQuarantined(Event, frozen=True, kw_only=True, tag="checkpoint_quarantined"):
    """The subject found that storage does not have what was committed, and resumes from it no more."""

    term: int
    checkpoint: str
    detail: str = ""


class CheckpointReinstated(Event, frozen=True, kw_only=True, tag="checkpoint_reinstated"):
    """The subject has verified a quarantined checkpoint again, found it whole, and may resume from it."""

    term: int
    checkpoint: str


class NodeQuarantined(Event, frozen=True, kw_only=True, tag="node_quarantined"):
    """The subject uses the node no more before `until_s` (wall clock): so many `failures` named it."""

    term: int
    node_id: str
    failures: int
    until_s: float


class AttemptEnded(Event, frozen=True, kw_only=True, tag="attempt_ended"):
    """`cause` and `account` in the words of docs/semantics.md; account None: nothing charged. `rank`: whose error,
    death or node it was, where the subject says so. `retried`: calls to the storage that failed and were made again,
    who -> kind -> how many."""

    term: int
    attempt: int
    cause: str
    account: str | None
    detail: str = ""
    rank: int | None = None
    retried: dict[str, dict[str, int]] = {}


class RunEnded(Event, frozen=True, kw_only=True, tag="run_ended"):
    """What `fit()` gave its caller. `outcome`: finished, failed, interrupted."""

    term: int
    outcome: str
    error: str | None = None
    metrics: dict[str, Any] | None = None


# ---- the workers ---------------------------------------------------------------------------------------------


class WorkerStarted(Event, frozen=True, kw_only=True, tag="worker_started"):
    """A worker has entered the training function. `resume` is the checkpoint it was given (None: none). On a TPU host
    what its environment says: `slice` (its name), `host` (the worker id), `topology` and `pod_type`; where
    jax.distributed is initialised also `megascale`, the variables by which slices find each other (None: it is not)."""

    term: int
    attempt: int
    rank: int
    world_size: int
    node_id: str
    pid: int
    resume: str | None
    slice: str = ""
    host: str = ""
    topology: str = ""
    pod_type: str = ""
    megascale: dict[str, str] | None = None


class RestoreStarted(Event, frozen=True, kw_only=True, tag="restore_started"):
    """The job is about to read the checkpoint that it was given."""

    term: int
    attempt: int
    rank: int
    checkpoint: str


class Resumed(Event, frozen=True, kw_only=True, tag="resumed"):
    """What the job found in the checkpoint it was given: the last step done and the digest after it (step 0
    and the digest of the empty chain when there was none)."""

    term: int
    attempt: int
    rank: int
    step: int
    digest: str | None


class Stepped(Event, frozen=True, kw_only=True, tag="stepped"):
    """Recorded before `report()` is called for `step`. `digest` is the hash chain's state after that step,
    `samples` the sample ids this rank consumed in it; `checkpoint`: a checkpoint goes with this report. `index` is the
    report index where the step is something else (`step_key`); `unkeyed`: the metrics do not have that key. `since`:
    the event stands for all steps from that one on (in simulation, where nothing happens between them)."""

    term: int
    attempt: int
    rank: int
    step: int
    world_size: int
    index: int | None = None
    unkeyed: bool = False
    digest: str | None = None
    samples: list[int] | None = None
    checkpoint: bool = False
    metrics: dict[str, Any] | None = None
    since: int | None = None

    @property
    def first(self) -> int:
        return self.step if self.since is None else self.since


class UploadStarted(Event, frozen=True, kw_only=True, tag="upload_started"):
    """This rank hands a checkpoint directory over for `step`; `index` as in Stepped. `files`: what is in it, relative
    paths (None: not known)."""

    term: int
    attempt: int
    rank: int
    step: int
    index: int | None = None
    files: list[str] | None = None


class Reported(Event, frozen=True, kw_only=True, tag="reported"):
    """`report()` for `step` has returned."""

    term: int
    attempt: int
    rank: int
    step: int


class WorkerFinished(Event, frozen=True, kw_only=True, tag="worker_finished"):
    """The training function returned on this rank."""

    term: int
    attempt: int
    rank: int


AnyEvent = (
    ExperimentBegan
    | NodeJoined
    | NodeLeft
    | DriverStarted
    | DriverExited
    | FaultTriggered
    | FaultInjected
    | FaultObserved
    | FaultMissed
    | FaultHealed
    | Healed
    | DeadlinePassed
    | LeakCheck
    | CheckpointProbed
    | LogRecord
    | ReferenceRun
    | ControlFailed
    | SubjectBroke
    | TermBegan
    | RunConfigured
    | StateChanged
    | AttemptStarted
    | Committed
    | CheckpointDeleted
    | CheckpointQuarantined
    | CheckpointReinstated
    | NodeQuarantined
    | AttemptEnded
    | RunEnded
    | WorkerStarted
    | RestoreStarted
    | Resumed
    | Stepped
    | UploadStarted
    | Reported
    | WorkerFinished
)


class HistoryError(ChaosError, ValueError):
    """A history that cannot be read: names the file, the line and what was expected."""


def run_name(events: Iterable[AnyEvent], default: str) -> str:
    """The run's name in its storage: a script chooses it itself."""
    return next((event.name for event in events if isinstance(event, RunConfigured)), default)


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def encode(event: Event) -> bytes:
    """One line of history, newline included."""
    return _encoder.encode(event) + b"\n"


def decode(line: bytes) -> AnyEvent:
    return _decoder.decode(line)


def read_events(path: Path) -> list[AnyEvent]:
    """All events of one file. A last line without newline is a writer killed in the middle of it, and is
    dropped; any other unreadable line raises HistoryError."""
    lines = path.read_bytes().split(b"\n")
    events = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            events.append(decode(line))
        except msgspec.DecodeError as error:
            raise HistoryError(f"{path}:{number}: not an event of history schema {SCHEMA}: {error}") from error
    return events


def merge(histories: Iterable[Iterable[AnyEvent]]) -> list[AnyEvent]:
    """One list, by clock, each writer's own order kept. A line that came twice (same writer and seq) is there once;
    two different lines of one writer and seq are both kept, for the judge to see."""
    first: dict[tuple[str, int], AnyEvent] = {}
    differing: list[AnyEvent] = []
    for event in itertools.chain.from_iterable(histories):
        known = first.setdefault((event.writer, event.seq), event)
        if known is not event and known != event and event not in differing:
            differing.append(event)
    latest: dict[str, float] = {}
    keyed = []
    for event in sorted((*first.values(), *differing), key=lambda each: (each.writer, each.seq)):
        # A clock set back keeps its writer's order.
        latest[event.writer] = max(latest.get(event.writer, event.at_s), event.at_s)
        keyed.append((latest[event.writer], event.writer, event.seq, event))
    return [event for _, _, _, event in sorted(keyed, key=lambda row: row[:3])]
