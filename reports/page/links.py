"""What lies beside a history in a result folder, and how a page names it: logs of drivers and workers, what each worker
recorded, the run without faults. Links are relative to the page, so that both can be moved together."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# in this order; a pattern may find any number
FILES = (
    ("history", "history.jsonl"),
    ("experiment", "experiment.yaml"),
    ("journal", "journal.json"),
    ("traceback", "traceback.txt"),
    ("log of driver", "driver-*.log"),
    ("log of worker", "witness/worker-*.log"),
    ("stacks", "storage/**/stacks/*"),
    ("recorded by driver", "witness/driver-*.jsonl"),
    ("recorded by worker", "witness/worker-*.jsonl"),
)
# more of one kind are one link, to their directory
MOST = 12


@dataclass(frozen=True, slots=True)
class Link:
    """`text` is what somebody reads, `href` is relative to the page and quoted by whoever writes it."""

    text: str
    href: str


def links(folder: Path, page: Path, *, baseline: bool = False) -> tuple[Link, ...]:
    """Of what is there. `page`: the directory of the page; `baseline`: there was a run without faults, which all
    experiments with one job share."""
    found = [link for name, pattern in FILES for link in _found(name, folder, pattern, page)]
    for shared in (folder, folder.parent) if baseline else ():
        found += _found("history of baseline", shared, "control-runs/*/*/history.jsonl", page)
        found += _found("log of baseline", shared, "control-runs/*/*/driver-*.log", page)
    return tuple(found)


def _found(name: str, folder: Path, pattern: str, page: Path) -> Iterator[Link]:
    files = sorted(path for path in folder.glob(pattern) if path.is_file() and path.stat().st_size)
    if len(files) > MOST:
        yield Link(f"{len(files)} files: {name}", relative(files[0].parent, page) + "/")
        return
    for path in files:
        number = re.sub(r"^(driver|worker|agent)-", "", path.stem) if "*" in pattern else ""
        number = f"{path.parent.parent.name}/{path.parent.name}" if "control-runs" in pattern else number
        yield Link(f"{name} {number}".strip(), relative(path, page))


def relative(path: Path, page: Path) -> str:
    return os.path.relpath(path.absolute(), page.absolute())
