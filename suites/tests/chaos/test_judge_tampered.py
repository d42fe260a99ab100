"""Healthy histories with one thing in them changed: what a bug would have left is never a PASS, and what only looks
odd is never a FAIL. A lie is told by everybody who would tell it: the log, the driver and the workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shaketable.chaos.chain import reference_digest
from shaketable.chaos.history import events as h
from shaketable.chaos.verdict.judge import judge
from shaketable.suites.command.judging import judge_folder
from shaketable.suites.tests.rigs.shipped import played
from shaketable.suites.tests.rigs.story import always, change, drop

Events = list[h.AnyEvent]
SKEW_S = 3.0
REPLACE = msgspec.structs.replace


def crash() -> Events:
    """Three workers, a commit each step; rank 1 is killed at 12, attempt 2 resumes from 12 and ends at 40."""
    return list(played("worker-crash"))


def reclaimed() -> Events:
    """A commit every 5 steps; the node of rank 1 is announced and lost at 8, two go on from 5 to 24."""
    return list(played("early-reclaim"))


def drained() -> Events:
    return list(played("node-sigterm"))


def two_drivers() -> Events:
    return list(played("two-drivers"))


# ---- how a history is changed --------------------------------------------------------------------------------


def record(events: Events, kind: str, where: Callable[[dict[str, Any]], bool], **content: Any) -> Events:
    """The log's records of that kind changed; at least one must be."""
    told = [
        REPLACE(e, record={**e.record, **content})
        if isinstance(e, h.LogRecord) and e.record["kind"] == kind and where(e.record)
        else e
        for e in events
    ]
    assert told != events, "nothing was changed"
    return told


def written(events: Events, after: int, **content: Any) -> Events:
    """One more record in the log, behind the one with that number."""
    before = next(e for e in events if isinstance(e, h.LogRecord) and e.number == after)
    extra = {"id": f"extra-{after}", "at_s": before.record["at_s"], "term": before.record["term"], **content}
    moved = [renumbered(event, after, 1) for event in events]
    return [*moved, REPLACE(before, seq=9999, number=after + 1, record=extra)]


def renumbered(event: h.AnyEvent, after: int, by: int) -> h.AnyEvent:
    """What speaks of a later record of the log speaks of it by another number."""
    if isinstance(event, h.LogRecord | h.Committed) and event.number is not None and event.number > after:
        return REPLACE(event, number=event.number + by)
    return event


def second(event: Any) -> bool:
    return bool(event.attempt == 2)


def digest(events: Events, step: int) -> str | None:
    began = next(e for e in events if isinstance(e, h.ExperimentBegan))
    return reference_digest(step, began.configuration["job_config"])


def found(step: int, *, of: int | None = None) -> Events:
    """Every rank of attempt 2 found that step, with the state that belongs to step `of`."""
    events = crash()
    return change(events, h.Resumed, second, step=step, digest=digest(events, of or step))


def resumed_from_11() -> Events:
    """All agree: log, driver, workers and what they found."""
    name = "000011-t1-a1"
    events = record(found(11), "attempt_started", lambda r: r["attempt"] == 2, resume=name)
    events = change(events, h.AttemptStarted, second, resume=name, resume_index=11)
    return change(events, h.WorkerStarted, second, resume=name)


def probed_with_the_state_of(step: int) -> Events:
    events = crash()
    return change(events, h.CheckpointProbed, lambda e: e.index == 20, digest=digest(events, step))


def committed_as(index: int) -> Events:
    """The commit of step 10, which nobody resumes from, under another index."""
    events = record(reclaimed(), "checkpoint_committed", lambda r: r["index"] == 10, index=index)
    return change(events, h.Committed, lambda e: e.index == 10, index=index)


def index_12_again() -> Events:
    events = record(crash(), "checkpoint_committed", lambda r: r["index"] == 13, index=12)
    return change(events, h.Committed, lambda e: e.index == 13, index=12)


def latest_deleted() -> Events:
    number = next(e.number for e in crash() if isinstance(e, h.Committed) and e.index == 12)
    return written(crash(), number or 0, kind="checkpoint_deleted", checkpoint="000012-t1-a1")


def charged(attempt: int, account: str | None) -> Events:
    events = record(crash(), "attempt_ended", lambda r: r["attempt"] == attempt, account=account)
    return change(events, h.AttemptEnded, lambda e: e.attempt == attempt, account=account)


def charged_twice() -> Events:
    ended = next(e for e in crash() if isinstance(e, h.LogRecord) and e.record["kind"] == "attempt_ended")
    return written(crash(), ended.number, **{**ended.record, "id": "again"})


def four_for_an_instant() -> Events:
    """One rank more than max enters attempt 2, and nobody else knows of it."""
    rank = next(e for e in crash() if isinstance(e, h.WorkerStarted) and second(e))
    return [*crash(), REPLACE(rank, writer="worker-9-sim", rank=3, pid=9)]


def goes_on(events: Events, rank: int, after_end_s: float) -> Events:
    """The last word of a rank of attempt 1 comes so long after that attempt's end."""
    ended = next(e for e in events if isinstance(e, h.AttemptEnded))
    last = [e for e in events if isinstance(e, h.Stepped) and (e.attempt, e.rank) == (1, rank)][-1]
    late = REPLACE(last, at_s=ended.at_s + after_end_s, seq=9999, step=last.step + 1, since=None)
    return [*events, REPLACE(late, digest=digest(events, late.step))]


def of_the_next_term(events: Events, kind: Any) -> Events:
    """Rank 1 of attempt 2 says that it belongs to a driver that never was."""
    return change(events, kind, lambda e: (e.attempt, e.rank) == (2, 1), term=2)


def record_of_the_old_term() -> Events:
    opened = [e.number for e in two_drivers() if isinstance(e, h.LogRecord) and e.record["kind"] == "opened"]
    return written(two_drivers(), opened[-1], kind="node_note", term=1)


def without_opened(events: Events, nth: int) -> Events:
    """A driver that decides before it has opened: its record is not there, and the others have no gap."""
    opened = [e.number for e in events if isinstance(e, h.LogRecord) and e.record["kind"] == "opened"][nth]
    rest = [e for e in events if not (isinstance(e, h.LogRecord) and e.number == opened)]
    return [renumbered(event, opened, -1) for event in rest]


def mute(events: Events, attempt: int, rank: int) -> Events:
    """Everything that one worker recorded is lost."""
    writer = next(e.writer for e in events if isinstance(e, h.WorkerStarted) and (e.attempt, e.rank) == (attempt, rank))
    return [e for e in events if e.writer != writer]


def stops_short() -> Events:
    """Rank 1 returns before the last four steps, which nobody commits."""
    return drop(reclaimed(), h.Stepped, lambda e: (e.rank, e.step) == (1, 24))


def driver_believes(kind: Any, where: Callable[[Any], bool], **other: Any) -> Events:
    return change(crash(), kind, where, **other)


BUGS: list[tuple[str, Callable[[], Events], str]] = [
    ("resumed one step too early", lambda: found(11), "FAIL resume-from-checkpoint: rank 2 of attempt 2 found step 11"),
    ("resumed one step too late", lambda: found(13), "FAIL resume-from-checkpoint: rank 2 of attempt 2 found step 13"),
    ("the right step with another state", lambda: found(12, of=11), "FAIL resume-from-checkpoint: "),
    ("all agree on the commit before", resumed_from_11, "FAIL resume-from-checkpoint: attempt 2 resumed from 000011"),
    ("a commit that holds another state", lambda: probed_with_the_state_of(19), "FAIL durability: 000020-t1-a2"),
    ("a commit under another index", lambda: committed_as(11), "FAIL durability: 000010-t1-a2"),
    ("two commits of one index", index_12_again, "FAIL single-writer: attempt 2 committed index 12"),
    ("the latest commit deleted", latest_deleted, "FAIL durability: 000012-t1-a1 was deleted"),
    (
        "a charge missing",
        lambda: charged(1, None),
        "FAIL failure-budget: sigkill_worker hit attempt 1, but the run charged",
    ),
    ("a charge too many", lambda: charged(2, "max_failures"), "FAIL failure-budget: attempt 2 was charged"),
    ("to the wrong account", lambda: charged(1, "max_preemption_failures"), "FAIL failure-budget: sigkill_worker hit"),
    ("one ending on record twice", charged_twice, "FAIL single-writer: attempt 1 ended"),
    (
        "a worker above max for an instant",
        four_for_an_instant,
        "FAIL world-size-bounds: attempt 2 (log record 16) has 3",
    ),
    (
        "a rank beside its successor",
        lambda: goes_on(crash(), 0, 0.3),
        "FAIL world-size-bounds: attempt 1 (log record 2) has e",
    ),
    (
        "a rank goes on on the node that was left",
        lambda: goes_on(drained(), 1, 11),
        "FAIL world-size-bounds: attempt 1",
    ),
    (
        "a worker of a term that never was",
        lambda: of_the_next_term(crash(), h.WorkerStarted),
        "FAIL world-size-bounds: rank 1 ent",
    ),
    (
        "steps of a term that never was",
        lambda: of_the_next_term(crash(), h.Stepped),
        "FAIL world-size-bounds: rank 1 entered",
    ),
    ("an old driver writes on", record_of_the_old_term, "FAIL single-writer: log record"),
    (
        "a driver decides before it has opened",
        lambda: without_opened(crash(), 0),
        "FAIL single-writer: log record 1 is of",
    ),
    ("the next one does", lambda: without_opened(two_drivers(), 1), "FAIL single-writer: log record 24"),
    (
        "the log has lost its beginning",
        lambda: drop(crash(), h.LogRecord, lambda e: e.number == 1),
        "FAIL single-writer: the log",
    ),
    (
        "a term opened twice",
        lambda: written(crash(), 1, kind="opened"),
        "FAIL single-writer: log record 2 opens term 1",
    ),
    (
        "a driver without a record of its term",
        lambda: driver_believes(h.TermBegan, always, term=2),
        "FAIL single-writer: a driver",
    ),
    (
        "the driver charges what the log does not",
        lambda: driver_believes(h.AttemptEnded, lambda e: e.attempt == 1, account=None),
        "FAIL single-writer: the driver of term 1 ended attempt 1",
    ),
    (
        "the driver names another cause",
        lambda: driver_believes(h.AttemptEnded, lambda e: e.attempt == 1, cause="node_lost"),
        "FAIL single-writer: the driver of term 1 ended attempt 1",
    ),
    (
        "the driver resumes what the log does not",
        lambda: driver_believes(h.AttemptStarted, second, resume="000011-t1-a1"),
        "FAIL single-writer: the driver of term 1 started attempt 2",
    ),
    (
        "the driver believes another index",
        lambda: driver_believes(h.Committed, lambda e: e.index == 20, index=21),
        "FAIL single-writer: the driver of term 1 says it committed 000020",
    ),
    ("one rank is silent", lambda: mute(crash(), 2, 2), "FAIL world-size-bounds: attempt 2 (log record 16) took steps"),
    (
        "a rank returns before the end",
        stops_short,
        "FAIL truthful-ending: said finished, but rank 1 of attempt 2 was at",
    ),
    ("nobody says when all was healed", lambda: drop(crash(), h.Healed, always), "INVALID the history does not say"),
]


@pytest.mark.parametrize(("tampered", "verdict"), [row[1:] for row in BUGS], ids=[row[0] for row in BUGS])
def test_what_a_bug_would_have_left_is_no_pass(tampered: Callable[[], Events], verdict: str) -> None:
    judgement = judge(h.merge([tampered()]))
    assert f"{judgement.verdict} {judgement.reason}".startswith(verdict), judgement.reason


# ---- what is harmless ----------------------------------------------------------------------------------------


def skewed(events: Events, by_s: float) -> Iterable[Events]:
    """The clock of one node after the other."""
    node = {e.writer: e.node_id for e in events if isinstance(e, h.WorkerStarted)}
    for each in sorted(set(node.values())):
        yield [REPLACE(e, at_s=e.at_s + by_s) if node.get(e.writer) == each else e for e in events]


def of_the_future(events: Events) -> Events:
    """Every line has a field that this version does not know."""
    return [h.decode(json.dumps({**json.loads(h.encode(e)), "of_the_future": [1]}).encode()) for e in events]


def another_node(events: Events) -> Events:
    """Of somebody else: full, but in Ray's view."""
    began = next(e for e in events if isinstance(e, h.NodeJoined))
    following = 1 + max(e.seq for e in events if e.writer == began.writer)
    return [*events, REPLACE(began, node=99, node_id="99" * 28, seq=following)]


HARMLESS: list[tuple[str, Callable[[Events], Iterable[Events]]]] = [
    ("a node's clock is ahead", lambda events: skewed(events, SKEW_S)),
    ("a node's clock is behind", lambda events: skewed(events, -SKEW_S)),
    ("evidence arrives in reverse", lambda events: [events[::-1]]),
    ("evidence arrives twice", lambda events: [[*events, *events]]),
    ("fields of a later version", lambda events: [of_the_future(events)]),
    ("another node", lambda events: [another_node(events)]),
]


@pytest.mark.parametrize("base", [crash, reclaimed, drained], ids=lambda base: base.__name__)
@pytest.mark.parametrize("tampered", [row[1] for row in HARMLESS], ids=[row[0] for row in HARMLESS])
def test_what_is_harmless_is_not_blamed(
    base: Callable[[], Events], tampered: Callable[[Events], Iterable[Events]]
) -> None:
    for events in tampered(base()):
        judgement = judge(h.merge([events]))
        assert judgement.verdict == "PASS", judgement.reason


def test_a_file_with_its_lines_twice_and_in_another_order_is_judged_as_before(tmp_path: Path) -> None:
    """As older versions wrote it: without plan and digests."""
    older = change(reclaimed(), h.ExperimentBegan, always, faults=None)
    lines = [h.encode(event) for event in [*older[::-1], *older]]
    (tmp_path / "history.jsonl").write_bytes(b"".join(lines))
    [result] = judge_folder(tmp_path).results
    assert result.verdict == "PASS", result.reason


def test_a_file_that_breaks_off_in_its_last_line_is_invalid(tmp_path: Path) -> None:
    whole = b"".join(map(h.encode, reclaimed()))
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(last, len(whole) - 1):
        (tmp_path / "history.jsonl").write_bytes(whole[:cut])
        [result] = judge_folder(tmp_path).results
        assert result.verdict == "INVALID", cut
        assert result.reason.startswith("history.jsonl is cut off in the middle of line") or cut == last, cut
