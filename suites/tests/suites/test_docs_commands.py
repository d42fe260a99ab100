"""Every command on the pages for users: it can be parsed as it stands there, and those that take no time are run."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from shaketable.suites.command.cli import application
from shaketable.suites.tests.rigs import repeated_runs, report_pages
from shaketable.suites.tests.rigs.calling import called

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^ *```\w*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"\s+#\s.*$")
# these print the version and the outcome, and are no commands
OUTPUT = re.compile(r"shaketable (\d|compare:)")
# what is run, in a folder that has what the pages speak of -> the exit code, where it is not 0
QUICK = ("list", "show", "schema", "cost", "goodput", "preflight", "compare", "judge", "report", "import-trace")
CODES = {"--scaling 1:7": 1}
# recordings of somebody's run
ELSEWHERE = ("~/", "RUN", "main.json", "RESULT_DIR")


def lines(program: str) -> Iterator[tuple[str, str]]:
    """(page, what follows the program's name) of every command line in a block."""
    for page in PAGES:
        for block in FENCED.findall(page.read_text()):
            for line in block.splitlines():
                found = re.match(rf"^\s*(?:\$ )?{program} +(\S.*)$", line)
                if found and not OUTPUT.match(line.strip("$ ")):
                    yield page.name, COMMENT.sub("", found[1]).strip()


OURS = sorted(set(lines("shaketable")))
RUN = sorted({line for _, line in OURS if line.split()[0] in QUICK and not any(word in line for word in ELSEWHERE)})


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(application())
    return dict(group.commands)


@pytest.mark.parametrize(("page", "line"), OURS)
def test_every_command_on_a_page_can_be_parsed(page: str, line: str, commands: dict[str, Any]) -> None:
    name, *arguments = shlex.split(line)
    assert name in commands
    # raises for an option that is not there, and for one without its value
    assert commands[name].make_context(name, arguments).command is commands[name]


def test_the_pages_have_commands_to_parse_and_to_run() -> None:
    assert len(OURS) > 40
    assert {line.split()[0] for line in RUN} >= {"cost", "preflight", "compare", "judge", "list", "import-trace"}


def test_a_command_that_is_wrong_is_seen(commands: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="No such option"):
        commands["run"].make_context("run", ["worker-crash", "--simulated"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    few = {"worker-crash": 0.1}
    for number, names in enumerate((("old", "before"), ("new", "after"))):
        for name in names:
            repeated_runs.write(repeated_runs.run(number, experiments=few), tmp_path / name)
    latest = tmp_path / "shaketable-results" / "latest"
    report_pages.run_in(latest, [("worker-crash", "")])
    shutil.copytree(latest / "worker-crash", latest / "my-experiment")
    shutil.copytree(latest, tmp_path / "day")
    for name in ("day.json", "us-east-1f_v100_1.json"):
        (tmp_path / name).write_text('{"metadata": {"gap_seconds": 300}, "data": [4, 4, 3, 1, 1, 4]}')
    (tmp_path / "spot.csv").write_text("time,event,node\n0,add,a\n0,add,b\n600,remove,a\n900,add,c\n")
    return tmp_path


@pytest.mark.parametrize("line", RUN)
def test_every_command_on_a_page_that_takes_no_time_works(line: str, folder: Path) -> None:
    cluster = "kuberay-tpu-slices" if "TPU" in line else "kuberay-cpu"
    shutil.copy(ROOT / f"suites/tests/clusters/right/{cluster}.yaml", folder / "raycluster.yaml")
    done = called(*shlex.split(line), cwd=folder)
    expected = next((code for words, code in CODES.items() if words in line), 0)
    assert done.exit_code == expected, done.output


def test_every_nox_session_and_every_module_that_a_page_starts_is_there() -> None:
    sessions = set(re.findall(r"^@nox\.session\ndef (\w+)", (ROOT / "noxfile.py").read_text(), re.MULTILINE))
    asked = [re.findall(r"-s ((?:\w+ ?)+)", line)[0].split() for _, line in lines("nox") if line.startswith("-s ")]
    assert {name for names in asked for name in names} <= sessions
    modules = [line.split()[1] for _, line in lines("python") if line.startswith("-m ")]
    ours = {module for module in modules if module.startswith("shaketable.")}
    assert ours
    assert all(importlib.util.find_spec(module) for module in ours)
