"""The log under real processes: drivers racing for one number, and writers killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shaketable.runtime.log.run_log import RunLog, open_run
from shaketable.suites.tests.rigs.log_examples import CONFIGURATION

_KILLS, _KILLING_S = 60, 5.0

# Opens the run again and again, as fast as it can, and says which terms it got.
RACER = """
import sys
from pathlib import Path
from shaketable.runtime.log.run_log import open_run
from shaketable.suites.tests.rigs.log_examples import CONFIGURATION
print("ready", flush=True)
sys.stdin.readline()
print(*[open_run(Path(sys.argv[1]), CONFIGURATION)[1].term for _ in range(50)], flush=True)
"""

# For every line of input forks a driver that appends until it is killed, and says what was acknowledged.
NURSERY = """
import os, sys
from pathlib import Path
from shaketable.runtime.log.run_log import open_run
from shaketable.suites.tests.rigs.log_examples import CONFIGURATION, ended, started

def drive():
    log, state = open_run(Path(sys.argv[1]), CONFIGURATION)
    if state.must_end_first:
        log.append(ended(state.last_attempt, "driver_lost", None, state.term))
    while True:
        attempt = log.state.last_attempt + 1
        for record in (started(attempt, state.term), ended(attempt, term=state.term)):
            number, stored = log.append(record)
            os.write(1, f"{number} {stored.id}\\n".encode())

while sys.stdin.readline():
    pid = os.fork()
    if pid == 0:
        drive()
    os.write(1, f"pid {pid}\\n".encode())
    os.waitpid(pid, 0)
    os.write(1, b"dead\\n")
"""


@contextmanager
def python(code: str, run_path: Path) -> Iterator[subprocess.Popen[str]]:
    command, pipe = [sys.executable, "-c", code, str(run_path)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_of_two_processes_that_race_for_a_number_exactly_one_wins(tmp_path: Path) -> None:
    with python(RACER, tmp_path) as one, python(RACER, tmp_path) as other:
        assert hear(one) == hear(other) == "ready"
        say(one, "go")
        say(other, "go")
        mine, yours = ([int(term) for term in hear(process).split()] for process in (one, other))
    assert sorted(mine + yours) == list(range(1, 101))
    assert mine == sorted(mine) and yours == sorted(yours)
    assert [record.term for _, record in RunLog(tmp_path).read()] == list(range(1, 101))


def test_a_writer_killed_at_any_moment_leaves_no_torn_record_and_loses_none_it_was_told_of(tmp_path: Path) -> None:
    chance, acknowledged, kills = random.Random(7), dict[int, str](), 0
    deadline_s = time.monotonic() + _KILLING_S
    with python(NURSERY, tmp_path) as nursery:
        while kills < _KILLS and time.monotonic() < deadline_s:
            say(nursery, "another")
            # the child may be heard first
            while not (line := hear(nursery)).startswith("pid "):
                note(acknowledged, line)
            # the random moment itself, nothing is waited for
            time.sleep(chance.uniform(0, 0.05))
            os.kill(int(line.split()[1]), signal.SIGKILL)
            while (line := hear(nursery)) != "dead":
                note(acknowledged, line)
            kills += 1
            stored = {number: record.id for number, record in RunLog(tmp_path).read()}
            assert acknowledged.items() <= stored.items()
    _, state = open_run(tmp_path, CONFIGURATION)
    assert acknowledged and state.term <= kills + 1
    assert all(path.suffix == ".json" for path in (tmp_path / "log").iterdir())


def note(acknowledged: dict[int, str], line: str) -> None:
    assert line, "the writer ended by itself; its error is above"
    number, identity = line.split()
    acknowledged[int(number)] = identity
