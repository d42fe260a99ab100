"""Checkpoint throughput: our upload against `cp` plus fsync of the same bytes, on the same disk in the same run.

`cp` and the fsync of each copied file are what a careful shell script would do; ours also hashes every byte and syncs
the directories. The two take turns, because a shared disk is rarely as fast twice.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from shaketable.runtime.checkpoints.store import upload

MIB = 1 << 20


def measure(total_bytes: int, files: int, *, repeats: int = 5, directory: Path | None = None) -> tuple[float, float]:
    """Median seconds (ours, cp and fsync) for `total_bytes` in `files` files below `directory` (default: temporary)."""
    ours, theirs = measure_each(total_bytes, files, repeats=repeats, directory=directory)
    return statistics.median(ours), statistics.median(theirs)


def measure_each(
    total_bytes: int, files: int, *, repeats: int = 5, directory: Path | None = None
) -> tuple[list[float], list[float]]:
    """Every single measurement, in seconds: (ours, cp and fsync)."""
    with tempfile.TemporaryDirectory(dir=directory, prefix="checkpoint-throughput-") as name:
        source = Path(name, "source")
        fill(source, total_bytes, files)
        turns = [
            (timed(_upload, source, Path(name, f"ours-{turn}")), timed(_cp_fsync, source, Path(name, f"cp-{turn}")))
            for turn in range(repeats)
        ]
    return [ours for ours, _ in turns], [theirs for _, theirs in turns]


def fill(source: Path, total_bytes: int, files: int) -> None:
    """A new directory with so many files of chance bytes, as weights are."""
    source.mkdir()
    for number in range(files):
        left = total_bytes // files
        with (source / f"shard-{number:03d}.bin").open("wb") as file:
            while left:
                left -= file.write(os.urandom(min(MIB, left)))


def timed(copy: Callable[[Path, Path], object], source: Path, target: Path) -> float:
    """Starts from nothing to write, ends with all of it on the disk. Nothing is removed between two turns: a file
    system that discards freed blocks would still be at it in the next one."""
    os.sync()
    began_s = time.perf_counter()
    copy(source, target)
    return time.perf_counter() - began_s


def _upload(source: Path, target: Path) -> None:
    upload(source, target)


def cp(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", source, target], check=True)


def _cp_fsync(source: Path, target: Path) -> None:
    cp(source, target)
    for path in target.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


if __name__ == "__main__":
    for count in map(int, sys.argv[1:] or ["16", "1"]):
        ours_s, cp_fsync_s = measure(1024 * MIB, count)
        row = {"files": count, "ours_s": ours_s, "cp_fsync_s": cp_fsync_s, "ratio_to_cp_fsync": cp_fsync_s / ours_s}
        print(json.dumps(row))
