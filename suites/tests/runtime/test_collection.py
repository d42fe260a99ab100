"""The collector: what was never committed goes, what is committed or another's stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from shaketable.runtime import trainer
from shaketable.runtime.checkpoints.garbage import collect
from shaketable.runtime.config import RunConfig, ScalingConfig, as_json
from shaketable.runtime.errors import StorageUnavailable
from shaketable.runtime.log import records as rec
from shaketable.runtime.log.run_log import open_run
from shaketable.runtime.log.run_state import RunState, apply
from shaketable.runtime.storage.files import CHECKPOINTS
from shaketable.runtime.trainer import ElasticTrainer
from shaketable.suites.tests.rigs.log_examples import committed, ended, started


def run_with_one_commit() -> RunState:
    state = apply(RunState(), rec.Opened(term=1, configuration={}))
    start = rec.AttemptStarted(term=1, attempt=1, world_size=1, members=[], resume=None, first_index=1)
    commit = rec.CheckpointCommitted(term=1, attempt=1, index=3, checkpoint="000003-t1-a1", files=[], metrics={})
    return apply(apply(state, start), commit)


def directories(run_path: Path, *names: str) -> None:
    for name in names:
        (run_path / CHECKPOINTS / name).mkdir(parents=True)
        (run_path / CHECKPOINTS / name / "weights").write_bytes(b"x")


def left(run_path: Path) -> list[str]:
    return sorted(path.name for path in (run_path / CHECKPOINTS).iterdir())


def test_an_uncommitted_upload_of_an_ended_attempt_goes_and_nothing_else(tmp_path: Path) -> None:
    state = apply(run_with_one_commit(), rec.AttemptEnded(term=1, attempt=1, cause="interrupted", account=None))
    directories(tmp_path, "000003-t1-a1", "000004-t1-a1", "000005-t2-a2", "notes")
    assert collect(tmp_path, state) == ["000004-t1-a1"]
    assert left(tmp_path) == ["000003-t1-a1", "000005-t2-a2", "notes"]


def test_a_finished_run_that_is_launched_again_is_tidied_up_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver was killed between its last word and the tidying."""
    # none is started for a run that is over
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    config = RunConfig(name="run", storage_path=str(tmp_path))
    log, _ = open_run(tmp_path / "run", as_json(ScalingConfig(), config, None, "none"))
    for record in (started(1), committed(3), ended(1, "finished", None), rec.RunFinished(term=1, metrics={})):
        log.append(record)
    directories(tmp_path / "run", "000003-t1-a1", "000004-t1-a1")
    result = ElasticTrainer(print, run_config=config).fit()
    assert [attempt.cause for attempt in result.attempts] == ["finished"]
    assert left(tmp_path / "run") == ["000003-t1-a1"]
    assert len(log.read()) == 5


def test_a_finished_run_gives_its_result_also_where_nothing_can_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object) -> list[str]:
        raise StorageUnavailable("delete: not allowed")

    monkeypatch.setattr("ray.is_initialized", lambda: True)
    monkeypatch.setattr(trainer, "collect", refused)
    config = RunConfig(name="run", storage_path=str(tmp_path))
    log, _ = open_run(tmp_path / "run", as_json(ScalingConfig(), config, None, "none"))
    for record in (started(1), committed(3), ended(1, "finished", None), rec.RunFinished(term=1, metrics={})):
        log.append(record)
    assert ElasticTrainer(print, run_config=config).fit().checkpoint is not None
    assert "delete: not allowed" in capsys.readouterr().out


def test_nothing_of_an_open_attempt_is_touched(tmp_path: Path) -> None:
    directories(tmp_path, "000003-t1-a1", "000004-t1-a1")
    assert collect(tmp_path, run_with_one_commit()) == []
    assert left(tmp_path) == ["000003-t1-a1", "000004-t1-a1"]
