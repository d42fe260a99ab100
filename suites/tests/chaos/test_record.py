"""Where `reproduce` and `judge` find what was recorded, and what they say to what is no record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from shaketable.suites.command.incidents import reproduced
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.tests.rigs import recorded
from shaketable.suites.tests.rigs.calling import called
from shaketable.suites.tests.rigs.run_logs import RunLogs


def crashed() -> RunLogs:
    log = RunLogs(max_failures=1).open().attempt(3).commit(4).end("worker_death", "max_failures", 1)
    return log.attempt(3).commit(5).finish()


def test_a_run_is_given_by_its_directory_or_by_its_log(tmp_path: Path) -> None:
    run = crashed().write(tmp_path / "demo")
    assert reproduced(run).made == reproduced(run / "log").made
    assert reproduced(run).source == f"run log {run}"


def test_a_result_folder_is_given_as_such_or_by_its_history(tmp_path: Path) -> None:
    folder = recorded.write(tmp_path / "worker-crash", recorded.worker_crash())
    assert reproduced(folder).made == reproduced(folder / "history.jsonl").made
    assert reproduced(folder).made.plan.configuration.job_config == {"steps": 20}


def refused(path: Path) -> str:
    with pytest.raises(UsageError) as error:
        reproduced(path)
    return str(error.value)


def test_nothing_is_read_from_a_torn_log_and_the_record_is_named(tmp_path: Path) -> None:
    run = crashed().write(tmp_path / "demo")
    (run / "log" / "0000000003.json").write_text('{"kind": "checkpoint_comm')
    assert "0000000003.json" in refused(run) and "Restore the file" in refused(run)


def test_a_log_with_a_hole_names_the_record_that_is_missing(tmp_path: Path) -> None:
    run = crashed().write(tmp_path / "demo")
    (run / "log" / "0000000003.json").unlink()
    assert "0000000003.json is missing" in refused(run)


def test_a_log_that_was_edited_is_not_believed(tmp_path: Path) -> None:
    log = crashed()
    # the end of the first attempt
    del log.records[3]
    assert "attempt 1 is still open" in refused(log.write(tmp_path / "demo"))


def test_a_log_of_a_newer_version_says_to_use_that_version(tmp_path: Path) -> None:
    log = crashed()
    log.records[0]["schema"] = 2
    assert "schema 2" in refused(log.write(tmp_path / "demo"))


def test_a_history_of_another_schema_is_named_by_its_line(tmp_path: Path) -> None:
    first, *rest = recorded.worker_crash()
    folder = recorded.write(tmp_path / "worker-crash", [first, *rest])
    lines = (folder / "history.jsonl").read_text().splitlines()
    changed = json.dumps(json.loads(lines[0]) | {"schema": 7})
    (folder / "history.jsonl").write_text("\n".join([changed, *lines[1:]]) + "\n")
    assert "history.jsonl:1: history schema 7, this version reads 1" in refused(folder)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("INFO the train controller started\n", "history.jsonl:1: not an event"),
        ('{"kind": "an event of tomorrow"}\n', "history.jsonl:1: not an event"),
        ("", "history.jsonl:1: nothing in it"),
    ],
)
def test_another_format_is_named_by_its_line_and_told_what_to_give(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "history.jsonl").write_text(content)
    assert said in refused(tmp_path) and "shaketable.Recorder wrote" in refused(tmp_path)


def test_a_directory_without_a_record_says_what_is_expected(tmp_path: Path) -> None:
    assert "holds no record of a run; give a run" in refused(tmp_path)
    assert "no such file or directory" in refused(tmp_path / "missing")


def test_a_directory_of_several_records_lists_them(tmp_path: Path) -> None:
    crashed().write(tmp_path / "demo")
    recorded.write(tmp_path / "worker-crash", recorded.worker_crash())
    assert "give one of them: worker-crash, demo" in refused(tmp_path)


def test_the_command_writes_the_file_and_says_what_it_found(tmp_path: Path) -> None:
    crashed().write(tmp_path / "demo")
    done = called("reproduce", "demo", "--output", "incident.yaml", "--json", "incident.json", cwd=tmp_path)

    assert done.exit_code == 0, done.stderr
    assert "attempt 1: 3 workers from step 1, worker_death at step 5" in done.stderr
    assert "shaketable run incident.yaml" in done.stderr
    document = yaml.safe_load((tmp_path / "incident.yaml").read_text())
    assert [action["provider"]["func"] for action in document["method"]] == ["sigkill_worker"]
    written = json.loads((tmp_path / "incident.json").read_text())
    assert (written["outcome"], written["charged"]) == ("finished", {"max_failures": 1})


def test_the_command_prints_the_file_alone_where_no_output_is_named(tmp_path: Path) -> None:
    crashed().write(tmp_path / "demo")
    done = called("reproduce", "demo", cwd=tmp_path)
    assert yaml.safe_load(done.stdout)["tags"] == ["incident"]
    assert called("reproduce", "nowhere", cwd=tmp_path).exit_code == 2
