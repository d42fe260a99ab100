"""Where the threads of a worker stand: asked by its agent when the attempt hangs, saved below the run's directory.

py-spy where it is installed: it shows C frames' callers, and needs nothing of the worker. Else Python's faulthandler,
whose handler the worker has put on a signal of its own: it answers from C code too, but not while it is stopped.
"""

from __future__ import annotations

import faulthandler
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from shaketable.runtime.storage.files import store_at
from shaketable.runtime.storage.store import RunPath

# below the directory of a run
STACKS = "stacks"
ANSWERS_S = 2.0
# characters
_MOST = 256 * 1024
# one that nobody uses
_SIGNAL = signal.SIGRTMAX - 3
_SETTLED_S = 0.1
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
_PY_SPY_FRAME = re.compile(r"^\s+(?P<function>\S.*) \((?P<file>[^()]+):(?P<line>\d+)\)", re.MULTILINE)
_LIBRARY = str(Path(os.__file__).parent) + os.sep


def answer_into(path: Path) -> None:
    """In the worker: from now on `take` gets an answer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    faulthandler.register(_SIGNAL, file=path.open("w"), all_threads=True)


def take(pid: int, path: Path) -> str:
    """In the agent: the stacks of the process, empty if it does not answer within `ANSWERS_S`."""
    return (_by_py_spy(pid) or _by_signal(pid, path))[:_MOST]


def _by_py_spy(pid: int) -> str:
    program = shutil.which("py-spy")
    if program is None:
        return ""
    command = [program, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWERS_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    # often it is not allowed to look
    return done.stdout if done.returncode == 0 else ""


def _by_signal(pid: int, path: Path) -> str:
    """Complete is what has not grown for a moment: it has no last line."""
    if not path.exists():
        # it has not come far enough to answer, and the signal would end it
        return ""
    try:
        os.kill(pid, _SIGNAL)
    except ProcessLookupError:
        return ""
    deadline, seen, since_s = time.monotonic() + ANSWERS_S, 0, time.monotonic()
    while (now := time.monotonic()) < deadline:
        size = path.stat().st_size
        if size != seen:
            seen, since_s = size, now
        elif size and now - since_s >= _SETTLED_S:
            break
        time.sleep(0.02)
    return path.read_text(errors="replace")


def innermost(text: str) -> str:
    """Where the training function stands, in a few words: the innermost frame that is not Python's own library."""
    frames = list(_FRAME.finditer(_main_thread(text))) or list(_PY_SPY_FRAME.finditer(text))
    ours = [frame for frame in frames if not frame["file"].startswith((_LIBRARY, "<"))] or frames
    if not ours:
        return ""
    return f"{ours[0]['function']}, {Path(ours[0]['file']).name}:{ours[0]['line']}"


def _main_thread(text: str) -> str:
    """The signal is answered by the main thread, which is where the training function runs."""
    return text.partition("Current thread")[2].partition("\nThread ")[0]


def save(run_path: RunPath, attempt: int, rank: int, text: str) -> None:
    """Raises StorageError."""
    store, folder = store_at(run_path), f"{STACKS}/attempt-{attempt:04d}"
    store.prepare(folder)
    store.write(f"{folder}/rank-{rank}.txt", (text or "the worker did not answer\n").encode())
