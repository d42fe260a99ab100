"""What the reports of a user's own job show about where it went on: by their steps where `step_key` names one, else by
how many there were. The rules are in docs/semantics.md; whatever leaves room for a healthy job is not judged.

With a step key: an attempt that resumes from a checkpoint reported with step s must report next, on every rank, either
s again (it may have been saved before the step was done) or the step that follows s in the run without faults. Where
the world size is another one, steps may be counted otherwise; then only the very first step of a run is wrong.
Without one: an attempt that resumes from the commit of report k and then makes as many reports as a whole run without
faults has begun again.
"""

from __future__ import annotations

from shaketable.chaos.history.entries import Commit
from shaketable.chaos.history.events import Stepped
from shaketable.chaos.history.view import Attempt, History


def wrong_first_step(history: History, attempt: Attempt, latest: Commit | None) -> str | None:
    key = history.configuration.step_key
    if not key or latest is None or history.records_state:
        return None
    committed = history.committed_step(latest)
    made_in = history.attempt(latest.term, latest.attempt)
    if committed is None or committed.unkeyed or made_in is None:
        return None
    for rank, steps in sorted(attempt.steps.items()):
        first = steps[0]
        if first.unkeyed:
            continue
        same = made_in.world_size == attempt.world_size
        wrong = _wrong(history, attempt, committed.step, first) if same else _over(history, committed.step, first)
        if wrong is not None:
            return (
                f"rank {rank} of {attempt.name} continued with {key} {first.step} after resuming from"
                f" {latest.checkpoint}, which was reported with {key} {committed.step}: {wrong}"
            )
    return None


def _wrong(history: History, attempt: Attempt, committed: int, first: Stepped) -> str | None:
    if first.step < committed:
        return "work of that checkpoint was done again"
    following = _following(history, attempt, committed)
    if following is not None and first.step > following:
        return f"in the baseline {following} follows, so work was skipped"
    return None


def _over(history: History, committed: int, first: Stepped) -> str | None:
    began = [control.steps[0] for control in history.controls if control.steps]
    if began and first.step <= min(began) < committed:
        return "it started over"
    return None


def _following(history: History, attempt: Attempt, committed: int) -> int | None:
    """What comes after that step in a run without faults of the same world; None: that is not known."""
    for control in history.controls:
        later = [step for step in control.steps if step > committed]
        if control.world_sizes == [attempt.world_size] and later:
            return min(later)
    return None


def began_again(history: History) -> str | None:
    """Judged where every attempt and every run without faults had one and the same world: else there may be as many
    reports for another reason."""
    whole = max((len(control.steps) for control in history.controls), default=0)
    if not whole or not one_world(history):
        return None
    for attempt in history.attempts:
        resumed_from = history.latest_commit(attempt.start.position)
        if attempt.start.resume is None or resumed_from is None:
            continue
        made = len(attempt.steps.get(0, []))
        if made >= whole:
            return (
                f"{attempt.name} resumed from {resumed_from.checkpoint}, the commit of report {resumed_from.index}, and"
                f" made {made} reports after it; the whole baseline makes {whole}: it started over"
            )
    return None


def one_world(history: History) -> bool:
    sizes = {attempt.world_size for attempt in history.attempts}
    return len(sizes) == 1 and all(set(control.world_sizes) == sizes for control in history.controls)
