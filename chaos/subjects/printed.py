"""What a worker prints, in a file beside what it records: `witness/<writer>.log`.

Else it would end in the log of a node, which goes with its cluster. Where the harness's directory is not to be seen,
as in a pod, it stays where it was.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shaketable.chaos.history.handshake import HARNESS

STDOUT, STDERR = 1, 2


@contextmanager
def kept(directory: Path, writer: str) -> Iterator[None]:
    """Also what libraries and children print. A line is written at once: whoever prints may be killed the next moment.
    A file in which nothing stands is removed."""
    if not (directory / f"{HARNESS}.jsonl").exists():
        yield
        return
    path = directory / f"{writer}.log"
    own = os.dup(STDOUT), os.dup(STDERR)
    _by_line()
    with path.open("ab") as log:
        _to(log.fileno(), log.fileno())
    try:
        yield
    finally:
        _to(*own)
        for descriptor in own:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            if not path.stat().st_size:
                path.unlink()


def _by_line() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def _to(out: int, err: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        # The function may have closed them or put something of its own in their place.
        with contextlib.suppress(Exception):
            stream.flush()
    os.dup2(out, STDOUT)
    os.dup2(err, STDERR)
