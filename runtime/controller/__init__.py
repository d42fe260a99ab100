"""The controller of a run: a state machine, values in and values out, `handle(event, now) -> commands`.

It knows no Ray, no clock and no storage; the executor does what it says and the simulation runs it a million times.
What may follow what is said by the two literal tables in `table.py`: what an event leads to, and what follows from a
state. Read that file first.

Each file may use those before it: `table`, `model`, `leasing` (units asked for and given back), `tiers`, `quarantine`,
`starting`, `endings`, `hanging`, `holding`, `commits`, `hosts` and `ranks` (what happens to them), `following` (what
follows from a state), `core`.
"""

from __future__ import annotations

from shaketable.runtime.controller.core import Controller
from shaketable.runtime.controller.settings import Settings
from shaketable.runtime.controller.table import (
    EVENT_TRANSITIONS,
    STATE_TRANSITIONS,
    IllegalEvent,
    State,
    Transition,
    declared,
    in_words,
    kind_of,
)

__all__ = [
    "EVENT_TRANSITIONS",
    "STATE_TRANSITIONS",
    "Controller",
    "IllegalEvent",
    "Settings",
    "State",
    "Transition",
    "declared",
    "in_words",
    "kind_of",
]
