"""The controller of a run: a state machine, values in and values out, `handle(event, now) -> commands`.

It knows no Ray, no clock and no storage; the executor does what it says and the simulation runs it a million times.
What may follow what is the literal table in `table.py`: an event that is not legal in a state raises IllegalEvent and
leaves the state as it was, and a handler that went anywhere else than its row allows is a bug that raises too.
Messages about an attempt that is over are legal everywhere and change nothing: the real channel delivers them late.

Each file may use those before it: `table`, `model`, `leasing` (units asked for and given back), `starting`, `endings`,
`hanging`, `holding`, `commits`, `hosts` and `ranks` (what happens to them), `core`.
"""

from __future__ import annotations

from shaketable.runtime.controller.core import Controller
from shaketable.runtime.controller.model import Settings
from shaketable.runtime.controller.table import END, TRANSITIONS, IllegalEvent, State

__all__ = ["END", "TRANSITIONS", "Controller", "IllegalEvent", "Settings", "State"]
