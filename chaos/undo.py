"""What has to be undone however the harness ends: a disk that is mounted, a directory that nobody may write to.

The command that undoes it waits in a process of its own, on a pipe of which only the harness has the other end. When
the pipe ends, because it is to be undone now or because the harness was killed, the command is run.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence

DONE_WITHIN_S = 30.0


class Undoing:
    """`Undoing([program, argument, ...])` before it is done; `now()` undoes it, once, and returns when it is undone."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            ["sh", "-c", 'trap "" INT TERM HUP; read line; exec "$@"', "undoing", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def now(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(DONE_WITHIN_S)
