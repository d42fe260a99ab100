"""A terminal for a command that a test starts, read as somebody who watches it would."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

DEADLINE_S = 240.0
# between two looks at a condition
LOOK_S = 0.05


def read_until(terminal: int, wanted: bytes | Callable[[], bool] | None) -> bytes:
    """What the terminal shows, up to `wanted`, until it is true or, for None, up to its end. A line that changes may
    never have shown what was true for a moment: wait for a condition then."""
    seen, deadline = b"", time.monotonic() + DEADLINE_S
    while wanted is None or not (wanted() if callable(wanted) else wanted in seen):
        assert time.monotonic() < deadline, seen.decode()
        if select.select([terminal], [], [], LOOK_S if callable(wanted) else 1.0)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError:
                # how Linux says that the other end is closed
                return seen
    return seen
