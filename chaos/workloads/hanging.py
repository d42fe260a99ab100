"""What the fault `hang_worker` does to a training function: it stands still for good, in one of several places."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading

LONG_S = 86_400


def hang(where: str) -> None:
    """Never returns."""
    if where == "c":
        # keeps the interpreter's lock
        ctypes.PyDLL(None).sleep(LONG_S)
    elif where == "loader":
        command = [sys.executable, "-c", f"import time; time.sleep({LONG_S})"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.read()
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
