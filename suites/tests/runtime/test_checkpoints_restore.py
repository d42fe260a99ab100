from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from shaketable.runtime.checkpoints.store import restore, upload, verify
from shaketable.runtime.errors import CheckpointCorrupt, StorageError
from shaketable.runtime.log.records import CheckpointCommitted
from shaketable.runtime.log.run_log import open_run
from shaketable.runtime.storage.file import File
from shaketable.suites.tests.rigs.log_examples import CONFIGURATION, committed

FILES = {"model": b"weights", "optimizer/state": b"momentum" * 1000}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def commit(run: Path, index: int = 1, files: dict[str, bytes] | None = None) -> CheckpointCommitted:
    source = run.parent / f"source-{index}"
    for name, content in (files or FILES).items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    open_run(run, CONFIGURATION)
    record = committed(index)
    return committed(index, files=upload(source, run / "checkpoints" / record.checkpoint))


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_what_was_committed_is_restored(tmp_path: Path, run: Path) -> None:
    assert contents(restore(run, commit(run), tmp_path / "cache")) == FILES


def test_files_that_the_commit_does_not_list_are_not_restored(tmp_path: Path, run: Path) -> None:
    record = commit(run)
    (run / "checkpoints" / record.checkpoint / ".partial-0-junk").write_bytes(b"of a killed rank")
    assert contents(restore(run, record, tmp_path / "cache")) == FILES


def test_a_second_restore_on_the_node_reads_nothing_from_the_storage(tmp_path: Path, run: Path) -> None:
    record = commit(run)
    first = restore(run, record, tmp_path / "cache")
    (run / "checkpoints").rename(run / "away")
    assert restore(run, record, tmp_path / "cache") == first


def damage_flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def damage_truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def damage_remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("damage", "seen"),
    [(damage_flip, "8000 bytes, xxh3:"), (damage_truncate, "7999 bytes"), (damage_remove, "no such file")],
)
def test_damage_is_found_and_the_file_named(tmp_path: Path, run: Path, damage: object, seen: str) -> None:
    record = commit(run)
    assert callable(damage)
    damage(run / "checkpoints" / record.checkpoint / "optimizer/state")
    for read in (lambda: restore(run, record, tmp_path / "cache"), lambda: verify(run, record)):
        with pytest.raises(CheckpointCorrupt, match=r"'optimizer/state' was committed with 8000 bytes") as error:
            read()
        assert (error.value.checkpoint, error.value.path) == ("000001-t1-a1", "optimizer/state")
        assert error.value.seen.startswith(seen) and error.value.expected.startswith("8000 bytes, xxh3:")
    assert not any(path.is_dir() for path in next((tmp_path / "cache").iterdir()).iterdir()), "nothing is published"


def test_a_whole_checkpoint_passes_verification(run: Path) -> None:
    verify(run, commit(run))


def test_corruption_survives_the_way_through_a_process_border(run: Path) -> None:
    record = commit(run)
    (run / "checkpoints" / record.checkpoint / "model").unlink()
    with pytest.raises(CheckpointCorrupt) as error:
        verify(run, record)
    back = pickle.loads(pickle.dumps(error.value))
    assert (str(back), back.path, back.seen) == (str(error.value), "model", "no such file")


def test_storage_that_cannot_be_read_is_not_called_corrupt(tmp_path: Path, run: Path) -> None:
    record = commit(run)
    stored = run / "checkpoints" / record.checkpoint / "model"
    stored.unlink()
    # reading it is an error of the system, as EIO or EACCES are
    stored.mkdir()
    for read in (lambda: restore(run, record, tmp_path / "cache"), lambda: verify(run, record)):
        with pytest.raises(StorageError) as error:
            read()
        assert not isinstance(error.value, CheckpointCorrupt)


def test_a_cached_copy_that_a_worker_changed_is_fetched_anew(tmp_path: Path, run: Path) -> None:
    record = commit(run)
    (restore(run, record, tmp_path / "cache") / "model").write_bytes(b"WEIGHTS")
    assert contents(restore(run, record, tmp_path / "cache")) == FILES


def test_runs_never_share_a_cache(tmp_path: Path) -> None:
    records = {}
    for name in ("one", "other"):
        records[name] = commit(tmp_path / name / "run", files={"model": name.encode()})
    for name, record in records.items():
        restored = restore(tmp_path / name / "run", record, tmp_path / "cache")
        assert contents(restored) == {"model": name.encode()}


def test_a_run_begun_again_at_the_same_place_does_not_find_its_predecessors_files(tmp_path: Path, run: Path) -> None:
    restore(run, commit(run, files={"model": b"old"}), tmp_path / "cache")
    assert contents(restore(run, commit(run, files={"model": b"new"}), tmp_path / "cache")) == {"model": b"new"}


def test_a_path_in_the_log_never_leads_out_of_the_cache(tmp_path: Path, run: Path) -> None:
    record = commit(run)
    for path in ("../../escaped", "/tmp/escaped", "a/../../escaped"):
        forged = msgspec.structs.replace(record, files=[File(path=path, size=1, checksum="xxh3:")])
        with pytest.raises(StorageError, match="the log was edited"):
            restore(run, forged, tmp_path / "cache")


def test_the_cache_keeps_two_checkpoints_of_a_run(tmp_path: Path, run: Path) -> None:
    restored = [restore(run, commit(run, index), tmp_path / "cache") for index in (1, 2, 3)]
    assert [path.exists() for path in restored] == [False, True, True]


RESTORER = """
import sys, msgspec
from pathlib import Path
from shaketable.runtime.checkpoints import node_cache
from shaketable.runtime.log.records import CheckpointCommitted
record = msgspec.json.decode(Path(sys.argv[2]).read_bytes(), type=CheckpointCommitted)
print("ready", flush=True)
sys.stdin.readline()
fetch, fetched = node_cache.fetch, []
node_cache.fetch = lambda *what: (fetched.append(what), fetch(*what))
path = node_cache.restore(Path(sys.argv[1]), record, Path(sys.argv[3]))
print(len(fetched), path, flush=True)
"""


def restorer(tmp_path: Path, run: Path, record: CheckpointCommitted) -> subprocess.Popen[str]:
    (tmp_path / "record").write_bytes(msgspec.json.encode(record))
    command = [sys.executable, "-c", RESTORER, str(run), str(tmp_path / "record"), str(tmp_path / "cache")]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_processes_of_a_node_that_restore_at_once_do_it_once(tmp_path: Path, run: Path) -> None:
    record = commit(run, files={str(number): os.urandom(500_000) for number in range(20)})
    processes = [restorer(tmp_path, run, record) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60)[0].split() for process in processes]
    assert sorted(times for times, _ in answers) == ["0", "0", "1"]
    assert len({path for _, path in answers}) == 1


def test_a_restore_killed_in_the_middle_leaves_nothing_that_the_next_would_believe(tmp_path: Path, run: Path) -> None:
    record = commit(run, files={str(number): os.urandom(3_000_000) for number in range(20)})
    for after_s in (0.001, 0.01, 0.02, 0.03):
        with restorer(tmp_path, run, record) as process:
            assert process.stdin is not None and process.stdout is not None and process.stdout.readline()
            process.stdin.write("go\n")
            process.stdin.flush()
            try:
                process.wait(after_s)
            except subprocess.TimeoutExpired:
                process.kill()
    restored = restore(run, record, tmp_path / "cache")
    assert {path: len(content) for path, content in contents(restored).items()} == {
        str(number): 3_000_000 for number in range(20)
    }
    assert [path.name for path in restored.parent.iterdir() if path.name.startswith(".restoring-")] == []
