"""The verdict on a production run, from what `shaketable.Recorder` wrote: no fault was planned, nothing is expected.

An invariant that needs what a Recorder cannot see (who was hurt, what the workers found, what was left behind) answers
NOT APPLICABLE with that reason; the others are judged as in an experiment. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from shaketable.chaos.fault_kinds import FAILURES, PREEMPTIONS
from shaketable.chaos.history.entries import End, Finale, Opening, Start
from shaketable.chaos.history.events import AnyEvent
from shaketable.chaos.history.view import History
from shaketable.chaos.invariants import INVARIANTS, Invariant
from shaketable.chaos.invariants.answering import answer
from shaketable.chaos.invariants.failure_budget import failure_budget
from shaketable.chaos.invariants.findings import counted, failed, not_applicable
from shaketable.chaos.invariants.liveness import liveness
from shaketable.chaos.invariants.resume_from_checkpoint import resume_from_checkpoint
from shaketable.chaos.plan import Finding, Judgement
from shaketable.chaos.verdict.views import viewed


def judge_recording(events: Sequence[AnyEvent]) -> Judgement:
    history = History(events)
    if not history.attempts:
        return Judgement("INVALID", "the recording holds no attempt, so there is nothing to judge")
    findings = tuple(_finding(invariant, history) for invariant in INVARIANTS.values())
    for finding in findings:
        if finding.status == "FAIL":
            return Judgement("FAIL", f"{finding.invariant}: {finding.reason}", findings)
    for finding in findings:
        if finding.status == "INVALID":
            return Judgement("INVALID", f"{finding.invariant}: {finding.reason}", findings)
    applied = sum(finding.status == "PASS" for finding in findings)
    said, notes = viewed("what the run did", lambda: [*_said(history)])
    return Judgement(
        "PASS", "; ".join([*(said or ()), f"{applied} of {len(findings)} invariants"]), findings, notes=notes
    )


def _finding(invariant: Invariant, history: History) -> Finding:
    if invariant is failure_budget and (wrong := next(_beyond_budget(history), None)) is not None:
        return failed(invariant.name, wrong)
    if invariant is resume_from_checkpoint and history.attempts[0].number > 1:
        why = "the beginning of the recording, with its commits, was rotated away"
        return not_applicable(invariant.name, why)
    ended = history.run_ended
    if invariant is liveness and ended is not None and ended.outcome == "interrupted":
        return not_applicable(invariant.name, "the run was interrupted")
    if invariant.unrecorded:
        return not_applicable(invariant.name, invariant.unrecorded)
    return answer(invariant, history)


def _beyond_budget(history: History) -> Iterator[str]:
    """Whatever was charged: on beyond a limit, or given up before one. (Ray Train's charges end with its driver.)"""
    spent: Counter[str] = Counter()
    account = ""
    for entry in history.entries:
        limits = history.settings(entry.term)
        limit = {FAILURES: limits.max_failures, PREEMPTIONS: limits.max_preemption_failures}.get(account, -1)
        over = spent[account] > limit >= 0
        charged = f"{spent[account]} charged to {account} of {limit}"
        match entry:
            case Opening():
                spent, account = Counter(), ""
            case End():
                account = entry.account or ""
                spent[account] += 1
            case Start() if over:
                yield f"the run went on with attempt {entry.attempt} ({entry.place}) with {charged}"
            case Finale(outcome="failed") if limit >= 0 and not over:
                yield f"the run gave up ({entry.place}) with {charged}"


def _said(history: History) -> Iterator[str]:
    ended, last = history.run_ended, history.attempts[-1]
    yield f"recorded: {counted(len(history.attempts), 'attempt')}"
    if ended is not None and ended.term == last.start.term:
        yield ended.outcome
    else:
        yield f"breaks off in {last.name} (still running, or its driver died without a word)"
