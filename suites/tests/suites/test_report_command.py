"""The page of a result folder, written anew; and the page of a run while it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from shaketable.reports.results import Result, Run
from shaketable.suites.gate import outputs
from shaketable.suites.gate.outputs import LiveReport, as_json
from shaketable.suites.gate.shake import ShakeFailed, shake
from shaketable.suites.tests.rigs.calling import called
from shaketable.suites.tests.rigs.report_pages import run_in


def test_a_result_folder_without_results_json_is_judged_again_and_drawn(tmp_path: Path) -> None:
    run_in(tmp_path, [("worker-crash", "")]).unlink()
    done = called("report", tmp_path)
    assert (done.exit_code, done.stdout.strip()) == (0, str(tmp_path / "report.html"))
    text = (tmp_path / "report.html").read_text()
    assert 'id="worker-crash" data-verdict="PASS"' in text and 'href="worker-crash/history.jsonl"' in text


def test_the_page_of_one_experiment_can_be_written_elsewhere_and_its_links_still_lead_to_the_logs(
    tmp_path: Path,
) -> None:
    run_in(tmp_path / "results", [("worker-crash", "")])
    page = tmp_path / "one.html"
    assert called("report", tmp_path / "results" / "worker-crash", "--output", page).exit_code == 0
    assert 'href="results/worker-crash/driver-0.log"' in page.read_text()


def test_a_folder_without_results_is_a_usage_error(tmp_path: Path) -> None:
    done = called("report", tmp_path)
    assert done.exit_code == 2 and "holds no history.jsonl" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_history_that_cannot_be_read_leaves_its_verdict_on_the_page(tmp_path: Path) -> None:
    run_in(tmp_path, [("worker-crash", "")])
    run = Run("0.1.0", "2.60.0", 7, "", results=(_result(tmp_path),))
    (tmp_path / "results.json").write_bytes(as_json(run))
    (tmp_path / "worker-crash" / "history.jsonl").write_text("no event\n")
    assert called("report", tmp_path).exit_code == 0
    text = (tmp_path / "report.html").read_text()
    assert 'data-verdict="PASS"' in text and "there is no picture" in text


def test_a_page_is_written_with_the_first_result_and_then_not_more_often_than_somebody_reloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_in(tmp_path, [("worker-crash", "")]).unlink()
    run = Run("0.1.0", "2.60.0", 7, "", results=(_result(tmp_path),))
    live = LiveReport(tmp_path)
    live.add(run.results[0])
    live.write(run, ["another"])
    assert "Still to come: another." in live.path.read_text()
    live.path.unlink()
    live.write(run, ["another"])
    assert not live.path.exists()
    monkeypatch.setattr(outputs, "LEAST_BETWEEN_S", 0.0)
    live.write(run, ["another"])
    live.write(run)
    assert "Still to come" not in live.path.read_text()


def test_shake_leaves_a_page_and_a_failure_names_it(tmp_path: Path) -> None:
    with pytest.raises(ShakeFailed) as failed:
        shake("shaketable.workloads:hash_chain", cluster="simulated", outcome="failed", storage_path=tmp_path)
    page = tmp_path / "report.html"
    assert f"report     {page}" in str(failed.value)
    assert 'data-verdict="FAIL"' in page.read_text()


def _result(folder: Path) -> Result:
    from shaketable.suites.command.judging import judge_folder

    (result,) = judge_folder(folder).results
    return result
