"""sample-accounting: on the lineage that survived, every step from the first to the last was done exactly
once, on exactly its samples.

For the hash-chain job and the JAX job the digest after each step is computed here from the configuration
alone; nothing that a worker says is trusted. Within an attempt each rank counts on without gap from what it
resumed, and the ranks of one step share its global batch out without overlap. Steps repeated after a loss are
judged by what they made, not forbidden; after a hold there are none (`held_steps.py`). Of a user's own job there are
reports only; they are counted against those of its run without faults (`resumed_steps.py`).
"""

from __future__ import annotations

import itertools

from shaketable.chaos.history.events import Stepped
from shaketable.chaos.history.view import Attempt, History, report_index
from shaketable.chaos.invariants.findings import counted, failed, invariant, not_applicable, passed
from shaketable.chaos.invariants.held_steps import lost_in_a_hold
from shaketable.chaos.invariants.resumed_steps import began_again, one_world
from shaketable.chaos.plan import Finding

NAME = "sample-accounting"
SILENT = "the job records neither samples nor digests"


@invariant(NAME, order=70, unrecorded="a Recorder hears nothing of samples")
def sample_accounting(history: History) -> Finding:
    steps = [step for a in history.attempts for each in a.steps.values() for step in each]
    if not any(step.samples is not None or step.digest is not None for step in steps):
        return _by_reports(history) if history.own_job else not_applicable(NAME, SILENT)
    looks = (_wrong_count, _wrong_shares, _wrong_end, lost_in_a_hold)
    wrong = _wrong_digest(history, steps) or next(filter(None, (look(history) for look in looks)), None)
    if wrong is not None:
        return failed(NAME, wrong)
    last = max(step.step for step in steps)
    done = sum(max(map(_length, each.steps.values()), default=0) for each in history.attempts)
    return passed(NAME, f"{counted(last, 'step')} accounted for, {done - last} of them done more than once")


def _length(steps: list[Stepped]) -> int:
    return sum(step.step - step.first + 1 for step in steps)


def _by_reports(history: History) -> Finding:
    if (wrong := began_again(history)) is not None:
        return failed(NAME, wrong)
    ended, whole = history.run_ended, {len(control.steps) for control in history.controls}
    if not whole or ended is None or ended.outcome != "finished":
        return not_applicable(NAME, f"{SILENT}, and there is no complete baseline to count its reports against")
    if len(whole) > 1:
        return not_applicable(NAME, f"{SILENT}, and two baselines differ in their number of reports")
    if not one_world(history):
        return not_applicable(NAME, f"{SILENT}, and at another world size a run may report more or less often")
    last = max((report_index(step) for step in history.attempts[-1].steps.get(0, [])), default=0)
    if last != (expected := whole.pop()):
        return not_applicable(
            NAME,
            f"{SILENT}; the run needed {last} reports, the baseline {expected}: if a metric counts steps,"
            " name it with --step-key",
        )
    return passed(NAME, f"{counted(last, 'report')}, as in the baseline; the job records no samples")


def _wrong_digest(history: History, steps: list[Stepped]) -> str | None:
    reference = history.lineage(max(step.step for step in steps))
    if reference is None:
        return None
    for step in steps:
        if step.digest != reference[step.step]:
            return (
                f"rank {step.rank} of attempt {step.attempt} had digest {str(step.digest)[:8]} after step"
                f" {step.step}, but it must be {reference[step.step][:8]}"
            )
    return None


def _wrong_count(history: History) -> str | None:
    """Within each attempt and rank: one after the other, from what was resumed."""
    for attempt in history.attempts:
        resumed = {event.rank: event.step for event in attempt.resumed}
        for rank, steps in sorted(attempt.steps.items()):
            before = resumed.get(rank, steps[0].first - 1)
            for step in steps:
                if step.first != before + 1:
                    return f"rank {rank} of {attempt.name} took step {step.step} after step {before}"
                before = step.step
    return None


def _wrong_shares(history: History) -> str | None:
    for attempt in history.attempts:
        committed = {commit.index for commit in attempt.commits}
        by_step: dict[int, list[Stepped]] = {}
        for step in itertools.chain(*attempt.steps.values()):
            by_step.setdefault(step.step, []).append(step)
        for number, steps in sorted(by_step.items()):
            if (wrong := _wrong_share(history, attempt, steps, number in committed)) is not None:
                return f"step {number} of {attempt.name}: {wrong}"
    return None


def _wrong_share(history: History, attempt: Attempt, steps: list[Stepped], committed: bool) -> str | None:
    if any(step.samples is None for step in steps):
        return None
    ranks = {step.rank for step in steps}
    whole = len(ranks) == attempt.world_size
    if committed and history.records_state and not whole:
        return f"committed, but only ranks {sorted(ranks)} of {attempt.world_size} recorded it"
    samples = [sample for step in steps for sample in step.samples or []]
    if len(set(samples)) != len(samples):
        twice = next(sample for sample in samples if samples.count(sample) > 1)
        return f"sample {twice} was consumed twice"
    expected = history.samples(steps[0].step)
    if expected is None:
        return None
    if extra := set(samples).difference(expected):
        return f"sample {min(extra)} does not belong to it"
    if whole and (missing := set(expected).difference(samples)):
        return f"sample {min(missing)} is missing"
    return None


def _wrong_end(history: History) -> str | None:
    """Of a finished run: no gap on the way back from the end to the beginning, and the right digest at the
    end."""
    ended, planned = history.run_ended, history.planned_steps
    if ended is None or ended.outcome != "finished" or planned is None:
        return None
    if (gap := _gap(history, planned)) is not None:
        return gap
    reference, found = history.lineage(planned), (ended.metrics or {}).get("digest")
    if reference is not None and found != reference[planned]:
        expected = reference[planned][:8]
        return f"the run finished with digest {str(found)[:8]}, but after {planned} steps it must be {expected}"
    return None


def _gap(history: History, planned: int) -> str | None:
    needed = planned
    for attempt in reversed(history.attempts):
        done = attempt.steps.get(0, [])
        # contiguous, by _wrong_count
        if done and done[0].first <= needed <= done[-1].step:
            needed = done[0].first - 1
        if needed == 0:
            return None
    last = max((steps[-1].step for attempt in history.attempts if (steps := attempt.steps.get(0))), default=0)
    if last < planned:
        return f"the run finished, but the last step that was done is {last} of {planned}"
    return f"no attempt did step {needed}, but the run finished with {planned} steps"
