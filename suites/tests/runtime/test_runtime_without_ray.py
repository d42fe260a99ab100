"""What users' functions did to the runtime, with real driver, agents and workers, and no Ray."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from shaketable.runtime import session
from shaketable.runtime.checkpoint import Checkpoint, CheckpointUploadMode
from shaketable.runtime.config import FailureConfig
from shaketable.runtime.driver.result import Result
from shaketable.runtime.errors import TrainingFailedError
from shaketable.suites.tests.rigs.process_runs import fit, process_nodes
from shaketable.suites.tests.rigs.read_back import read_result

ASYNC = CheckpointUploadMode.ASYNC


def by_value(function: Any) -> Any:
    """Pickled with its code: a worker need not import this module, and with it pytest."""
    function.__module__ = "__main__"
    return function


def files(result: Result) -> dict[str, dict[str, str]]:
    """Of every commit, by the name of its directory: name of a file -> its text."""
    found = {}
    for checkpoint, _ in result.best_checkpoints:
        folder = Path(checkpoint.path)
        found[folder.name] = {path.name: path.read_text() for path in sorted(folder.iterdir())}
    return found


# ---- a report that raises


def test_an_upload_error_that_is_caught_writes_nothing_into_a_directory_that_is_committed(tmp_path: Path) -> None:
    """The upload of report 1 fails, report 2 says so, and the function goes on."""

    @by_value
    def train() -> None:
        for step in range(1, 6):
            folder = Path(tempfile.mkdtemp())
            (folder / "state").write_text(str(step))
            if step == 1:
                (folder / "out").symlink_to("/etc/passwd")
            with contextlib.suppress(OSError):
                session.report({"step": step}, Checkpoint.from_directory(folder), checkpoint_upload_mode=ASYNC)
            time.sleep(0.3)

    result = fit(train, tmp_path)
    assert {name: found["state"] for name, found in files(result).items()} == {
        f"{step:06d}-t1-a1": str(step) for step in range(2, 6)
    }
    assert result.metrics == {"step": 5}
    assert [left.index for left in result.uncommitted] == [1]
    assert "link out of the checkpoint directory" in result.uncommitted[0].detail


@pytest.mark.parametrize("how", ["upload", "metrics", "staging"])
def test_commits_never_mix_the_steps_of_a_rank_that_caught_an_error_with_those_of_its_peers(
    tmp_path: Path, how: str
) -> None:
    @by_value
    def train() -> None:
        rank = session.get_context().rank
        for step in range(1, 6):
            folder = Path(tempfile.mkdtemp())
            metrics: dict[str, Any] = {"step": step}
            (folder / f"shard-{rank}").write_text(str(step))
            fails = rank == 0 and step == 2
            if fails and how == "upload":
                (folder / "out").symlink_to("/etc/passwd")
            if fails and how == "metrics":
                metrics = {"step": b"two"}
            mode = ASYNC if how == "staging" else CheckpointUploadMode.SYNC
            checkpoint = Checkpoint.from_directory(folder)
            if fails and how == "staging":
                (folder / f"shard-{rank}").unlink()
                folder.rmdir()
            with contextlib.suppress(OSError, TypeError):
                session.report(metrics, checkpoint, checkpoint_upload_mode=mode)
            session.barrier()

    result = fit(train, tmp_path, workers=2)
    committed = files(result)
    assert sorted(committed) == [f"{step:06d}-t1-a1" for step in (1, 3, 4, 5)]
    for name, found in committed.items():
        assert found == {"shard-0": str(int(name[:6])), "shard-1": str(int(name[:6]))}


def test_a_report_that_is_made_again_after_its_upload_failed_is_committed(tmp_path: Path) -> None:
    @by_value
    def train() -> None:
        for broken in (True, False):
            folder = Path(tempfile.mkdtemp())
            (folder / "state").write_text("1")
            if broken:
                (folder / "out").symlink_to("/etc/passwd")
            with contextlib.suppress(OSError):
                session.report({"step": 1}, Checkpoint.from_directory(folder))

    assert files(fit(train, tmp_path)) == {"000002-t1-a1": {"state": "1"}}


def test_a_rank_that_raises_loses_no_report_that_the_others_are_about_to_make(tmp_path: Path) -> None:
    @by_value
    def train() -> None:
        rank = session.get_context().rank
        for step in range(1, 4):
            checkpoint = None
            if rank == 0:
                folder = Path(tempfile.mkdtemp())
                (folder / "state").write_text(str(step))
                checkpoint = Checkpoint.from_directory(folder)
            else:
                time.sleep(0.1)
            session.report({"step": step}, checkpoint)
        if rank == 0:
            raise ValueError("after the last report")
        time.sleep(600.0)

    with pytest.raises(TrainingFailedError, match="after the last report"):
        fit(train, tmp_path, workers=2)
    assert [commit.index for commit in read_result(str(tmp_path / "storage"), "run").commits] == [1, 2, 3]


def test_a_rank_that_raises_does_not_wait_for_ever_for_one_that_reports_nothing(tmp_path: Path) -> None:
    @by_value
    def train() -> None:
        if session.get_context().rank == 0:
            session.report({"step": 1})
            raise ValueError("and rank 1 sleeps")
        time.sleep(600.0)

    with pytest.raises(TrainingFailedError, match="and rank 1 sleeps"):
        fit(train, tmp_path, workers=2, hang_timeout_s=300.0)


def test_the_exception_of_an_alarm_inside_a_report_leaves_no_half_of_it_behind(tmp_path: Path) -> None:
    """It comes while the upload is waited for."""

    @by_value
    def train() -> None:
        import signal

        class Late(Exception):
            pass

        def late(*_: object) -> None:
            raise Late

        class Timer:
            def before_report(self, index: int, *_: object) -> None:
                if index == 2:
                    signal.setitimer(signal.ITIMER_REAL, 0.05)

            def after_report(self, index: int) -> None: ...

        signal.signal(signal.SIGALRM, late)
        session.listeners.append(Timer())
        for step in range(1, 4):
            folder = Path(tempfile.mkdtemp())
            (folder / "state").write_text(str(step))
            if step == 2:
                with (folder / "large").open("wb") as file:
                    file.truncate(2**28)
            with contextlib.suppress(Late):
                session.report({"step": step}, Checkpoint.from_directory(folder))
                assert step != 2, "the upload was faster than the alarm"

    committed = files(fit(train, tmp_path))
    assert {name: found["state"] for name, found in committed.items()} == {"000001-t1-a1": "1", "000003-t1-a1": "3"}


# ---- the last checkpoint


def test_a_final_checkpoint_that_is_refused_is_named_in_the_result_and_its_files_are_kept(tmp_path: Path) -> None:
    @by_value
    def train() -> None:
        folder = Path(tempfile.mkdtemp())
        (folder / "state").write_text("precious")
        (folder / "out").symlink_to("/etc/passwd")
        session.report({"step": 1}, Checkpoint.from_directory(folder), checkpoint_upload_mode=ASYNC)

    with process_nodes(1) as nodes:
        result = fit(train, tmp_path, nodes=nodes)
        (left,) = result.uncommitted
        assert result.checkpoint is None and left.index == 1
        kept = Path(left.detail.partition("the files lie in ")[2].partition(" on ")[0])
        assert (kept / "state").read_text() == "precious"
    assert fit(train, tmp_path).uncommitted == [left]


# ---- what is reported


def test_metrics_that_are_no_dict_are_refused_by_name_in_the_worker(tmp_path: Path) -> None:
    @by_value
    def train() -> None:
        session.report(None)  # type: ignore[arg-type]

    assert "report: metrics must be a dict, not None" in fails_of(train, tmp_path)


def test_metrics_that_are_not_finite_come_back_as_they_were_reported(tmp_path: Path) -> None:
    @by_value
    def train() -> None:
        folder = Path(tempfile.mkdtemp())
        (folder / "state").write_text("1")
        inf = float("inf")
        session.report({"loss": inf, "all": [inf, -inf, {"x": float("nan")}]}, Checkpoint.from_directory(folder))

    result = fit(train, tmp_path)
    expected = "{'loss': inf, 'all': [inf, -inf, {'x': nan}]}"
    assert repr(result.metrics) == expected
    assert repr(result.best_checkpoints[0][1]) == expected


# ---- what a function does to its process


def starts(data: bytes, folder: Path) -> float:
    """Seconds from the record of a start to the function's first line; the shortest of three."""
    began = folder / "began"

    @by_value
    def train() -> None:
        began.mkdir(parents=True, exist_ok=True)
        (began / str(session.get_context().attempt)).write_text(f"{len(data)} {time.time()}")
        raise ValueError

    with contextlib.suppress(TrainingFailedError):
        fit(train, folder, failure_config=FailureConfig(max_failures=3))
    log = folder / "storage" / "run" / "log"
    records = [json.loads(path.read_text()) for path in sorted(log.glob("*.json"))]
    started = {each["attempt"]: each["at_s"] for each in records if each["kind"] == "attempt_started"}
    assert len(started) == 4
    called = {n: float((began / str(n)).read_text().split()[1]) for n in (2, 3, 4)}
    return min(called[n] - float(started[n]) for n in called)


def test_a_function_of_16_mib_starts_nearly_as_fast_as_a_small_one(tmp_path: Path) -> None:
    small, large = starts(b"x", tmp_path / "small"), starts(os.urandom(16 * 2**20), tmp_path / "large")
    print(f"small {small:.3f} s, 16 MiB {large:.3f} s")
    # 0.3 on a quiet machine; a buffer a turn of the loop was 80 s.
    assert large - small < 5.0


def test_a_broadcast_of_16_mib_takes_no_time_worth_mentioning(tmp_path: Path) -> None:
    @by_value
    def train() -> None:
        began_s = time.monotonic()
        found = session.broadcast_from_rank_zero(os.urandom(16 * 2**20))
        session.report({"bytes": len(found), "seconds": time.monotonic() - began_s})

    metrics = fit(train, tmp_path, workers=2).metrics
    assert metrics is not None and metrics["bytes"] == 16 * 2**20 and metrics["seconds"] < 10.0


def test_a_function_that_cannot_be_loaded_in_a_worker_fails_at_once(tmp_path: Path) -> None:
    class Here:
        def __reduce__(self) -> Any:
            return (by_value(lambda pid: 1 / (os.getpid() == pid)), (os.getpid(),))

    here = Here()

    @by_value
    def train() -> None:
        print(here)

    began_s = time.monotonic()
    with pytest.raises(TrainingFailedError, match=r"ZeroDivisionError.*No other attempt would fare better") as failed:
        fit(train, tmp_path)
    assert len(failed.value.attempts) == 1 and time.monotonic() - began_s < 30


def fails_of(function: Any, folder: Path, **changed: Any) -> str:
    with pytest.raises(TrainingFailedError) as failed:
        fit(function, folder, **changed)
    (attempt,) = failed.value.attempts
    assert attempt.cause == "worker_error", attempt
    return str(attempt.detail)


def test_texts_that_are_not_utf_8_do_not_hide_the_cause(tmp_path: Path) -> None:
    @by_value
    def train() -> None:
        raise ValueError(os.fsdecode(b"caf\xe9"))

    assert "ValueError: caf\\udce9" in fails_of(train, tmp_path)


def test_an_exception_that_cannot_say_itself_does_not_hide_the_cause(tmp_path: Path) -> None:
    @by_value
    def train() -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no words")

        raise Mute

    assert "Mute" in fails_of(train, tmp_path)


def test_a_closed_stderr_does_not_hide_the_cause(tmp_path: Path) -> None:
    @by_value
    def train() -> None:
        sys.stdout.close()
        sys.stderr.close()
        raise ValueError("the cause")

    assert "ValueError: the cause" in fails_of(train, tmp_path)


def test_an_error_while_nobody_reads_the_output_is_no_hang(tmp_path: Path) -> None:
    @by_value
    def train() -> None:
        read, write = os.pipe()
        os.set_blocking(write, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(write, b"x" * 4096)
        os.set_blocking(write, True)
        os.dup2(write, 1)
        os.dup2(write, 2)
        # nobody reads it, and it stays open
        train.pipe = read
        raise ValueError("the cause")

    # it would be that attempt's cause
    assert "ValueError: the cause" in fails_of(train, tmp_path, hang_timeout_s=20.0, first_step_timeout_s=20.0)


def test_a_forked_child_of_the_worker_cannot_report(tmp_path: Path) -> None:
    @by_value
    def train() -> None:
        child = os.fork()
        if child == 0:
            try:
                session.report({"step": 99})
            except session.SessionError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        session.report({"step": 1})

    assert fit(train, tmp_path).metrics == {"step": 1}


def test_a_worker_with_more_than_a_thousand_open_files_still_reports(tmp_path: Path) -> None:
    @by_value
    def train() -> None:
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        taken = [os.dup(0) for _ in range(1100)]
        session.report({"last": taken[-1]})
        session.barrier()

    metrics = fit(train, tmp_path).metrics
    assert metrics is not None and metrics["last"] > 1024


# ---- what is not there


@pytest.mark.parametrize(
    "modules",
    ["shaketable.chaos.subjects.driver, shaketable.chaos.subjects.bundled.driver", "shaketable.runtime.agent.node"],
)
def test_neither_driver_nor_node_of_a_cluster_of_processes_imports_ray(modules: str) -> None:
    """It takes a second, and is not needed."""
    code = f"import sys, {modules}; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
