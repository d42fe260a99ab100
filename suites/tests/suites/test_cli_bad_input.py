"""What every command owes to whoever gives it something wrong: what is wrong, what to do, and nothing left behind."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from shaketable.suites.command import cli
from shaketable.suites.tests.rigs.calling import called

NO_EVENT = '{"kind": "of_tomorrow", "writer": "a"}\n'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["judge", "nowhere"], "nowhere: no such directory; give a result folder"),
        (["judge", "later"], "history.jsonl:1: not an event of history schema 1"),
        (["judge", "later"], "If another version of shaketable wrote it, judge it with that version"),
        (["goodput", "nowhere", "--json", "x.json"], "nowhere: no such directory"),
        (["preflight", "--scaling", "1:8", "nowhere.yaml", "--json", "x.json"], "cannot read nowhere.yaml"),
        (
            ["preflight", "--scaling", "1:8", "--resources-per-worker", "CPU=1,GPU=1,CPU=2", "nowhere.yaml"],
            "--resources-per-worker CPU=1,GPU=1,CPU=2: names CPU twice",
        ),
        (["cost", "--hours", "5", "--alpha", "0.5", "--price", "inf"], "--price is inf: give what an hour on demand"),
        (
            ["cost", "--hours", "1e308", "--alpha", "0.5", "--failures", "9", "--overhead", "12m", "--json", "x.json"],
            "--hours 1e+308, --failures 9, --overhead 12m: too large",
        ),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "history.jsonl").write_text(NO_EVENT)
    done = called(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["later"]


def test_json_that_was_there_stays_as_it_was_where_the_command_fails(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    done = called("goodput", tmp_path / "nowhere", "--json", tmp_path / "x.json")
    assert (done.exit_code, (tmp_path / "x.json").read_text()) == (2, "{}")


def test_ctrl_c_while_the_command_is_still_importing_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.util, "find_spec", interrupted)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "interrupted\n")
