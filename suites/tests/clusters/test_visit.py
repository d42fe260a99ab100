"""What runs in a driver's pod is heard to its end, however often the connection to it breaks. Commands run here, as the
pod's would: what is between is a connection that breaks where the test says."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from shaketable.clusters.kuberay import visit
from shaketable.clusters.kuberay.manifests import Stay
from shaketable.clusters.kuberay.visit import Visit
from shaketable.clusters.protocol import ClusterError

LINES = 60
SAY = f"""
import time
for n in range({LINES}):
    print("line", n, flush=True)
    time.sleep(0.02)
raise SystemExit(3)
"""
EXPECTED = "".join(f"line {n}\n" for n in range(LINES))


@dataclass(slots=True)
class Connection:
    """Of those that stream, each breaks after so many bytes, until the list is used up."""

    breaks_after: list[int] = field(default_factory=list)
    silent: bool = False
    made: int = 0

    def execute(
        self, pod: str, *command: str, stdout: BinaryIO | None = None, within_s: float | None = 30.0, **_: Any
    ) -> tuple[int, bytes]:
        if stdout is None:
            done = subprocess.run(command, capture_output=True, timeout=30, check=False)
            return done.returncode, done.stdout
        if self.silent:
            raise ClusterError("nobody is heard")
        self.made += 1
        left = self.breaks_after.pop(0) if self.breaks_after else sys.maxsize
        with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
            assert process.stdout is not None
            while data := process.stdout.read(min(left, 65536)):
                stdout.write(data)
                left -= len(data)
                if left <= 0:
                    process.kill()
                    raise ClusterError("the connection broke")
        return process.returncode, b""


@pytest.fixture
def connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Visit, Connection]:
    monkeypatch.setattr(visit, "OUTPUT", str(tmp_path / "there" / "output"))
    monkeypatch.setattr(visit, "CODE", str(tmp_path / "there" / "code"))
    made, connection = Visit.__new__(Visit), Connection()
    made.stay, made.kubernetes = Stay("abc", "team", False, "somewhere/ray:1"), connection  # type: ignore[assignment]
    return made, connection


@pytest.mark.parametrize("breaks_after", [[], [1], [7, 100, 1, 13]])
def test_each_line_is_heard_once_however_often_the_connection_breaks(
    breaks_after: list[int], connected: tuple[Visit, Connection]
) -> None:
    made, connection = connected
    connection.breaks_after = list(breaks_after)
    heard = io.BytesIO()
    assert made.run([sys.executable, "-c", SAY], heard) == 3
    assert heard.getvalue().decode() == EXPECTED
    assert connection.made > len(breaks_after)


def test_what_cannot_be_heard_any_more_is_given_up(
    connected: tuple[Visit, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, connection = connected
    connection.silent = True
    monkeypatch.setattr(visit, "CONNECTED_WITHIN_S", 0.3)
    with pytest.raises(ClusterError, match="could not be heard any more"):
        made.run([sys.executable, "-c", "import time; time.sleep(5)"], io.BytesIO())


def test_results_are_fetched_although_the_first_try_breaks(connected: tuple[Visit, Connection], tmp_path: Path) -> None:
    made, connection = connected
    there = tmp_path / "results"
    there.mkdir()
    (there / "results.json").write_text("{}" * 5000)
    connection.breaks_after = [20]
    made.fetch(str(there), tmp_path / "here")
    assert (tmp_path / "here" / "results.json").read_text() == "{}" * 5000
    assert connection.made == 2
