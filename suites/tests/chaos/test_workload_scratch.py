"""Scratch directories of killed workers do not pile up, and nobody else's are touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from shaketable.chaos.workloads.scratch import PREFIX, scratch, sweep


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def make(root: Path, name: str, *, age_s: float = 3600) -> Path:
    path = root / name
    path.mkdir()
    (path / "state.json").write_text("{}")
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - age_s))
    return path


def test_what_dead_workers_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    left = make(tmp_path, f"{PREFIX}-{dead_pid()}-ab")
    kept = [
        make(tmp_path, f"{PREFIX}-{os.getpid()}-ab"),
        make(tmp_path, f"{PREFIX}-{dead_pid()}-young", age_s=0),
        make(tmp_path, "somebody-elses"),
    ]
    sweep(tmp_path)
    assert not left.exists()
    assert all(path.exists() for path in kept)


def test_a_scratch_directory_is_gone_with_its_block() -> None:
    with scratch() as directory:
        assert Path(directory).is_dir()
    assert not Path(directory).exists()
