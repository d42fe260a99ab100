"""sample-accounting: on the lineage that survived, every step from the first to the last was done exactly
once, on exactly its samples.

For the hash-chain job the digest after each step is computed here from the configuration alone; nothing that
a worker says is trusted. Within an attempt each rank counts on without gap from what it resumed, and the
ranks of one step share its global batch out without overlap. Steps repeated after a loss are judged by what
they made, not forbidden.
"""

from __future__ import annotations

import itertools

from shaketable.chaos.history import Stepped
from shaketable.chaos.invariants.findings import counted, failed, not_applicable, passed
from shaketable.chaos.invariants.view import Attempt, History
from shaketable.chaos.plan import Finding
from shaketable.chaos.workloads.chain import ChainConfig, batch, lineage

NAME = "sample-accounting"


def sample_accounting(history: History) -> Finding:
    steps = [step for a in history.attempts for each in a.steps.values() for step in each]
    if not any(step.samples is not None or step.digest is not None for step in steps):
        return not_applicable(NAME, "the job testifies neither samples nor digests")
    wrong = (
        _wrong_digest(history, steps)
        or _wrong_count(history)
        or _wrong_shares(history)
        or _wrong_end(history)
    )
    if wrong is not None:
        return failed(NAME, wrong)
    last = max(step.step for step in steps)
    done = sum(max(map(_length, each.steps.values()), default=0) for each in history.attempts)
    return passed(NAME, f"{counted(last, 'step')} accounted for, {done - last} of them done more than once")


def _length(steps: list[Stepped]) -> int:
    return sum(step.step - step.first + 1 for step in steps)


def _wrong_digest(history: History, steps: list[Stepped]) -> str | None:
    if not history.hash_chained:
        return None
    last = max(step.step for step in steps)
    reference = lineage(ChainConfig.of(history.configuration.job_config), last)
    for step in steps:
        if step.digest != reference[step.step]:
            return (
                f"rank {step.rank} of attempt {step.attempt} had digest {str(step.digest)[:8]} after step"
                f" {step.step}, it must be {reference[step.step][:8]}"
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
    if committed and history.testifies_state and not whole:
        return f"committed, but only ranks {sorted(ranks)} of {attempt.world_size} testified it"
    samples = [sample for step in steps for sample in step.samples or []]
    if len(set(samples)) != len(samples):
        twice = next(sample for sample in samples if samples.count(sample) > 1)
        return f"sample {twice} was consumed twice"
    if not history.hash_chained:
        return None
    expected = set(batch(steps[0].step, ChainConfig.of(history.configuration.job_config)))
    if extra := set(samples) - expected:
        return f"sample {min(extra)} does not belong to it"
    if whole and (missing := expected - set(samples)):
        return f"sample {min(missing)} was left out"
    return None


def _wrong_end(history: History) -> str | None:
    """Of a finished run: no gap on the way back from the end to the beginning, and the right digest at the
    end."""
    ended, planned = history.run_ended, history.planned_steps
    if ended is None or ended.outcome != "finished" or planned is None:
        return None
    if (gap := _gap(history, planned)) is not None:
        return gap
    if history.hash_chained:
        expected = lineage(ChainConfig.of(history.configuration.job_config), planned)[planned]
        found = (ended.metrics or {}).get("digest")
        if found != expected:
            return f"the run finished with digest {str(found)[:8]}, after {planned} steps it must be {expected[:8]}"
    return None


def _gap(history: History, planned: int) -> str | None:
    needed = planned
    for attempt in reversed(history.attempts):
        done = attempt.steps.get(0, [])
        if done and done[0].first <= needed <= done[-1].step:  # contiguous, by _wrong_count
            needed = done[0].first - 1
        if needed == 0:
            return None
    return f"no attempt did step {needed}, on the way to the {planned} that the run finished with"
