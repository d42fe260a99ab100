"""The process that cleans up when the harness cannot: killed, crashed, or out of memory.

It holds the read end of a pipe whose write end only the harness has. When the pipe ends, however that came about, it
kills every process that carries the cluster's mark, removes the cluster's directory, and runs the command that it was
given as its last act. An ordinary teardown ends the same way, and then finds nothing to do. Standard library only, so
that it is small and starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from shaketable.clusters import marked
from shaketable.clusters.protocol import ClusterError

LOOK_FOR_PARENT_S = 1.0
# a cluster of kind is four containers, and more in each
LAST_ACT_S = 120.0
END_S = 30.0 + LAST_ACT_S
READY = b"ready\n"


class Watchdog:
    """The harness's side: `Watchdog(mark, directory)` starts it, `close()` ends it and waits for its last look."""

    def __init__(self, mark: str, directory: Path, last_act: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-m", __name__, mark, str(directory), *last_act],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env=_environment(),
            start_new_session=True,
        )
        self._check_ready()

    def _check_ready(self) -> None:
        """Nothing may start unguarded. Its end would end the pipe, so this line comes or the read returns empty."""
        assert self._process.stdout is not None
        with self._process.stdout as answer:
            if answer.readline() != READY:
                raise ClusterError(
                    f"the watchdog ended at once (code {self._process.wait(END_S)}), "
                    f"so nothing would clean up after a crash: try `{sys.executable} -S -m {__name__}`"
                )

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(END_S)


def _environment() -> dict[str, str]:
    """Only what the interpreter needs to find this package, wherever it was imported from."""
    import shaketable

    root = str(Path(next(iter(shaketable.__path__))).parent)
    # and what a command needs that talks to a container engine
    wanted = ("DOCKER_", "KIND_")
    engine = {name: value for name, value in os.environ.items() if name.startswith(wanted) or name == "HOME"}
    return {**engine, "PYTHONPATH": root, "PATH": os.environ.get("PATH", "")}


def harness_lives(harness: int, look_s: float) -> bool:
    """Looks for `look_s` at most. It lives until the pipe at stdin ends or, should a fork of the harness hold it open,
    until the harness is no longer the parent."""
    readable, _, _ = select.select([sys.stdin], [], [], look_s)
    return not readable and os.getppid() == harness


def main(mark: str, directory: str, *last_act: str) -> None:
    harness = os.getppid()
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdout.buffer.write(READY)
    sys.stdout.close()
    while harness_lives(harness, LOOK_FOR_PARENT_S):
        pass
    marked.kill_all(mark)
    shutil.rmtree(directory, ignore_errors=True)
    if last_act:
        subprocess.run(last_act, stdin=subprocess.DEVNULL, timeout=LAST_ACT_S, check=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
