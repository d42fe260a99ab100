"""The verdict on one experiment, from its history alone: FAIL > INVALID > PASS, with one sentence of reason.

FAIL: an invariant failed, the subject's own checks stopped it, or (where everything took place as planned) what the
experiment expects was missed.
INVALID: the experiment did not take place as planned or the history lacks what a verdict needs; a broken
invariant weighs more, because it is a bug whatever else went wrong, and a missed expectation less, because it
needs the fault to have landed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from shaketable.chaos.fault_kinds import FAILURES, PREEMPTIONS, is_known
from shaketable.chaos.history.events import (
    SCHEMA,
    AnyEvent,
    ControlFailed,
    ExperimentBegan,
    FaultInjected,
    HistoryError,
    RunConfigured,
    RunEnded,
    SubjectBroke,
)
from shaketable.chaos.history.view import History
from shaketable.chaos.invariants import INVARIANTS
from shaketable.chaos.invariants.answering import answer
from shaketable.chaos.invariants.failure_budget import charged
from shaketable.chaos.invariants.findings import counted
from shaketable.chaos.invariants.ledger import range_of
from shaketable.chaos.invariants.metrics_match import metrics_match
from shaketable.chaos.plan import Finding, Judgement, Verdict
from shaketable.chaos.verdict.carried_out import contradictions, lacking, missed_help
from shaketable.chaos.verdict.recorded_runs import judge_recording
from shaketable.chaos.verdict.recoveries import recovery_s, steps_lost, too_slow
from shaketable.chaos.verdict.views import broke, heard, viewed

FIT_AGAIN = "the script calls fit() again, for the run {!r}: one experiment watches one run, leave one fit() in it"
# the name of a gap, beside those of the verdict's arguments
CARRIED_OUT = "carried_out"
# stands for the subject's own checks among the invariants
RUNTIME = "runtime"

__all__ = ["CARRIED_OUT", "INVARIANTS", "judge", "recovery_s", "steps_lost"]


# What a run cannot do without the help that was planned for it.
NEEDS_HELP = ("liveness", "grow-back", "truthful-ending")


def judge(told: Sequence[AnyEvent] | History, damage: str = "") -> Judgement:
    """Pure: the same history always gets the same verdict. `damage`: what is wrong with the file it was read from."""
    events = told.events if isinstance(told, History) else told
    began = [event for event in events if isinstance(event, ExperimentBegan)]
    if not began:
        return Judgement("INVALID", "the history does not say which experiment it is of")
    if began[0].schema != SCHEMA:
        return Judgement("INVALID", f"the history has schema {began[0].schema}, this version judges {SCHEMA}")
    if damage:
        return Judgement("INVALID", f"the history was changed after it was written: {damage}")
    if began[0].recorded:
        return judge_recording(events)
    doubts = heard("the first look at the history", lambda: itertools.chain(_void(events), contradictions(events)))
    if (void := next(doubts, None)) is not None:
        return Judgement("INVALID", void)
    try:
        history = History.indexed(told)
    except HistoryError as error:
        return Judgement("INVALID", f"the history cannot be read: {error}")
    return _judged(history)


def _judged(history: History) -> Judgement:
    judgement = _verdict(history)
    exceeded, notes = viewed("what was too slow", lambda: tuple(too_slow(history)))
    return replace(judgement, exceeded=exceeded or (), notes=(*judgement.notes, *notes))


def _verdict(history: History) -> Judgement:
    findings = tuple(answer(invariant, history) for invariant in INVARIANTS.values())
    missed = _beyond_invariants(history)
    unhelped = missed_help(history)
    if broke := history.all(SubjectBroke):
        # whatever else was seen is a consequence
        finding = Finding(RUNTIME, "FAIL", broke[0].error)
        return Judgement("FAIL", f"{RUNTIME}: {finding.reason}", (finding, *findings), missed)
    for finding in findings:
        if finding.status == "FAIL" and not (unhelped and finding.invariant in NEEDS_HELP):
            return Judgement("FAIL", f"{finding.invariant}: {finding.reason}", findings, missed)
    for finding in findings:
        if finding.status == "INVALID":
            return Judgement("INVALID", f"{finding.invariant}: {finding.reason}", findings, missed)
    for miss in missed:
        verdict: Verdict = "INVALID" if miss.invariant == CARRIED_OUT else "FAIL"
        return Judgement(verdict, miss.reason, findings, missed)
    applied = f"{sum(finding.status == 'PASS' for finding in findings)} of {len(findings)} invariants"
    said, notes = viewed("what the run did", lambda: _praise(history))
    return Judgement("PASS", "; ".join([*(said or ()), applied]), findings, notes=notes)


def metrics_differ(judgement: Judgement) -> bool:
    """Whether a second run without faults may change the verdict: only the comparison with the first one speaks against
    the run."""
    failed = [finding.invariant for finding in judgement.findings if finding.status == "FAIL"]
    return failed == [metrics_match.name]


def _beyond_invariants(history: History) -> tuple[Finding, ...]:
    """What the experiment expects counts only where it took place."""
    if reason := next(lacking(history), ""):
        return (Finding(CARRIED_OUT, "FAIL", reason),)
    try:
        missed = tuple(Finding(argument, "FAIL", reason) for argument, reason in _missed(history))
        return missed or tuple(Finding(CARRIED_OUT, "FAIL", reason) for reason in _unproved(history))
    except Exception as error:  # noqa: BLE001  (the invariants have been heard, and stay so)
        reason = f"what is expected was not compared: {broke(error)} (a bug in shaketable)"
        return (Finding(CARRIED_OUT, "FAIL", reason),)


# ---- INVALID -------------------------------------------------------------------------------------------------


def _void(events: Sequence[AnyEvent]) -> Iterator[str]:
    """What makes an experiment none at all, whatever was seen in it: a fault that nobody here knows; and, with a job of
    one's own, a job that fails without faults, or whose runs are not one."""
    for failed in events:
        if isinstance(failed, ControlFailed):
            yield failed.reason
    for fault in events:
        if isinstance(fault, FaultInjected) and not is_known(fault.name):
            yield f"no fault is called {fault.name!r} here: install the package that declares it"
    seen = [event for event in events if isinstance(event, RunConfigured)]
    for before, after in itertools.pairwise(seen):
        if before.term == after.term:
            yield FIT_AGAIN.format(after.name)
        elif (before.name, before.storage_path) != (after.name, after.storage_path):
            yield _not_fixed(before, after)


def _not_fixed(before: RunConfigured, after: RunConfigured) -> str:
    what = "name" if before.name != after.name else "storage_path"
    one, other = getattr(before, what), getattr(after, what)
    return (
        f"the driver launched again has another run {what} ({one}, then {other}), so it cannot resume: the script needs"
        ' run_config=ray.train.RunConfig(name="my-run", storage_path="/where/it/stays") in its trainer'
    )


# ---- what the experiment expects -----------------------------------------------------------------------------


def _missed(history: History) -> Iterator[tuple[str, str]]:
    """The argument of `verdict` that did not come true, and what was seen instead."""
    expect, ended = history.expect, history.run_ended
    outcome = ended.outcome if ended is not None else "nothing"
    if outcome != expect.outcome and not _ended_by_chance(history, outcome):
        error = f": {ended.error}" if ended is not None and ended.error else ""
        yield ("outcome", f"expected the run to be {expect.outcome}, fit() said {outcome}{_hint(history)}{error}")
    if ended is not None and (wrong_driver := _another_driver(history, ended)):
        yield "driver", wrong_driver
    for wrong in _wrongly_charged(history):
        yield "charged", wrong
    largest = max((attempt.world_size for attempt in history.attempts), default=0)
    if expect.world_size not in (None, largest):
        wanted = counted(expect.world_size, "worker")
        yield "world_size", f"expected an attempt with {wanted}, and none with more; the largest had {largest}"
    lost = steps_lost(history)
    if expect.steps_lost is not None and lost > expect.steps_lost:
        yield "steps_lost", f"expected at most {counted(expect.steps_lost, 'step')} lost, the run lost {lost}"


def _ended_by_chance(history: History, outcome: str) -> bool:
    """Whether a limit was exceeded, or was not, only because of a count of which the ledger allows both. A charge to
    another account than expected is no count."""
    missed = list(_charges_missed(history))
    if {outcome, history.expect.outcome} != {"finished", "failed"} or len(missed) != 1:
        return False
    account, wanted, actual, either = missed[0]
    limits = {FAILURES: history.configuration.max_failures, PREEMPTIONS: history.configuration.max_preemption_failures}
    limit = limits.get(account, -1)
    return either and limit >= 0 and (wanted > limit) != (actual > limit)


def _another_driver(history: History, ended: RunEnded) -> str:
    launch = history.driver_life_of(ended)
    driver = launch.started.launch + 1 if launch is not None else 0
    if history.expect.driver in (None, driver):
        return ""
    return f"expected driver {history.expect.driver} to come to the end of the run, driver {driver} did"


def _hint(history: History) -> str:
    """The most usual reason why a script does not survive its first fault."""
    if not history.script or history.configuration.max_failures or not charged(history)[FAILURES]:
        return ""
    return (
        " (the script allows no failure: add failure_config=ray.train.FailureConfig(max_failures=1) to its"
        " ray.train.RunConfig)"
    )


def _wrongly_charged(history: History) -> Iterator[str]:
    """Exactly as expected. Failures to start are the ledger's alone unless the experiment names them: how many tries
    a lost node costs is chance."""
    for account, wanted, actual, either in _charges_missed(history):
        if not either:
            yield f"expected {wanted} charged to {account}, the run charged {actual}"


def _unproved(history: History) -> Iterator[str]:
    """Another count than expected, where the ledger allows both (a fault near an attempt's border)."""
    for account, wanted, actual, either in _charges_missed(history):
        if either:
            yield (
                f"expected {wanted} charged to {account}, the run charged {actual}, and both are right when the fault"
                " landed (near an attempt's border, or with nothing left to do): it proves nothing"
            )


def _charges_missed(history: History) -> Iterator[tuple[str, int, int, bool]]:
    """Account, the count expected, the count charged, and whether the ledger allows both; only where they differ."""
    counts = charged(history)
    for account in sorted({FAILURES, PREEMPTIONS, *history.expect.charged}):
        wanted, actual = history.expect.charged.get(account, 0), counts[account]
        if actual != wanted:
            least, most = range_of(history, account)
            yield account, wanted, actual, least <= min(wanted, actual) and max(wanted, actual) <= most


# ---- PASS ----------------------------------------------------------------------------------------------------


def _praise(history: History) -> list[str]:
    """`resumed at 12 from commit 11`, `1 of 1 charged`, `back in 0.09 s`"""
    return [*_resumes(history), *_charges(history), *_back(history)]


def _resumes(history: History) -> Iterator[str]:
    again = [attempt for attempt in history.attempts[1:] if attempt.resumed]
    if history.own_job and (said := _resumed_reports(history)):
        yield said
        return
    if not again:
        ended = history.run_ended
        yield f"{ended.outcome if ended else 'ended'} in {counted(len(history.attempts), 'attempt')}"
        return
    step = again[-1].resumed[0].step
    yield f"resumed at {step + 1} from {f'commit {step}' if step else 'scratch'}"


def _resumed_reports(history: History) -> str:
    """`resumed from the commit of report 2`: all that is known of a job that does not say what it found."""
    if len(history.attempts) < 2:
        return ""
    last = history.attempts[-1].start
    commit = history.latest_commit(last.position) if last.resume is not None else None
    return f"resumed from the commit of report {commit.index}" if commit is not None else "resumed from scratch"


def _charges(history: History) -> Iterator[str]:
    actual, wanted = charged(history), history.expect.charged
    yield f"{sum(actual.values())} of {sum(wanted.values())} charged"


def _back(history: History) -> Iterator[str]:
    took_s = recovery_s(history)
    if took_s is not None:
        yield f"back in {took_s:.2f} s"
