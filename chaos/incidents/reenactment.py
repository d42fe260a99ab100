"""The faults of an experiment that does to a run what was recorded of another, attempt by attempt. Pure.

What each ending becomes is in `Draft._end` and the methods below it; what no fault can do is left out, and noted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment import vocabulary
from shaketable.chaos.experiment.vocabulary import Planned
from shaketable.chaos.incidents.recorded_attempts import Incident, RecordedAttempt, Term
from shaketable.chaos.incidents.shortening import Steps
from shaketable.chaos.plan import FaultPlan, Outcome, Trigger

# a node is there so long after it was asked for
NODE_START_S = 3.0
# what no fault makes happen
LEFT_OUT = ("start_failed", "storage", "controller_error", "worker_hung", "unknown")
LIMITED = ("max_failures", "max_preemption_failures")


@dataclass(slots=True)
class Draft:
    """The experiment as it is being written, attempt by attempt. A node holds one worker, so that `alive` nodes are
    room for as many workers."""

    incident: Incident
    step: Steps
    # how long a step will take
    step_s: float
    faults: list[FaultPlan] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    charged: dict[str, int] = field(default_factory=dict)
    # nodes more than the first attempt had workers
    spares: int = 0
    # nodes at this point of the story
    alive: int = 0
    # the number that the attempt will have in the experiment
    attempt: int = 1
    # the fault with whose landing it can begin
    since: int | None = None
    # of drivers
    exits: int = 0
    grows: bool = False
    last_step: int = 0
    outcome: Outcome = "finished"

    @property
    def peak(self) -> int:
        return max(attempt.world_size for attempt in self.played())

    def played(self) -> list[RecordedAttempt]:
        """The attempts that faults can end again."""
        return [each for each in self.incident.attempts if each.cause not in LEFT_OUT]

    def write(self) -> None:
        played = self.played()
        if not played:
            raise ExperimentError(f"every recorded attempt ended by {' or '.join(LEFT_OUT)}, which no fault can cause")
        self._note_limits()
        self.alive = played[0].world_size
        for place, attempt in enumerate(played):
            following = played[place + 1] if place + 1 < len(played) else None
            if attempt.cause not in (None, "finished"):
                self._end(attempt, following)
            if following is not None and following.term > attempt.term:
                self._next_term(attempt, following)
            self.since = len(self.faults) - 1 if self.faults else None
        self._conclude(played[-1])

    def _end(self, attempt: RecordedAttempt, following: RecordedAttempt | None) -> None:
        """Make it end as it did, so that the next one finds the room that it found."""
        self.causes.append(f"{attempt.cause} at step {self.step(attempt.fatal)}")
        if attempt.account in LIMITED:
            self.charged[attempt.account] = self.charged.get(attempt.account, 0) + 1
        match attempt.cause:
            case "resized":
                self._grow(attempt, following)
            case "driver_lost" if following is not None and following.term == attempt.term:
                self.notes.append(f"left out: attempt {attempt.number} ended because its driver was stopped for a time")
                self.attempt -= 1
            case "driver_lost" | "interrupted":
                self._fault(_driver_fault(attempt), attempt)
            case "node_lost" | "preempted":
                self._lose_nodes(attempt, following, at_least=1)
            case _:
                self._lose_worker(attempt, following)
        self.attempt += 1

    # ---- one kind of ending each ----

    def _lose_worker(self, attempt: RecordedAttempt, following: RecordedAttempt | None) -> None:
        shrunk = self._room() - following.world_size if following is not None else 0
        if shrunk > 0:
            self.notes.append(
                f"after the {attempt.cause} of attempt {attempt.number} there were {shrunk} fewer workers: the"
                " experiment kills their nodes, which costs the same charge"
            )
            self._lose_nodes(attempt, following, at_least=0)
            return
        raised = attempt.cause == "worker_error"
        self._fault(
            vocabulary.raise_in_worker if raised else vocabulary.sigkill_worker, attempt, target=_target(attempt)
        )
        self._more_room(following)

    def _lose_nodes(self, attempt: RecordedAttempt, following: RecordedAttempt | None, at_least: int) -> None:
        room = min(self.alive - at_least, self.peak)
        count = at_least + (max(room - following.world_size, 0) if following is not None else 0)
        reclaim = vocabulary.sigterm_node if self.incident.subject == "bundled" else vocabulary.drain_node
        fault = reclaim if attempt.cause == "preempted" else vocabulary.sigkill_node
        self._fault(fault, attempt, target=_target(attempt) if count == 1 else vocabulary.randomly(count))
        self.alive -= count
        self._more_room(following)

    def _more_room(self, following: RecordedAttempt | None) -> None:
        """What was lost had been replaced before the next attempt began: a node more from the start, where it would
        have stood idle."""
        missing = following.world_size - self._room() if following is not None else 0
        if following is None or missing <= 0:
            return
        if all(each.world_size == self.peak for each in self.played() if each.number < following.number):
            self.spares += missing
        else:
            self.notes.append(
                f"attempt {following.number} began with {following.world_size} workers, because lost ones were"
                " replaced: in the experiment it begins with fewer, and grows"
            )
            self.grows = True
            after: Trigger = {"after": len(self.faults) - 1}
            self.faults += [vocabulary.add_node(dict(after)) for _ in range(missing)]
        self.alive += missing

    def _grow(self, attempt: RecordedAttempt, following: RecordedAttempt | None) -> None:
        more = following.world_size - attempt.world_size if following is not None else 1
        if more <= 0:
            self.notes.append(
                f"left out: attempt {attempt.number} was resized to fewer workers, which no fault can cause"
            )
            self.attempt -= 1
            return
        self.grows = True
        for _ in range(more - max(self.alive - attempt.world_size, 0)):
            self._fault(vocabulary.add_node, attempt, lead_steps=round(NODE_START_S / self.step_s))
            self.alive += 1

    def _next_term(self, attempt: RecordedAttempt, following: RecordedAttempt) -> None:
        if attempt.cause in ("driver_lost", "interrupted") or self._term(following).reopened:
            self._relaunch(following)
        else:
            self.notes.append("left out: a restart of the driver between two attempts, which changed nothing here")

    def _relaunch(self, following: RecordedAttempt) -> None:
        self.exits += 1
        at: Trigger = {"event": "driver_exited", "nth": self.exits}
        # it came back to more nodes
        for _ in range(following.world_size - self._room()):
            self.faults.append(vocabulary.add_node(at))
            at = {"after": len(self.faults) - 1}
            self.alive += 1
        if following.world_size < self._room():
            self.notes.append(
                f"attempt {following.number} began with {following.world_size} workers, although its driver had left"
                f" {self._room()}: the record does not say why"
            )
        changed = self._changed(following)
        self.faults.append(vocabulary.relaunch_driver(at, changed or None))

    # ---- what they share ----

    def _fault(self, fault: Planned, attempt: RecordedAttempt, lead_steps: int = 0, **target: dict[str, Any]) -> None:
        fatal = self.step(attempt.fatal)
        step = max(fatal - lead_steps, min(self.step(attempt.first) + 1, fatal)) if lead_steps else fatal
        at: Trigger = {"step": step}
        if self.attempt > 1:
            at["attempt"] = self.attempt
        if self.since is not None:
            at["after"] = self.since
        self.last_step = max(self.last_step, fatal)
        self.faults.append(fault(at=at, **target))

    def _room(self) -> int:
        return min(self.alive, self.peak)

    def _term(self, attempt: RecordedAttempt) -> Term:
        return next(term for term in self.incident.terms if term.number == attempt.term)

    def _changed(self, following: RecordedAttempt) -> dict[str, Any]:
        """What this driver was given otherwise than the first one."""
        first, now = self.incident.terms[0].settings, self._term(following).settings
        return {key: value for key, value in now.items() if first.get(key) != value}

    # ---- what is said of it ----

    def _note_limits(self) -> None:
        for cause in LEFT_OUT:
            count = sum(attempt.cause == cause for attempt in self.incident.attempts)
            if count:
                self.notes.append(f"left out: {count} attempts that ended by {cause}, which no fault can cause")
        if self.step.shortened:
            self.notes.append(
                f"the run is shortened: the record has a checkpoint every {self.step.recorded_every} steps, the"
                f" experiment every {self.step.every}"
            )
        self.notes += self.incident.lacks
        if not self.incident.knows_steps:
            self.notes.append("the record has commits only: each fault lands at the step after the last commit")

    def _conclude(self, last: RecordedAttempt) -> None:
        said, is_last = self.incident.outcome, last == self.incident.attempts[-1]
        if said in ("failed", "interrupted") and last.cause not in (None, "finished") and is_last:
            self.outcome = "failed" if said == "failed" else "interrupted"
        elif said != "finished" and not self.incident.lacks:
            self.notes.append("the record ends before the run does: in the experiment the run goes on and finishes")


def _target(attempt: RecordedAttempt) -> dict[str, Any]:
    return {"random": 1} if attempt.rank is None else {"rank": attempt.rank}


def _driver_fault(attempt: RecordedAttempt) -> Planned:
    if attempt.cause == "driver_lost":
        return vocabulary.sigkill_driver
    return vocabulary.sigterm_driver if attempt.signal == 15 else vocabulary.sigint_driver
