"""resume-from-checkpoint: every attempt goes on from the latest commit before it, on every rank, with the
state that was recorded when that commit was made; from scratch only where nothing had been committed.

Order is that of the log (or of the controller's events): a commit recorded after an attempt's start does
not count against it. A job of the user's own says nothing of what it found; with a step key its first report after
a resume shows whether it goes on where that checkpoint was made (`resumed_steps.py`).
"""

from __future__ import annotations

from shaketable.chaos.history.entries import Commit
from shaketable.chaos.history.events import Resumed
from shaketable.chaos.history.view import CLOCK_SKEW_S, Attempt, History
from shaketable.chaos.invariants.findings import counted, failed, invariant, not_applicable, passed
from shaketable.chaos.invariants.resumed_steps import wrong_first_step
from shaketable.chaos.plan import Finding

NAME = "resume-from-checkpoint"


@invariant(NAME, order=10)
def resume_from_checkpoint(history: History) -> Finding:
    if not history.attempts:
        return not_applicable(NAME, "no attempt was recorded")
    gives = any(step.checkpoint for a in history.attempts for steps in a.steps.values() for step in steps)
    if not history.has_log and gives and not history.commits:
        return not_applicable(NAME, "the subject does not record its commits")
    for attempt in history.attempts:
        if (wrong := _wrong(history, attempt)) is not None:
            return failed(NAME, wrong)
    resumed = [attempt for attempt in history.attempts if attempt.start.resume is not None]
    if not resumed:
        return not_applicable(NAME, "no attempt resumed from a checkpoint")
    return passed(NAME, f"{counted(len(resumed), 'attempt')} resumed from the latest commit before it")


def _wrong(history: History, attempt: Attempt) -> str | None:
    latest = history.latest_commit(attempt.start.position)
    if attempt.start.resume is None and (lost := _given_up(history, attempt)):
        return f"{attempt.name} started from scratch after {lost} was quarantined as corrupt"
    if attempt.start.resume != (latest.checkpoint if latest else None):
        if _committed_unseen(history, attempt, latest):
            return None
        return f"{attempt.name} resumed from {_named(attempt.start.resume)}, {_latest(latest, attempt)}"
    return (
        _wrong_given(history, attempt)
        or _wrong_state(history, attempt, latest)
        or wrong_first_step(history, attempt, latest)
    )


def _given_up(history: History, attempt: Attempt) -> str:
    """A checkpoint that was quarantined before this attempt: then there is no beginning any more."""
    return min(history.quarantined_checkpoints(attempt.start.position), default="")


def _named(checkpoint: str | None) -> str:
    return "scratch" if checkpoint is None else checkpoint


def _latest(commit: Commit | None, attempt: Attempt) -> str:
    if commit is None:
        return "but nothing had been committed"
    if commit.term < attempt.start.term and commit.at_s > attempt.begin_s + CLOCK_SKEW_S:
        late_s = commit.at_s - attempt.begin_s
        return (
            f"and {late_s:.1f} s after it began the driver of term {commit.term}, an earlier one, committed"
            f" {commit.checkpoint} at index {commit.index}"
        )
    return f"but the latest commit before it was {commit.checkpoint} at index {commit.index} ({commit.place})"


def _committed_unseen(history: History, attempt: Attempt, latest: Commit | None) -> bool:
    """Without a log, a driver may die between its last commit and its events of it: then the next term
    resumes from a state that was recorded by workers, later than the last recorded commit."""
    before = [a for a in history.attempts if a.start.position < attempt.start.position]
    if history.has_log or attempt.start.resume is None or not before or before[-1].start.term == attempt.start.term:
        return False
    known = {(s.step, s.digest) for a in before for steps in a.steps.values() for s in steps if s.checkpoint}
    later = [r for r in attempt.resumed if r.step > (latest.index if latest else 0)]
    return bool(later) and len(later) == len(attempt.resumed) and all((r.step, r.digest) in known for r in later)


def _wrong_given(history: History, attempt: Attempt) -> str | None:
    """The workers were given what the controller said."""
    names = {commit.checkpoint for commit in history.commits}
    for worker in attempt.workers:
        given = worker.resume.rstrip("/").rsplit("/", 1)[-1] if worker.resume is not None else None
        differs = (given is None) != (attempt.start.resume is None)
        if differs or (given in names and given != attempt.start.resume):
            return (
                f"rank {worker.rank} of {attempt.name} was given {_named(given)},"
                f" but the attempt resumes from {_named(attempt.start.resume)}"
            )
    return None


def _wrong_state(history: History, attempt: Attempt, latest: Commit | None) -> str | None:
    """What the job found is what was recorded for that commit."""
    if history.records_state and (silent := _silent(attempt)) is not None:
        return f"rank {silent} of {attempt.name} took steps but did not record what it resumed"
    if not attempt.resumed:
        return None
    if latest is None:
        return _not_from_scratch(history, attempt)
    expected = history.committed_step(latest)
    if expected is None:
        return f"commit {latest.checkpoint} ({latest.place}): no checkpoint was recorded at step {latest.index}"
    for found in attempt.resumed:
        if (found.step, found.digest) != (expected.step, expected.digest):
            return (
                f"rank {found.rank} of {attempt.name} found {_state(found)} in {latest.checkpoint},"
                f" but step {expected.step} with digest {_short(expected.digest)} was committed"
            )
    return None


def _silent(attempt: Attempt) -> int | None:
    return min(attempt.steps.keys() - {found.rank for found in attempt.resumed}, default=None)


def _not_from_scratch(history: History, attempt: Attempt) -> str | None:
    known = history.lineage(0)
    for found in attempt.resumed:
        if found.step != 0 or (known is not None and found.digest != known[0]):
            return f"rank {found.rank} of {attempt.name} began at {_state(found)}, but nothing had been committed"
    return None


def _state(found: Resumed) -> str:
    return f"step {found.step} with digest {_short(found.digest)}"


def _short(digest: str | None) -> str:
    return "none" if digest is None else digest[:8]
