"""A terminal for a command that a test starts, read as somebody who watches it would."""

from __future__ import annotations

import os
import select
import time

DEADLINE_S = 240.0


def read_until(terminal: int, wanted: bytes | None) -> bytes:
    """What the terminal shows, up to `wanted` or, for None, up to its end."""
    seen, deadline = b"", time.monotonic() + DEADLINE_S
    while wanted is None or wanted not in seen:
        assert time.monotonic() < deadline, seen.decode()
        if select.select([terminal], [], [], 1.0)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError:
                # how Linux says that the other end is closed
                return seen
    return seen
