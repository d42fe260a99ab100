"""durability: every commit that was not recorded as deleted can be restored, with the state that was
committed.

The harness reads each one back after the run, through the subject's own reader. A commit that it did not try
makes the experiment INVALID (`judge.py`), not this invariant pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from shaketable.chaos.fault_kinds import kind_of
from shaketable.chaos.history.entries import Commit, Deletion, QuarantinedCheckpoint, Reinstatement, Start
from shaketable.chaos.history.events import MOST_FILES, CheckpointProbed, FaultInjected, LogRecord, UploadStarted
from shaketable.chaos.history.view import CLOCK_SKEW_S, History
from shaketable.chaos.invariants.findings import counted, failed, invariant, not_applicable, passed
from shaketable.chaos.plan import Configuration, Finding

NAME = "durability"


@invariant(NAME, order=50, unrecorded="a Recorder reads no checkpoint back")
def durability(history: History) -> Finding:
    if not history.commits:
        return not_applicable(NAME, "nothing was committed")
    for look in (_wrong_deletion, _wrong_number, _wrong_quarantine, _lacks_a_part, _quarantine_emptied):
        if (wrong := look(history)) is not None:
            return failed(NAME, wrong)
    probes = {probe.checkpoint: probe for probe in history.all(CheckpointProbed)}
    gone = history.deleted() | history.quarantined_checkpoints()
    kept = [commit for commit in history.commits if commit.checkpoint not in gone]
    tried = [(commit, probes[commit.checkpoint]) for commit in kept if commit.checkpoint in probes]
    reference = _reference(history)
    for commit, probe in tried:
        if (wrong := _wrong(history, commit, probe, reference)) is not None:
            return failed(NAME, f"{commit.checkpoint} ({commit.place}) {wrong}")
    if not tried:
        return not_applicable(NAME, f"none of {counted(len(kept), 'commit')} was read back")
    return passed(NAME, f"{len(tried)} of {counted(len(kept), 'commit')} restored")


def unprobed(history: History) -> list[Commit]:
    """Commits that should have been read back and were not."""
    probed = {probe.checkpoint for probe in history.all(CheckpointProbed)}
    probed |= history.deleted() | history.quarantined_checkpoints()
    return [commit for commit in history.commits if commit.checkpoint not in probed]


def _wrong(history: History, commit: Commit, probe: CheckpointProbed, reference: Mapping[int, str]) -> str | None:
    if not probe.ok and _damaged_since(history, commit):
        # nothing has read it since, so nobody could know
        return None
    if not probe.ok:
        return f"cannot be restored: {probe.reason or 'no reason given'}"
    if commit.files == 0 and probe.digest is not None:
        return "was committed without any file, so it cannot be verified"
    step = history.committed_step(commit)
    if step is None and history.records_state:
        return f"was committed at index {commit.index}, where no checkpoint was recorded"
    if probe.digest is None or step is None or step.digest is None:
        return None
    expected = reference.get(step.step, step.digest)
    if probe.digest != expected or (probe.step is not None and probe.step != step.step):
        return (
            f"holds step {probe.step} with digest {probe.digest[:8]}, but step {step.step}"
            f" with digest {str(expected)[:8]} was committed"
        )
    return None


def _damaged_since(history: History, commit: Commit) -> bool:
    damage = (event for event in history.all(FaultInjected) if kind_of(event.name).loss == "checkpoint")
    return any(commit.at_s <= event.at_s + CLOCK_SKEW_S for event in damage)


def _reference(history: History) -> dict[int, str]:
    """What each committed step's digest must be, where that can be computed."""
    last = max(commit.index for commit in history.commits)
    return dict(enumerate((history.lineage(last) or ())[: last + 1]))


def _lacks_a_part(history: History) -> str | None:
    """A commit holds every file that a rank handed over for it."""
    stored = {p.checkpoint: set(p.files) for p in history.all(CheckpointProbed) if p.files is not None}
    for event in history.all(LogRecord):
        if event.record.get("kind") == "checkpoint_committed":
            stored[event.record["checkpoint"]] = {file["path"] for file in event.record.get("files", ())}
    handed: dict[tuple[int, int, int], list[UploadStarted]] = {}
    for upload in history.all(UploadStarted):
        index = upload.step if upload.index is None else upload.index
        handed.setdefault((upload.term, upload.attempt, index), []).append(upload)
    for commit in history.commits if handed else ():
        attempt = history.attempt(commit.term, commit.attempt)
        term = attempt.start.term if attempt is not None else commit.term
        for upload in handed.get((term, commit.attempt, commit.index), ()):
            missing = sorted(set(upload.files or ()) - stored.get(commit.checkpoint, set(upload.files or ())))
            if missing:
                return (
                    f"{commit.checkpoint} ({commit.place}) lacks {missing[0]}, which rank {upload.rank} handed over"
                    " for it"
                )
    return None


def _quarantine_emptied(history: History) -> str | None:
    """The files of a quarantined checkpoint stay where they are: people may want to look at them."""
    committed = {
        event.record["checkpoint"]: {file["path"] for file in event.record.get("files", ())}
        for event in history.all(LogRecord)
        if event.record.get("kind") == "checkpoint_committed"
    }
    for probe in history.all(CheckpointProbed):
        if probe.ok or probe.files is None or probe.checkpoint not in history.quarantined_checkpoints():
            continue
        missing = sorted(committed.get(probe.checkpoint, set()) - set(probe.files))
        if len(missing) > _taken_by_faults(history):
            return f"{probe.checkpoint} was quarantined, and its {missing[0]} is gone: nobody may delete it"
    return None


def _taken_by_faults(history: History) -> int:
    """How many files of one checkpoint they have deleted at most."""
    planned = history.began.faults if history.began is not None else None
    if planned is None:
        return MOST_FILES
    landed = {event.fault for event in history.all(FaultInjected)}
    return sum(fault.arguments.get("how") == "delete" for number, fault in enumerate(planned) if number in landed)


def _wrong_deletion(history: History) -> str | None:
    for deletion in history.of(Deletion):
        latest = history.latest_commit(deletion.position)
        if latest is not None and latest.checkpoint == deletion.checkpoint:
            return f"{deletion.checkpoint} was deleted ({deletion.place}) while it was the latest commit"
        if _keeps_all(history):
            return f"{deletion.checkpoint} was deleted ({deletion.place}) although num_to_keep is None"
    return None


def _wrong_quarantine(history: History) -> str | None:
    """Only what somebody has damaged may be given up: a store that is slow or refuses is no corruption."""
    damaged = any(kind_of(event.name).loss == "checkpoint" for event in history.all(FaultInjected))
    given_up = next(iter(history.of(QuarantinedCheckpoint)), None)
    if given_up is not None and not damaged:
        return f"{given_up.checkpoint} was quarantined ({given_up.place}), but no fault had damaged it"
    return None


def _wrong_number(history: History) -> str | None:
    """`num_to_keep`: the latest stays, and so many less one of the others, the newest or the best; no more once the
    driver with that setting has committed."""
    scores = history.once(_scores)
    kept: list[str] = []
    # this term has committed
    committed_in = 0
    for entry in history.entries if history.has_log else ():
        if isinstance(entry, Commit):
            kept.append(entry.checkpoint)
            committed_in = entry.term
        elif isinstance(entry, QuarantinedCheckpoint) and entry.checkpoint in kept:
            kept.remove(entry.checkpoint)
        elif isinstance(entry, Reinstatement):
            kept.append(entry.checkpoint)
        elif isinstance(entry, Deletion) and entry.checkpoint in kept:
            given = history.settings(entry.term)
            better = _better(kept, entry.checkpoint, scores, given)
            kept.remove(entry.checkpoint)
            if given.num_to_keep is not None and len(better) < given.num_to_keep:
                by = given.checkpoint_score_attribute
                which = f"{counted(len(better), 'better one')} by {by}" if by else counted(len(better), "newer one")
                why = f"with {which}, but num_to_keep is {given.num_to_keep}"
                return f"{entry.checkpoint} was deleted ({entry.place}) {why}"
        elif isinstance(entry, Start) and entry.term == committed_in:
            keep = history.settings(entry.term).num_to_keep
            if keep is not None and len(kept) > keep:
                return f"{len(kept)} checkpoints were kept at {entry.place}, but num_to_keep is {keep}"
    return None


def _better(kept: list[str], name: str, scores: Mapping[str, Mapping[str, Any]], given: Configuration) -> list[str]:
    """Those that are rather kept than `name`: the latest, and of the others those with a better score or, with the same
    score or without one to go by, the newer."""

    def worth(place: int) -> tuple[float, int]:
        value = scores.get(kept[place], {}).get(given.checkpoint_score_attribute)
        if isinstance(value, dict):
            # JSON has neither infinity nor NaN: {"$float": "inf"}
            value = float(value.get("$float", math.nan))
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            return -math.inf, place
        return float(value if given.checkpoint_score_order == "max" else -value), place

    mine = worth(kept.index(name))
    return [other for place, other in enumerate(kept) if place == len(kept) - 1 or worth(place) > mine]


def _scores(history: History) -> dict[str, Mapping[str, Any]]:
    """The metrics of each commit, which truthful-ending compares with those that were reported."""
    commits = (event.record for event in history.all(LogRecord) if event.record.get("kind") == "checkpoint_committed")
    return {record["checkpoint"]: record.get("metrics") or {} for record in commits}


def _keeps_all(history: History) -> bool:
    """Whether every driver said that it deletes nothing; unknown is no."""
    opened = [event.record for event in history.all(LogRecord) if event.record.get("kind") == "opened"]
    return bool(opened) and all(_find(record.get("configuration"), "num_to_keep") == [None] for record in opened)


def _find(content: Any, key: str) -> list[Any]:
    if not isinstance(content, dict):
        return []
    here = [content[key]] if key in content else []
    return here + [found for value in content.values() for found in _find(value, key)]
