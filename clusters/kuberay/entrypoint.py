"""The entrypoint of a RayJob, in the driver's pod: starts whatever driver the harness wants next, below Ray's own
supervisor of the job, and ends as it does. `python -m shaketable.clusters.kuberay.entrypoint DIRECTORY PID`, with the
pid of that supervisor.

The directory is where `ray_job.py` writes what is to be started. It is on the same machine: the RayJob asks for a
resource that only the driver's pod has.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

LOOK_S = 0.05
WANTED, CLAIMED, RUNS, ENDED = ".json", ".claimed", ".pid", ".code"


class Ticket(msgspec.Struct, frozen=True):
    """A driver that is wanted. `environment`: the whole of it, but for what Ray tells its jobs."""

    command: list[str]
    log: str
    environment: dict[str, str]
    cwd: str | None = None


def main(directory: Path, supervisor: int) -> int:
    place = _claimed(directory, supervisor)
    ticket = msgspec.json.decode(place.with_suffix(WANTED).read_bytes(), type=Ticket)
    # it is for the driver, which has it too: they are of one process group
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    with Path(ticket.log).open("ab") as log:
        process = subprocess.Popen(
            ticket.command,
            env=_environment(ticket.environment, os.environ),
            cwd=ticket.cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    whole(place.with_suffix(RUNS), str(process.pid))
    code = process.wait()
    whole(place.with_suffix(ENDED), str(code))
    return code if code >= 0 else 128 - code


def _claimed(directory: Path, supervisor: int) -> Path:
    """Of one that is wanted and nobody has started yet. Whoever has another parent now is of a job that has ended."""
    while os.getppid() == supervisor:
        for wanted in sorted(directory.glob(f"*{WANTED}")):
            try:
                os.close(os.open(wanted.with_suffix(CLAIMED), os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return wanted
        time.sleep(LOOK_S)
    sys.exit(f"the supervisor of the job (process {supervisor}) is gone")


def _environment(wanted: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """What Ray tells a job: the address of its cluster, its id, how workers are started."""
    return {**wanted, **{name: value for name, value in given.items() if name.startswith("RAY_")}}


def whole(path: Path, text: str) -> None:
    """Nobody reads half of it."""
    written = path.with_name(f".{path.name}")
    written.write_text(text)
    written.rename(path)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
