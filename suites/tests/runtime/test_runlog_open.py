from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shaketable.runtime.errors import ConfigurationError, LogCorrupt, StorageUnsettled
from shaketable.runtime.log.compatibility import differences, recordable
from shaketable.runtime.log.records import AttemptStarted, Opened, RunFailed, RunFinished
from shaketable.runtime.log.redaction import REDACTED
from shaketable.runtime.log.run_log import RunLog, open_run, take_over
from shaketable.runtime.storage.files import (
    StoredRecords,
    check_rights,
    check_writable,
    locate_run,
    parse_storage_path,
    records_of,
)
from shaketable.runtime.storage.local import LocalStore
from shaketable.suites.tests.rigs.log_examples import CONFIGURATION, committed, ended, started


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    return tmp_path / "storage" / "run"


def test_every_driver_opens_a_newer_term(run_path: Path) -> None:
    assert [open_run(run_path, CONFIGURATION)[1].term for _ in range(3)] == [1, 2, 3]


def test_a_relaunched_driver_finds_commits_budgets_and_the_attempt_left_open(run_path: Path) -> None:
    log, _ = open_run(run_path, CONFIGURATION)
    for record in (started(1), committed(4), ended(1), started(2, resume="000004-t1-a1", first_index=5)):
        log.append(record)
    log, state = open_run(run_path, CONFIGURATION)
    assert state.spent["max_failures"] == 1
    assert state.latest is not None and state.latest.metrics == {"step": 4}
    assert state.must_end_first is not None and state.must_end_first.attempt == 2
    log.append(ended(2, "driver_lost", None, term=2))
    assert log.state.open_attempt is None


def test_a_finished_run_is_returned_and_nothing_is_appended(run_path: Path) -> None:
    open_run(run_path, CONFIGURATION)[0].append(RunFinished(term=1, metrics={"loss": 0.5}))
    for _ in range(2):
        log, state = open_run(run_path, CONFIGURATION)
        assert (state.outcome, state.metrics, len(log.read())) == ("finished", {"loss": 0.5}, 2)


def test_a_failed_run_is_reopened(run_path: Path) -> None:
    open_run(run_path, CONFIGURATION)[0].append(RunFailed(term=1, error="budget"))
    log, state = open_run(run_path, CONFIGURATION)
    last = log.read()[-1][1]
    assert isinstance(last, Opened) and last.reopened
    assert (state.outcome, state.term) == (None, 2)


def test_opening_sweeps_the_temporaries_of_killed_writers_and_nothing_else(run_path: Path) -> None:
    open_run(run_path, CONFIGURATION)
    stale, other = run_path / "log" / ".0000000002.json.abc.tmp", run_path / "log" / "notes.txt"
    for path in (stale, other):
        path.write_text("half a rec")
    open_run(run_path, CONFIGURATION)
    assert not stale.exists() and other.exists()


def test_a_lost_log_is_not_taken_for_a_new_run(run_path: Path) -> None:
    (run_path / "checkpoints" / "000001-t1-a1").mkdir(parents=True)
    with pytest.raises(LogCorrupt, match="the log of this run is lost"):
        open_run(run_path, CONFIGURATION)
    assert RunLog(run_path).read() == []


# ---- a storage that does not answer


class Unsure(StoredRecords):
    """Nobody hears what became of the first record; `meanwhile` says it."""

    def __init__(self, run_path: Path, meanwhile: Callable[[int, bytes], object]) -> None:
        super().__init__(LocalStore(run_path))
        self._meanwhile: Callable[[int, bytes], object] | None = meanwhile

    def create(self, number: int, data: bytes) -> bool:
        if self._meanwhile is None:
            return super().create(number, data)
        meanwhile, self._meanwhile = self._meanwhile, None
        meanwhile(number, data)
        raise StorageUnsettled("no answer")


def taken_over(run_path: Path, meanwhile: Callable[[int, bytes], object]) -> RunLog:
    LocalStore(run_path).prepare("log")
    records = Unsure(run_path, meanwhile)
    return take_over(lambda: RunLog(run_path, records=records), CONFIGURATION, has_checkpoints=lambda: False)[0]


@pytest.mark.parametrize("stored", [True, False])
def test_a_run_is_opened_once_whether_or_not_its_record_was_stored_when_the_answer_was_lost(
    run_path: Path, stored: bool
) -> None:
    def meanwhile(number: int, data: bytes) -> None:
        if stored:
            records_of(run_path).create(number, data)

    log = taken_over(run_path, meanwhile)
    assert (log.state.term, log.append(started(1))[0]) == (1, 2)
    assert [type(record) for _, record in RunLog(run_path).read()] == [Opened, AttemptStarted]


def test_a_driver_that_took_the_number_while_no_answer_came_is_succeeded(run_path: Path) -> None:
    log = taken_over(run_path, lambda number, data: open_run(run_path, CONFIGURATION))
    assert log.state.term == 2
    assert [record.term for _, record in RunLog(run_path).read()] == [1, 2]


# ---- a name reused


@pytest.mark.parametrize("key", ["framework", "accelerator", "topology", "train_loop_config"])
def test_what_makes_checkpoints_meaningless_is_refused_with_the_difference(run_path: Path, key: str) -> None:
    open_run(run_path, CONFIGURATION)
    other: Any = {"lr": 0.2, "layers": [1, 2]} if key == "train_loop_config" else "other"
    with pytest.raises(ConfigurationError, match=rf"{key}.*-> (0\.2|'other')") as error:
        open_run(run_path, CONFIGURATION | {key: other})
    assert "layers" not in str(error.value), "only the difference is shown"
    assert len(RunLog(run_path).read()) == 1


def test_a_finished_run_is_not_the_result_of_another_configuration(run_path: Path) -> None:
    open_run(run_path, CONFIGURATION)[0].append(RunFinished(term=1, metrics={}))
    with pytest.raises(ConfigurationError):
        open_run(run_path, CONFIGURATION | {"train_loop_config": {}})


def test_everything_else_may_change_and_is_recorded(run_path: Path) -> None:
    open_run(run_path, CONFIGURATION)
    log, state = open_run(run_path, CONFIGURATION | {"max_failures": 5, "num_workers": [1, 2]})
    last = log.read()[-1][1]
    assert isinstance(last, Opened) and last.changed == ["max_failures", "num_workers"]
    assert state.configuration["max_failures"] == 5


def test_another_train_loop_config_may_be_accepted_another_framework_never(run_path: Path) -> None:
    open_run(run_path, CONFIGURATION)
    changed = CONFIGURATION | {"train_loop_config": {"lr": 0.2}}
    open_run(run_path, changed, on_config_change="accept")
    with pytest.raises(ConfigurationError, match="framework"):
        open_run(run_path, changed | {"framework": "jax"}, on_config_change="accept")


def test_secrets_are_neither_stored_nor_compared(run_path: Path) -> None:
    def with_token(token: str) -> dict[str, Any]:
        loop = {"hf_token": token, "db": f"postgres://me:{token}@host/x", "max_tokens": 5, "api_key": [token]}
        return CONFIGURATION | {"train_loop_config": loop}

    log, _ = open_run(run_path, with_token("hunter2"))
    open_run(run_path, with_token("swordfish"))
    text = "".join(path.read_text() for path in (run_path / "log").iterdir())
    assert "hunter2" not in text and "swordfish" not in text
    stored = log.state.configuration["train_loop_config"]
    assert (stored["max_tokens"], stored["hf_token"]) == (5, REDACTED)


@pytest.mark.parametrize("metrics", ["null", "[1]", "3"])
def test_a_record_whose_metrics_are_no_dict_does_not_end_the_run(run_path: Path, metrics: str) -> None:
    open_run(run_path, CONFIGURATION)[0].append(RunFinished(term=1, metrics={"loss": 0.5}))
    record = run_path / "log" / f"{2:010d}.json"
    text = record.read_text().replace('{"loss":0.5}', metrics)
    record.write_text(text)
    assert f'"metrics":{metrics}' in text
    _, state = open_run(run_path, CONFIGURATION)
    assert (state.outcome, state.metrics) == ("finished", {})


def test_a_configuration_that_json_cannot_say_is_named_by_type() -> None:
    class Model:
        pass

    plain = recordable({"train_loop_config": {"model": Model(), "fn": len, "path": Path("/x"), 3: (1, {2})}})
    assert plain["train_loop_config"]["path"] == "/x"
    assert plain["train_loop_config"]["3"] == [1, [2]]
    assert "Model" in plain["train_loop_config"]["model"] and "0x" not in plain["train_loop_config"]["model"]
    assert plain["train_loop_config"]["fn"] == "<builtins.len>"


def test_no_train_loop_config_is_the_same_as_an_empty_one() -> None:
    assert differences({"train_loop_config": None, "a": 1}, {"train_loop_config": {}, "a": 1}) == {}


# ---- storage_path and name


def test_storage_paths_are_local_for_now() -> None:
    assert parse_storage_path("file:///tmp/a%20b") == Path("/tmp/a b")
    assert parse_storage_path("~/x") == Path.home().resolve() / "x"
    assert parse_storage_path("/tmp/../tmp/x") == Path("/tmp/x")
    with pytest.raises(ConfigurationError, match=r"ftp://\.\.\.: use a directory"):
        parse_storage_path("ftp://key:secret@host/path")


@pytest.mark.parametrize("bad", ["", "file://host/x", "file://relative", "a\0b"])
def test_other_storage_paths_are_refused(bad: str) -> None:
    with pytest.raises(ConfigurationError, match="storage_path"):
        parse_storage_path(bad)


@pytest.mark.parametrize("bad", ["", ".", "..", "a/b", "../x", "a\nb", "x" * 300])
def test_a_name_never_leads_out_of_the_storage_path(tmp_path: Path, bad: str) -> None:
    with pytest.raises(ConfigurationError, match="plain name"):
        locate_run(str(tmp_path), bad)


def test_a_log_that_belongs_to_somebody_else_is_refused_at_once(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_rights(run_path)
    open_run(run_path, CONFIGURATION)
    check_rights(run_path)
    # root may always
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ConfigurationError, match="cannot be read and written by uid"):
        check_rights(run_path)


def test_a_storage_path_that_is_not_writable_is_a_configuration_error(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "deep")
    assert list((tmp_path / "new" / "deep").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="is not writable for uid"):
        check_writable(tmp_path / "file" / "below")
    with pytest.raises(ConfigurationError, match="is not writable"):
        check_writable(Path("/proc/here"))
