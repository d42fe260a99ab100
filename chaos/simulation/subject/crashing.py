"""Crash points: the boundaries of a simulated run's storage operations, counted; at one of them somebody is killed.

Before an operation nothing of it has happened, after it all of it has, and nobody has heard of it yet; torn, an upload
is cut off in its middle. Enumerating all of them, once for the driver and once for an agent, is a proof where sampling
would be luck.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal


@dataclass(slots=True)
class CrashPoints:
    """`at`: the number of the boundary at which the `victim` is killed, None: nobody is, they are only counted."""

    at: int | None = None
    victim: Literal["driver", "agent"] = "driver"
    # what each boundary was
    passed: list[str] = field(default_factory=list)
    kill: Callable[[str], None] = lambda victim: None

    def passes(self, what: str) -> bool:
        """The run comes to a boundary. True: somebody has been killed there."""
        self.passed.append(what)
        if len(self.passed) - 1 != self.at:
            return False
        self.kill(self.victim)
        return True
