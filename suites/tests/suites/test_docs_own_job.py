"""docs/own-job.md: its job is saved, its commands are run with real processes, its line of code mends the job, and what
is printed is what the page says, but for numbers: processes are killed at other moments each time.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shaketable.suites.tests.suites import test_docs_first_red_gate as tutorial

PAGE = Path(__file__).resolve().parents[3] / "docs" / "own-job.md"
BROKEN = "weight, first = "
EXIT_CODES = [1, 0, 0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def plain(text: str) -> list[str]:
    """Without what is said of the progress, and without numbers."""
    lines = (re.sub(r"[\d.:T+-]*\d[\d.:T+-]*(?:e-\d+)?", "N", line) for line in text.strip().splitlines())
    return [re.sub(r" +", " ", line).strip() for line in lines if not line.startswith("  progress")]


def test_the_line_that_mends_the_job_stands_for_one_of_it() -> None:
    job, mended = blocks("python")
    (broken,) = [line for line in job.splitlines() if BROKEN in line]
    assert mended.index("weight") == broken.index("weight")
    compile(job.replace(broken, mended.rstrip()), "job.py", "exec")


@pytest.mark.on_demand
def test_every_command_of_the_walk_prints_what_the_page_says(tmp_path: Path) -> None:
    job, mended = blocks("python")
    (tmp_path / "job.py").write_text(job)
    walk = [block.partition("\n") for block in blocks("console")]
    assert len(walk) == len(EXIT_CODES)
    for (command, _, output), code in zip(walk, EXIT_CODES, strict=True):
        done = tutorial.typed(command.removeprefix("$ "), tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
        assert plain(done.stdout) == plain(output), command
        (broken,) = [line for line in job.splitlines() if BROKEN in line]
        (tmp_path / "job.py").write_text(job.replace(broken, mended.rstrip()))
