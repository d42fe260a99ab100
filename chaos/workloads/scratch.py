"""Where a workload writes a checkpoint before it reports it: a directory that is gone with the block that uses it.

A worker that is killed inside the block cannot tidy up, and these workloads are killed for a living; so every worker
first removes what dead ones have left on its machine.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from pathlib import Path

PREFIX = "shaketable-job"
# no checkpoint is written that slowly; spares a live one whose pid means nothing here
LEFT_AFTER_S = 60.0
_name = re.compile(rf"{PREFIX}-(\d+)-\w+")


def scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=f"{PREFIX}-{os.getpid()}-")


def sweep(root: Path | None = None) -> None:
    """Remove the directories of processes that are no more."""
    for path in (root or Path(tempfile.gettempdir())).glob(f"{PREFIX}-*"):
        match = _name.fullmatch(path.name)
        if match and not _alive(int(match[1])) and _age_s(path) > LEFT_AFTER_S:
            shutil.rmtree(path, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # somebody else's
        return True
    return True


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        # swept by another worker just now
        return 0.0
