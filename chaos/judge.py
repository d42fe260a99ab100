"""The verdict on one experiment, from its history alone: FAIL > INVALID > PASS, with one sentence of reason.

FAIL: an invariant failed, or (where everything took place as planned) what the experiment expects was missed.
INVALID: the experiment did not take place as planned or the history lacks what a verdict needs; a broken
invariant weighs more, because it is a bug whatever else went wrong, and a missed expectation less, because it
needs the fault to have landed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from shaketable.chaos.history import (
    SCHEMA,
    AnyEvent,
    AttemptStarted,
    ControlFailed,
    ExperimentBegan,
    FaultHealed,
    FaultInjected,
    FaultMissed,
    FaultObserved,
    FaultTriggered,
    Healed,
    LeakCheck,
    RunConfigured,
    TermBegan,
)
from shaketable.chaos.invariants import INVARIANTS
from shaketable.chaos.invariants.durability import unprobed
from shaketable.chaos.invariants.failure_budget import charged
from shaketable.chaos.invariants.findings import counted
from shaketable.chaos.invariants.ledger import FAILURES, PREEMPTIONS, range_of
from shaketable.chaos.invariants.liveness import ended_s
from shaketable.chaos.invariants.view import Attempt, History
from shaketable.chaos.judge_recording import judge_recording
from shaketable.chaos.plan import Finding, Judgement, Verdict

HELP = ("add_node", "relaunch_driver")  # what takes nothing away
FIT_AGAIN = (
    "the script calls fit() again, for the run {!r}: one experiment watches one run, leave one fit() in it"
)
TOOK_PLACE = "took_place"  # the name of a gap, beside those of the verdict's arguments
NO_JOB = 2  # the exit code of a driver that could not load its job

__all__ = ["INVARIANTS", "TOOK_PLACE", "judge", "recovery_s", "steps_lost"]


def judge(events: Sequence[AnyEvent]) -> Judgement:
    """Pure: the same history always gets the same verdict."""
    began = [event for event in events if isinstance(event, ExperimentBegan)]
    if not began:
        return Judgement("INVALID", "the history does not say which experiment it is of")
    if began[0].schema != SCHEMA:
        return Judgement("INVALID", f"the history has schema {began[0].schema}, this version judges {SCHEMA}")
    if began[0].recorded:
        return judge_recording(events)
    if (void := next(_void(events), None)) is not None:
        return Judgement("INVALID", void)
    history = History(events)
    findings = tuple(invariant(history) for invariant in INVARIANTS.values())
    missed = _beyond_invariants(history)
    for finding in findings:
        if finding.status == "FAIL":
            return Judgement("FAIL", f"{finding.invariant}: {finding.reason}", findings, missed)
    for miss in missed:
        verdict: Verdict = "INVALID" if miss.invariant == TOOK_PLACE else "FAIL"
        return Judgement(verdict, miss.reason, findings, missed)
    return Judgement("PASS", _praise(history, findings), findings)


def metrics_differ(judgement: Judgement) -> bool:
    """Whether a second run without faults may change the verdict: only the comparison with the first one speaks against
    the run."""
    failed = [finding.invariant for finding in judgement.findings if finding.status == "FAIL"]
    return failed == ["metrics-match"]


def _beyond_invariants(history: History) -> tuple[Finding, ...]:
    """What the experiment expects counts only where it took place."""
    if (lacking := next(_lacking(history), None)) is not None:
        return (Finding(TOOK_PLACE, "FAIL", lacking),)
    return tuple(Finding(argument, "FAIL", reason) for argument, reason in _missed(history))


# ---- INVALID -------------------------------------------------------------------------------------------------


def _void(events: Sequence[AnyEvent]) -> Iterator[str]:
    """What makes an experiment with a job of one's own none at all, whatever was seen in it."""
    for failed in events:
        if isinstance(failed, ControlFailed):
            yield failed.reason
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


def _lacking(history: History) -> Iterator[str]:
    """What did not take place, or was not recorded."""
    for missed in history.all(FaultMissed):
        yield f"{missed.name} did not land: {missed.reason}"
    observed = {event.fault for event in history.all(FaultObserved)}
    begun = {event.fault: event.name for event in history.all(FaultTriggered)}
    begun |= {event.fault: event.name for event in history.all(FaultInjected)}
    for number, name in begun.items():
        if number not in observed:
            yield f"{name} (fault {number}) was begun, but there is no evidence that it landed"
    if not history.launches:
        yield "no driver was ever started"
    for launch in history.launches:
        if launch.exited is not None and launch.exited.code == NO_JOB:
            yield "the driver could not load the job (exit code 2), see its log"
    if not history.all(AttemptStarted) and not history.attempts:
        yield "the run never started an attempt"
    if not history.all(TermBegan):
        yield "no driver testified that it took the run over"
    if ended_s(history) is None or history.launches[-1].exited is None:
        yield "the history breaks off before the run's end"
    if history.subject == "bundled" and history.all(TermBegan) and not history.has_log:
        yield "the run log was not read back from storage"
    for commit in unprobed(history):
        yield f"nobody tried to restore {commit.checkpoint} ({commit.place})"
    if not history.all(Healed):
        yield "the history does not say since when everything was healed"
    if not history.all(LeakCheck):
        yield "nobody looked what the run left behind"


# ---- what the experiment expects -----------------------------------------------------------------------------


def _missed(history: History) -> Iterator[tuple[str, str]]:
    """The argument of `verdict` that did not come true, and what was seen instead."""
    expect, ended = history.expect, history.run_ended
    outcome = ended.outcome if ended is not None else "nothing"
    if outcome != expect.outcome:
        error = f": {ended.error}" if ended is not None and ended.error else ""
        yield (
            "outcome",
            f"expected the run to be {expect.outcome}, fit() said {outcome}{_hint(history)}{error}",
        )
    for wrong in _wrongly_charged(history, charged(history)):
        yield "charged", wrong
    lost = steps_lost(history)
    if expect.steps_lost is not None and lost > expect.steps_lost:
        yield "steps_lost", f"expected at most {counted(expect.steps_lost, 'step')} lost, the run lost {lost}"


def _hint(history: History) -> str:
    """The most usual reason why a script does not survive its first fault."""
    if not history.script or history.configuration.max_failures or not charged(history)[FAILURES]:
        return ""
    return (
        " (the script allows no failure: add failure_config=ray.train.FailureConfig(max_failures=1) to its"
        " ray.train.RunConfig)"
    )


def _wrongly_charged(history: History, actual: Counter[str]) -> Iterator[str]:
    """Exactly as expected, unless the ledger allows either count (a fault near an attempt's border). Failures
    to start are the ledger's alone unless the experiment names them: how many tries a lost node costs is
    chance."""
    for account in sorted({FAILURES, PREEMPTIONS, *history.expect.charged}):
        wanted = history.expect.charged.get(account, 0)
        least, most = range_of(history, account)
        either = least <= min(wanted, actual[account]) and max(wanted, actual[account]) <= most
        if actual[account] != wanted and not either:
            yield f"expected {wanted} charged to {account}, the run charged {actual[account]}"


def steps_lost(history: History) -> int:
    """How many step executions of rank 0 were repetitions: for each step, the number of attempts in which
    rank 0 testified it, less one. What a zombie does after its successor's first step is not counted."""
    done: Counter[int] = Counter()
    for attempt in history.attempts:
        until_s = _superseded_s(history, attempt)
        steps = (step for step in attempt.steps.get(0, []) if step.at_s <= until_s)
        done.update({number for step in steps for number in range(step.first, step.step + 1)})
    return sum(count - 1 for count in done.values())


def _superseded_s(history: History, attempt: Attempt) -> float:
    following = history.following(attempt)
    steps = [step.at_s for step in following.steps.get(0, [])] if following is not None else []
    return min(steps, default=float("inf"))


# ---- PASS ----------------------------------------------------------------------------------------------------


def _praise(history: History, findings: Sequence[Finding]) -> str:
    """`resumed at 12 from commit 11; 1 of 1 charged; back in 0.09 s; 9 of 12 invariants`"""
    applied = sum(finding.status == "PASS" for finding in findings)
    parts = [*_resumes(history), *_charges(history), *_back(history)]
    return "; ".join([*parts, f"{applied} of {len(findings)} invariants"])


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
    return (
        f"resumed from the commit of report {commit.index}" if commit is not None else "resumed from scratch"
    )


def _charges(history: History) -> Iterator[str]:
    actual, wanted = charged(history), history.expect.charged
    yield f"{sum(actual.values())} of {sum(wanted.values())} charged"


def _back(history: History) -> Iterator[str]:
    took_s = recovery_s(history)
    if took_s is not None:
        yield f"back in {took_s:.2f} s"


def recovery_s(history: History) -> float | None:
    """From the last disruptive fault to the first step of an attempt that began after it; None without
    one."""
    healed = {event.fault for event in history.all(FaultHealed)}
    for fault in reversed([event for event in history.all(FaultInjected) if event.name not in HELP]):
        after = [a for a in history.attempts if a.begin_s > fault.at_s]
        steps = [step.at_s for attempt in after for steps in attempt.steps.values() for step in steps]
        if steps and (fault.name != "freeze_worker" or fault.fault not in healed):
            return min(steps) - fault.at_s
    return None
