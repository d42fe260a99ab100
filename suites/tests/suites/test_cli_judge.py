"""`shaketable judge` on recorded histories, in place and on a copy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from shaketable.chaos.verdict.judge import judge
from shaketable.reports.results import exit_code
from shaketable.suites.command.judging import judge_folder
from shaketable.suites.gate import execution
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.tests.reports.test_reports_results import CAUGHT
from shaketable.suites.tests.rigs import recorded
from shaketable.suites.tests.suites.test_cli_catalogue import shaketable


def test_one_folder_is_judged_from_its_history_alone(tmp_path: Path) -> None:
    folder = recorded.write(tmp_path / "worker-crash", recorded.worker_crash())
    run = judge_folder(folder)
    expected = judge(recorded.worker_crash())
    assert [(r.name, r.verdict, r.reason) for r in run.results] == [("worker-crash", expected.verdict, expected.reason)]
    assert run.results[0].landed == ("SIGKILL worker rank 1 pid 4001 at step 12, gone after 8 ms",)
    assert (run.ray, run.seed) == ("2.60.0", 7)


def test_a_copy_elsewhere_gets_the_same_verdict_and_is_not_written_to(tmp_path: Path) -> None:
    folder = recorded.write(tmp_path / "here" / "two-nodes", recorded.node_lost_and_back())
    copy = shutil.copytree(folder, tmp_path / "there" / "two-nodes")
    copy.chmod(0o555)
    assert exit_code(judge_folder(copy)) == exit_code(judge_folder(folder))
    assert [path.name for path in copy.iterdir()] == ["history.jsonl"]


def test_a_results_directory_is_judged_whole_with_its_canary_apart(tmp_path: Path) -> None:
    recorded.write(tmp_path / "a", recorded.worker_crash())
    recorded.write(tmp_path / "b", recorded.node_lost_and_back())
    canary = recorded.write(tmp_path / CAUGHT.name, recorded.node_lost_and_back())
    (canary / "result.json").write_bytes(execution.dump(CAUGHT))
    run = judge_folder(tmp_path)
    assert [result.name for result in run.results] == ["a", "b"]
    assert run.canary is not None
    assert run.canary.name == CAUGHT.name


def test_an_unreadable_history_is_a_usage_error_that_names_the_line(tmp_path: Path) -> None:
    folder = recorded.write(tmp_path / "worker-crash", recorded.worker_crash())
    lines = (folder / "history.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "history.jsonl").write_bytes(b"".join([*lines[:3], b"{}\n", *lines[3:]]))
    with pytest.raises(UsageError, match=r"history\.jsonl:4"):
        judge_folder(folder)


def test_an_empty_history_is_invalid(tmp_path: Path) -> None:
    folder = recorded.write(tmp_path / "worker-crash", [])
    assert [result.verdict for result in judge_folder(folder).results] == ["INVALID"]


def test_the_command_prints_the_verdict_and_exits_with_it(tmp_path: Path) -> None:
    recorded.write(tmp_path / "results" / "worker-crash", recorded.worker_crash())
    done = shaketable("judge", "results", "--json", "judged.json", cwd=tmp_path)
    written = json.loads((tmp_path / "judged.json").read_text())
    assert done.returncode == written["exit_code"] == exit_code(judge_folder(tmp_path / "results"))
    assert (written["schema"], written["results"][0]["name"]) == (1, "worker-crash")
    assert done.stdout.startswith(f"{written['results'][0]['verdict']:<8} worker-crash")
