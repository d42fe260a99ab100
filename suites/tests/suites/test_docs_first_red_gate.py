"""docs/first-red-gate.md: its commands are run one after the other, and print what the page says that they print.

Blocks marked `console` are run, from an empty folder; of each command the exit code stands here. Seconds of the wall
clock, versions and the names of result folders differ from run to run and are not compared; nor are the lines of
progress that a slow machine prints.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "first-red-gate.md"
EXIT_CODES = [0, 1, 1, 0, 0]
DIFFERS = [
    (r"^  progress .*\n", ""),
    (r"\b(\d+ min \d+|\d+\.\d|\d+) s(?=  | +shake|$)", "N s"),
    (r"(shaketable|ray) \d+\.\d+\.\d+", r"\1 VERSION"),
    (r"shaketable-results/(latest|\d{4}-\d\d-\d\dT\d{4}(-\d+)?)", "RESULTS"),
    (r" +", " "),
]


def blocks(page: Path) -> list[tuple[str, str]]:
    """(command, output) of every block, in order."""
    found = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [(command, output) for command, output in found]


def plain(text: str) -> list[str]:
    for pattern, word in DIFFERS:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text.strip().splitlines()


def typed(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = f"{shlex.quote(sys.executable)} -m shaketable.suites.command.cli "
    command = re.sub(r"^shaketable ", lambda _: program, command)
    return subprocess.run(["bash", "-c", command], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def walk(page: Path, exit_codes: list[int], folder: Path) -> None:
    """Type every command of the page, and see what it prints."""
    assert len(blocks(page)) == len(exit_codes)
    for (command, output), code in zip(blocks(page), exit_codes, strict=True):
        done = typed(command, folder)
        assert done.returncode == code, f"{command}: {done.stdout}{done.stderr}"
        assert plain(done.stdout) == plain(output), command


def test_every_command_of_the_tutorial_prints_what_the_page_says(tmp_path: Path) -> None:
    walk(PAGE, EXIT_CODES, tmp_path)


def test_the_code_that_the_tutorial_quotes_is_in_the_files_that_it_links() -> None:
    text = PAGE.read_text()
    linked = [(PAGE.parent / path).read_text() for path in re.findall(r"\]\(([^)#]+\.py)\)", text)]
    for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in filter(None, map(str.strip, block.replace("...", "").splitlines())):
            assert any(line in source for source in linked), f"no file that the page links has: {line}"
