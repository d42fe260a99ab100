"""The verdict on a production run, from what `shaketable.Recorder` wrote: no fault was planned, nothing is expected.

An invariant that needs what a Recorder cannot see (who was hurt, what the workers found, what was left behind) answers
NOT APPLICABLE with that reason; the others are judged as in an experiment. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from shaketable.chaos.history import AnyEvent
from shaketable.chaos.invariants import INVARIANTS
from shaketable.chaos.invariants.entries import End, Finale, Opening, Start
from shaketable.chaos.invariants.findings import counted, failed, not_applicable
from shaketable.chaos.invariants.ledger import FAILURES, PREEMPTIONS
from shaketable.chaos.invariants.view import History
from shaketable.chaos.plan import Finding, Judgement

UNSEEN = {
    "durability": "a Recorder reads no checkpoint back",
    "failure-budget": "a Recorder sees no faults, so that nothing says what should have been charged",
    "sample-accounting": "a Recorder hears nothing of samples",
    "grow-back": "a Recorder does not see which nodes there were",
    "no-leaks": "a Recorder does not look at what a run leaves behind",
    "truthful-ending": "a Recorder does not see how a driver exits, nor who interrupted it",
    "metrics-match": "there is no run without faults to compare with",
}


def judge_recording(events: Sequence[AnyEvent]) -> Judgement:
    history = History(events)
    if not history.attempts:
        return Judgement("INVALID", "the recording holds no attempt: there is nothing to judge")
    findings = tuple(_finding(name, history) for name in INVARIANTS)
    for finding in findings:
        if finding.status == "FAIL":
            return Judgement("FAIL", f"{finding.invariant}: {finding.reason}", findings)
    applied = sum(finding.status == "PASS" for finding in findings)
    said = "; ".join([*_said(history), f"{applied} of {len(findings)} invariants"])
    return Judgement("PASS", said, findings)


def _finding(name: str, history: History) -> Finding:
    if name == "failure-budget" and (wrong := next(_beyond_budget(history), None)) is not None:
        return failed(name, wrong)
    if name == "resume-from-checkpoint" and history.attempts[0].number > 1:
        return not_applicable(name, "the beginning of the recording, with its commits, has been rotated away")
    ended = history.run_ended
    if name == "liveness" and ended is not None and ended.outcome == "interrupted":
        return not_applicable(name, "the run was interrupted")
    return not_applicable(name, UNSEEN[name]) if name in UNSEEN else INVARIANTS[name](history)


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
                yield f"the run went on with attempt {entry.attempt} ({entry.place}), with {charged}"
            case Finale(outcome="failed") if limit >= 0 and not over:
                yield f"the run gave up ({entry.place}), with {charged}"


def _said(history: History) -> Iterator[str]:
    ended, last = history.run_ended, history.attempts[-1]
    yield f"recorded: {counted(len(history.attempts), 'attempt')}"
    if ended is not None and ended.term == last.start.term:
        yield ended.outcome
    else:
        yield f"breaks off in {last.name} (still running, or its driver died without a word)"
