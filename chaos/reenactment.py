"""The faults of an experiment that does to a run what was recorded of another, attempt by attempt. Pure.

What each ending becomes is in `Draft._end` and the methods below it; what no fault can do is left out, and noted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.incident import Incident, Lived, Term
from shaketable.chaos.plan import FaultPlan, Outcome, Trigger
from shaketable.chaos.shortening import Steps

NODE_START_S = 3.0  # a node is there so long after it was asked for
LEFT_OUT = (
    "start_failed",
    "storage",
    "controller_error",
    "worker_hung",
    "unknown",
)  # what no fault makes happen
LIMITED = ("max_failures", "max_preemption_failures")
PREEMPTION = {"bundled": "sigterm_node", "ray-train": "drain_node"}


@dataclass(slots=True)
class Draft:
    """The experiment as it is being written, attempt by attempt. A node holds one worker, so that `alive` nodes are
    room for as many workers."""

    incident: Incident
    step: Steps
    step_s: float  # how long a step will take
    faults: list[FaultPlan] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    charged: dict[str, int] = field(default_factory=dict)
    spares: int = 0  # nodes more than the first attempt had workers
    alive: int = 0  # nodes at this point of the story
    attempt: int = 1  # the number that the attempt will have in the experiment
    since: int | None = None  # the fault with whose landing it can begin
    exits: int = 0  # of drivers
    grows: bool = False
    last_step: int = 0
    outcome: Outcome = "finished"

    @property
    def peak(self) -> int:
        return max(attempt.world_size for attempt in self.played())

    def played(self) -> list[Lived]:
        """The attempts that faults can end again."""
        return [each for each in self.incident.attempts if each.cause not in LEFT_OUT]

    def write(self) -> None:
        played = self.played()
        if not played:
            raise ExperimentError(
                f"every attempt on record ended by {' or '.join(LEFT_OUT)}: no fault does that"
            )
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

    def _end(self, attempt: Lived, following: Lived | None) -> None:
        """Make it end as it did, so that the next one finds the room that it found."""
        self.causes.append(f"{attempt.cause} at step {self.step(attempt.fatal)}")
        if attempt.account in LIMITED:
            self.charged[attempt.account] = self.charged.get(attempt.account, 0) + 1
        match attempt.cause:
            case "resized":
                self._grow(attempt, following)
            case "driver_lost" if following is not None and following.term == attempt.term:
                self.notes.append(
                    f"attempt {attempt.number} ended with its driver stopped for a time: left out"
                )
                self.attempt -= 1
            case "driver_lost" | "interrupted":
                self._fault(_driver_fault(attempt), attempt)
            case "node_lost" | "preempted":
                self._lose_nodes(attempt, following, at_least=1)
            case _:
                self._lose_worker(attempt, following)
        self.attempt += 1

    # ---- one kind of ending each ----

    def _lose_worker(self, attempt: Lived, following: Lived | None) -> None:
        shrunk = self._room() - following.world_size if following is not None else 0
        if shrunk > 0:
            self.notes.append(
                f"after the {attempt.cause} of attempt {attempt.number} there were {shrunk} workers fewer: here their"
                " nodes are killed, which is charged the same"
            )
            self._lose_nodes(attempt, following, at_least=0)
            return
        name = "raise_in_worker" if attempt.cause == "worker_error" else "sigkill_worker"
        self._fault(name, attempt, _target(attempt))
        self._more_room(following)

    def _lose_nodes(self, attempt: Lived, following: Lived | None, at_least: int) -> None:
        room = min(self.alive - at_least, self.peak)
        count = at_least + (max(room - following.world_size, 0) if following is not None else 0)
        name = PREEMPTION[self.incident.subject] if attempt.cause == "preempted" else "sigkill_node"
        self._fault(name, attempt, _target(attempt) if count == 1 else {"random": count})
        self.alive -= count
        self._more_room(following)

    def _more_room(self, following: Lived | None) -> None:
        """What was lost had been replaced before the next attempt began: a node more from the start, where it would
        have stood idle."""
        missing = following.world_size - self._room() if following is not None else 0
        if following is None or missing <= 0:
            return
        if all(each.world_size == self.peak for each in self.played() if each.number < following.number):
            self.spares += missing
        else:
            self.notes.append(
                f"attempt {following.number} began with {following.world_size} workers, as if nothing had been lost:"
                " here it begins with fewer, and grows"
            )
            self.grows = True
            after: Trigger = {"after": len(self.faults) - 1}
            self.faults += [FaultPlan("add_node", None, dict(after)) for _ in range(missing)]
        self.alive += missing

    def _grow(self, attempt: Lived, following: Lived | None) -> None:
        more = following.world_size - attempt.world_size if following is not None else 1
        if more <= 0:
            self.notes.append(
                f"attempt {attempt.number} was resized to fewer workers, which no fault does: left out"
            )
            self.attempt -= 1
            return
        self.grows = True
        for _ in range(more - max(self.alive - attempt.world_size, 0)):
            self._fault("add_node", attempt, lead_steps=round(NODE_START_S / self.step_s))
            self.alive += 1

    def _next_term(self, attempt: Lived, following: Lived) -> None:
        if attempt.cause in ("driver_lost", "interrupted") or self._term(following).reopened:
            self._relaunch(following)
        else:
            self.notes.append(
                "a restart of its driver between two attempts changed nothing of this: left out"
            )

    def _relaunch(self, following: Lived) -> None:
        self.exits += 1
        at: Trigger = {"event": "driver_exited", "nth": self.exits}
        for _ in range(following.world_size - self._room()):  # it came back to more nodes
            self.faults.append(FaultPlan("add_node", None, at))
            at = {"after": len(self.faults) - 1}
            self.alive += 1
        if following.world_size < self._room():
            self.notes.append(
                f"attempt {following.number} began with {following.world_size} workers, its driver had left"
                f" {self._room()}: nothing on record says why"
            )
        changed = self._changed(following)
        self.faults.append(FaultPlan("relaunch_driver", None, at, {"changed": changed} if changed else {}))

    # ---- what they share ----

    def _fault(
        self, name: str, attempt: Lived, target: dict[str, Any] | None = None, lead_steps: int = 0
    ) -> None:
        fatal = self.step(attempt.fatal)
        step = max(fatal - lead_steps, min(self.step(attempt.first) + 1, fatal)) if lead_steps else fatal
        at: Trigger = {"step": step}
        if self.attempt > 1:
            at["attempt"] = self.attempt
        if self.since is not None:
            at["after"] = self.since
        self.last_step = max(self.last_step, fatal)
        self.faults.append(FaultPlan(name, target, at))

    def _room(self) -> int:
        return min(self.alive, self.peak)

    def _term(self, attempt: Lived) -> Term:
        return next(term for term in self.incident.terms if term.number == attempt.term)

    def _changed(self, following: Lived) -> dict[str, Any]:
        """What this driver was given otherwise than the first one."""
        first, now = self.incident.terms[0].settings, self._term(following).settings
        return {key: value for key, value in now.items() if first.get(key) != value}

    # ---- what is said of it ----

    def _note_limits(self) -> None:
        for cause in LEFT_OUT:
            count = sum(attempt.cause == cause for attempt in self.incident.attempts)
            if count:
                self.notes.append(f"{count} of its attempts ended by {cause}, which no fault does: left out")
        if self.step.shortened:
            self.notes.append(
                f"its steps are shortened: the record has a checkpoint every {self.step.recorded_every} steps, this"
                f" one every {self.step.every}"
            )
        if not self.incident.knows_steps:
            self.notes.append(
                "the record knows commits only: each fault lands at the step after the last one"
            )

    def _conclude(self, last: Lived) -> None:
        said, is_last = self.incident.outcome, last == self.incident.attempts[-1]
        if said in ("failed", "interrupted") and last.cause not in (None, "finished") and is_last:
            self.outcome = "failed" if said == "failed" else "interrupted"
        elif said != "finished":
            self.notes.append("the record does not end with the run's end: here the run goes on and finishes")


def _target(attempt: Lived) -> dict[str, Any]:
    return {"random": 1} if attempt.rank is None else {"rank": attempt.rank}


def _driver_fault(attempt: Lived) -> str:
    if attempt.cause == "driver_lost":
        return "sigkill_driver"
    return "sigterm_driver" if attempt.signal == 15 else "sigint_driver"
