"""Whether everybody who must have said something did: nodes, drivers and workers whose words are missing. Pure.

Each of them records before it acts, so that what was done was told before. Only the last word of one that was killed
may be lost. What is missing makes an experiment INVALID: nobody knows what else is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from shaketable.chaos.history.entries import (
    Commit,
    Deletion,
    End,
    Entry,
    Finale,
    Opening,
    QuarantinedCheckpoint,
    Reinstatement,
    Start,
)
from shaketable.chaos.history.events import (
    AttemptEnded,
    AttemptStarted,
    CheckpointDeleted,
    CheckpointQuarantined,
    CheckpointReinstated,
    Committed,
    RunEnded,
    StateChanged,
    TermBegan,
    UploadStarted,
)
from shaketable.chaos.history.view import Attempt, History, report_index
from shaketable.chaos.invariants.ledger import OWN_FAILURE, expected

# records that may be durable while nobody has been told
UNTOLD = 1
_Of = tuple[str, int, int | str]


def unsaid(history: History) -> Iterator[str]:
    """What must have been recorded and was not."""
    if history.began is None or history.began.faults is None:
        # of a version that recorded less
        return
    yield from _nodes(history)
    if history.subject == "bundled" and history.has_log:
        yield from _drivers(history)
        yield from _workers(history)


def _nodes(history: History) -> Iterator[str]:
    there = {node.node_id for node in history.nodes}
    for attempt in history.attempts if there else ():
        for rank, node in attempt.start.members:
            if node and node not in there:
                yield f"rank {rank} of {attempt.name} ran on node {node[:8]}, and nobody recorded that it joined"


# ---- the drivers: what they wrote to the log they also said ---------------------------------------------------


def _drivers(history: History) -> Iterator[str]:
    told, began = set(_told(history)), {event.term for event in history.all(TermBegan)}
    stated = {event.term for event in history.all(StateChanged)}
    ended = {event.term for event in history.all(RunEnded)}
    written: defaultdict[int, list[Entry]] = defaultdict(list)
    for entry in history.entries:
        if _key(entry) is not None or isinstance(entry, Finale):
            written[entry.term].append(entry)
    for term in sorted({entry.term for entry in history.of(Opening)}):
        entries = written[term]
        if entries and term not in began:
            yield f"the log has {len(entries)} records of term {term}, and its driver did not say that it took over"
        if any(isinstance(entry, Start) for entry in entries) and term not in stated:
            yield f"the driver of term {term} started an attempt, and never said in which state it was"
        silent = [entry for entry in entries if not isinstance(entry, Finale) and _key(entry) not in told]
        over = any(isinstance(entry, Finale) for entry in entries) and term in ended
        if silent and (over or len(silent) > UNTOLD or silent[0] is not entries[-1]):
            yield f"the driver of term {term} did not say what is in {silent[0].place}"


def _key(entry: Entry) -> _Of | None:
    match entry:
        case Start():
            return "started", entry.term, entry.attempt
        case End():
            return "ended", entry.term, entry.attempt
        case Commit():
            return "committed", entry.term, entry.checkpoint
        case Deletion():
            return "deleted", entry.term, entry.checkpoint
        case QuarantinedCheckpoint():
            return "quarantined", entry.term, entry.checkpoint
        case Reinstatement():
            return "reinstated", entry.term, entry.checkpoint
        case _:
            return None


def _told(history: History) -> Iterator[_Of]:
    for started in history.all(AttemptStarted):
        yield "started", started.term, started.attempt
    for ended in history.all(AttemptEnded):
        yield "ended", ended.term, ended.attempt
    for committed in history.all(Committed):
        yield "committed", committed.term, committed.checkpoint
    for deleted in history.all(CheckpointDeleted):
        yield "deleted", deleted.term, deleted.checkpoint
    for given_up in history.all(CheckpointQuarantined):
        yield "quarantined", given_up.term, given_up.checkpoint
    for taken_back in history.all(CheckpointReinstated):
        yield "reinstated", taken_back.term, taken_back.checkpoint


# ---- the workers of our own job, which come to every step together --------------------------------------------


def _workers(history: History) -> Iterator[str]:
    if not history.hash_chained:
        return
    for attempt in history.attempts:
        if not _met(history, attempt):
            continue
        spoke = [{event.rank for event in attempt.workers}, {event.rank for event in attempt.resumed}]
        if max(map(len, attempt.steps.values()), default=0) > 1:
            # who took a second step had met all others after their first
            spoke.append(set(attempt.steps))
        for rank in range(attempt.world_size):
            if not all(rank in ranks for ranks in spoke):
                yield f"rank {rank} of {attempt.name} was in the training function, and did not say all of that"
    handed = {(e.term, e.attempt, e.step if e.index is None else e.index) for e in history.all(UploadStarted)}
    for attempt in history.attempts:
        steps = {report_index(step): step for steps in attempt.steps.values() for step in steps if step.checkpoint}
        for commit in attempt.commits:
            if commit.index in steps and (attempt.start.term, attempt.number, commit.index) not in handed:
                yield f"{commit.checkpoint} was committed ({commit.place}), and no rank said that it handed it over"


def _met(history: History, attempt: Attempt) -> bool:
    """Whether all ranks came to the job's collective: some have stepped, or the job's own failure came after it."""
    if attempt.steps:
        return True
    own = any(reason.fault == OWN_FAILURE for reason in expected(history, attempt).faults)
    return own and attempt.end is not None and attempt.end.cause == "worker_error"
