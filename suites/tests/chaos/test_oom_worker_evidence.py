"""The words by which Ray says that it has killed for want of memory: oom_worker counts them."""

from __future__ import annotations

import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from shaketable.chaos.faults.oom_worker import BY_RAY

# as the raylet of Ray 2.60 wrote it at a kill, shortened
A_KILL = "Selected to kill: (Actor(7a34f91fd278ffa336036d3601000000): job ID=01000000, task name=Agent.__init__"
SUM_OF_A_MINUTE = "1 worker(s) were killed due to the node running low on memory. "


def _counted() -> int:
    return int(subprocess.run(["sh", "-c", BY_RAY], capture_output=True, text=True, check=True).stdout)


def test_a_kill_is_counted_once_and_at_once() -> None:
    """Once: the raylet's sum of the minute tells of the same kill again, up to a minute later."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="shk-test-") as scratch:
        logs = Path(scratch) / "3" / "session_2026-11-24_13-30-06" / "logs"
        logs.mkdir(parents=True)
        before = _counted()
        (logs / "raylet.out").write_text(f"started\n{A_KILL}\n")
        assert _counted() - before == 1
        (logs / "raylet.out").write_text(f"started\n{A_KILL}\n{SUM_OF_A_MINUTE}\n")
        assert _counted() - before == 1


def test_the_installed_ray_still_says_so() -> None:
    """Else the fault would be without evidence, and its experiment INVALID."""
    spec = find_spec("ray")
    if spec is None or spec.origin is None:
        pytest.skip("Ray is not installed")
    raylet = Path(spec.origin).parent / "core/src/ray/raylet/raylet"
    assert b"Selected to kill: " in raylet.read_bytes()
