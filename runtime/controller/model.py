"""What the controller knows: its settings, the run as its log has it, the capacity and the attempt; and the few small
steps that every handler takes. There is one Model to a controller, and its handlers change it in place. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from shaketable.runtime import budget, fold, scaling
from shaketable.runtime import events as ev
from shaketable.runtime import records as rec
from shaketable.runtime.attempt import Attempt, Ending
from shaketable.runtime.capacity import Capacity, Unit
from shaketable.runtime.config import Quarantine
from shaketable.runtime.controller.table import State
from shaketable.runtime.retention import Score

_DISARM: Mapping[ev.Timer, ev.SetTimer] = {name: ev.SetTimer(name, None) for name in get_args(ev.Timer)}


@dataclass(frozen=True, slots=True)
class Tier:
    """A kind of capacity, as in the configuration. `selector`: the labels of its nodes."""

    name: str
    selector: tuple[tuple[str, str], ...]
    limits: Mapping[budget.Limit, int]
    capacity_timeout_s: float | None


@dataclass(frozen=True, slots=True)
class Settings:
    """What the controller needs of the configuration; world sizes in workers, limits as in FailureConfig. `on_slices`:
    a unit is a TPU slice, reserved on the very hosts that it consists of. `wall_ahead_s`: how far the driver's wall
    clock is ahead of the clock whose `now` the controller is given, measured once, when the driver began."""

    bounds: scaling.Bounds
    limits: Mapping[budget.Limit, int]
    resize_interval_s: float
    num_to_keep: int | None
    heartbeat_timeout_s: float
    hold_timeout_s: float
    lease_s: float
    finish_uploads_s: float
    commit_timeout_s: float
    start_settle_s: float
    unit_wait_s: float
    tiers: tuple[Tier, ...] = ()
    notice_window_s: float = 0.0
    replacement_wait_s: float = 0.0
    hang_timeout_s: float | None = None
    first_step_timeout_s: float = 600.0
    score: Score | None = None  # by which checkpoints are kept
    agents_per_unit: int = 1
    on_slices: bool = False
    budget_window_s: float | None = None
    quarantine: Quarantine | None = None
    wall_ahead_s: float = 0.0
    jitter: float = 0.0  # in [0, 1), drawn by the executor


@dataclass(slots=True)
class Model:
    """The whole state, `now`, and the commands that the event being handled has asked for so far."""

    settings: Settings
    run: fold.RunState
    capacity: Capacity
    state: State = State.NEW
    attempt: Attempt | None = None
    ending: Ending | None = None  # set when the end was decided, not suffered: a hold, an interrupt
    interrupted: int = 0
    next_unit: int = 1
    trained: bool = False  # an attempt has been started by this term
    enough_since_s: float | None = None
    patience_ends_s: float | None = None  # with what is held below min
    tier: int = 0  # on which of the settings' tiers the run is
    starved_since_s: float | None = (
        None  # fewer than min can be had; watched where the tier has a limit for it
    )
    considered_s: float = 0.0  # when growth was last considered
    failed_agents: int = 0
    now: float = 0.0
    commands: list[ev.Command] = field(default_factory=list)

    def do(self, command: ev.Command) -> None:
        self.commands.append(command)

    def append(self, record: rec.AnyRecord) -> None:
        """One fact for the log; what is known about the run is always the fold of its records."""
        self.run = fold.apply(self.run, record)
        self.commands.append(ev.AppendRecord(record))

    @property
    def wall_s(self) -> float:
        """`now` as wall-clock time: the only one that has a meaning for the drivers after this one."""
        return self.now + self.settings.wall_ahead_s

    def timer(self, name: ev.Timer, at_s: float | None) -> None:
        self.commands.append(_DISARM[name] if at_s is None else ev.SetTimer(name, at_s))

    @property
    def live(self) -> Attempt:
        """The attempt, in a state that has one."""
        attempt = self.attempt
        assert attempt is not None, f"no attempt in state {self.state}"
        return attempt

    def in_use(self, unit: Unit) -> bool:
        """An agent of the unit is a member of the attempt."""
        attempt = self.attempt
        return attempt is not None and not attempt.rank_of.keys().isdisjoint(unit.warm.keys())
