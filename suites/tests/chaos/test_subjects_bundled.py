"""The subject `bundled`: its records as events, and what is read back from its storage."""

from __future__ import annotations

from pathlib import Path

from shaketable.chaos.history.events import (
    AnyEvent,
    AttemptStarted,
    CheckpointDeleted,
    Committed,
    Event,
    Member,
    Stepped,
    TermBegan,
)
from shaketable.chaos.history.witness import Witness, WitnessConfig
from shaketable.chaos.plan import Configuration
from shaketable.chaos.subjects import Launch
from shaketable.chaos.subjects.bundled import driver
from shaketable.chaos.subjects.bundled.log_observer import LogObserver, as_event
from shaketable.chaos.subjects.bundled.subject import Bundled
from shaketable.chaos.workloads import chain_checkpoint
from shaketable.runtime.checkpoints import store
from shaketable.runtime.log import records
from shaketable.runtime.log.run_log import RunLog, open_run
from shaketable.runtime.storage.files import CHECKPOINTS, LOG

CONFIGURATION = {"framework": "none", "train_loop_config": {}}
WITH_DIGESTS: AnyEvent = Stepped(term=1, attempt=1, rank=0, step=1, world_size=1, digest="d1")


def a_run(storage: Path, commits: int) -> RunLog:
    """A real run log with one open attempt and that many commits of a hash-chain job."""
    log, _ = open_run(storage / "run", CONFIGURATION)
    members = [records.MemberRecord(rank=0, node_id="ab")]
    log.append(records.AttemptStarted(term=1, attempt=1, world_size=1, members=members, resume=None, first_index=1))
    for index in range(1, commits + 1):
        commit(log, storage, index)
    return log


def commit(log: RunLog, storage: Path, index: int) -> None:
    name, source = f"{index:06d}-t1-a1", storage / f"source-{index}"
    source.mkdir()
    chain_checkpoint.write(source, index, f"d{index}", 64)
    files = store.upload(source, storage / "run" / CHECKPOINTS / name)
    log.append(records.CheckpointCommitted(term=1, attempt=1, index=index, checkpoint=name, files=files, metrics={}))


def committed(index: int) -> Committed:
    return Committed(term=1, attempt=1, index=index, checkpoint=f"{index:06d}-t1-a1")


def test_how_many_checkpoints_are_kept_is_told_to_the_trainer(tmp_path: Path) -> None:
    witness = WitnessConfig(directory=str(tmp_path), host="127.0.0.1", port=9, secret="")
    launch = Launch(Configuration(num_to_keep=2), "127.0.0.1:1", str(tmp_path), "run", witness, 1)
    log_observer = LogObserver(RunLog(tmp_path / "run"), Witness(witness, "driver"))
    assert driver._trainer(launch, print, log_observer)._run.checkpoint_config.num_to_keep == 2


def test_a_driver_whose_run_another_one_has_just_finished_says_so_and_names_the_term(tmp_path: Path) -> None:
    """It looked while the other was still at it, and then had nothing left to do: it said that term 0 had finished."""
    log = a_run(tmp_path, commits=1)
    told: list[Event] = []
    late = LogObserver(RunLog(tmp_path / "run"), Told(told))
    late.begin()
    assert (late.term, told) == (0, [])
    log.append(records.AttemptEnded(term=1, attempt=1, cause="finished", account=None, detail="", settled_s=1.0))
    log.append(records.RunFinished(term=1, metrics={}))
    late.end()
    assert (late.term, told) == (1, [TermBegan(term=1, spent={}, finished=True)])
    late.end()
    assert len(told) == 1


class Told:
    def __init__(self, told: list[Event]) -> None:
        self.told = told

    def emit(self, event: Event) -> None:
        self.told.append(event)


def test_an_attempt_that_resumes_says_the_index_of_what_it_resumes_from() -> None:
    started = records.AttemptStarted(
        term=2,
        attempt=3,
        world_size=1,
        members=[records.MemberRecord(rank=0, node_id="ab")],
        resume="000007-t1-a2",
        first_index=8,
    )

    assert as_event(9, started) == AttemptStarted(
        term=2,
        attempt=3,
        world_size=1,
        members=[Member(rank=0, node_id="ab", pid=0)],
        resume="000007-t1-a2",
        resume_index=7,
    )


def test_a_commit_carries_its_log_number_and_the_end_of_the_run_is_told_by_fit_alone() -> None:
    commit = records.CheckpointCommitted(term=1, attempt=1, index=4, checkpoint="c", files=[], metrics={})

    assert as_event(7, commit) == Committed(term=1, attempt=1, index=4, checkpoint="c", number=7)
    assert as_event(8, records.RunFinished(term=1, metrics={})) is None


def test_every_commit_is_read_back_with_its_digest_also_one_the_harness_never_heard_of(tmp_path: Path) -> None:
    a_run(tmp_path, commits=2)

    probes = Bundled().probe_checkpoints([WITH_DIGESTS, committed(1)], str(tmp_path), "run")

    assert [(probe.index, probe.ok, probe.step, probe.digest) for probe in probes] == [
        (1, True, 1, "d1"),
        (2, True, 2, "d2"),
    ]
    listed = [e.record["files"] for e in Bundled().log_records(str(tmp_path), "run") if "files" in e.record]
    assert [probe.read for probe in probes] == [
        {f["path"]: (f["size"], f["checksum"]) for f in each} for each in listed
    ]


def test_a_changed_byte_in_a_committed_checkpoint_is_found(tmp_path: Path) -> None:
    a_run(tmp_path, commits=1)
    path = tmp_path / "run" / CHECKPOINTS / "000001-t1-a1" / "padding.bin"
    path.write_bytes(b"x" + path.read_bytes()[1:])

    [probe] = Bundled().probe_checkpoints([committed(1)], str(tmp_path), "run")

    assert not probe.ok and "padding.bin" in probe.reason


def test_a_commit_that_the_log_does_not_have_is_broken_unless_its_deletion_was_recorded(tmp_path: Path) -> None:
    a_run(tmp_path, commits=0)
    deleted = CheckpointDeleted(term=1, checkpoint="000005-t1-a1")

    [probe] = Bundled().probe_checkpoints([committed(4), committed(5), deleted], str(tmp_path), "run")

    assert (probe.index, probe.ok) == (4, False)


def test_a_log_with_a_hole_breaks_every_commit_and_is_still_shown_as_it_lies_there(tmp_path: Path) -> None:
    a_run(tmp_path, commits=1)
    (tmp_path / "run" / LOG / "0000000002.json").unlink()

    [probe] = Bundled().probe_checkpoints([committed(1)], str(tmp_path), "run")

    assert "hole" in probe.reason
    assert [record.number for record in Bundled().log_records(str(tmp_path), "run")] == [1, 3]
    assert "cannot be read" in Bundled().files_left(str(tmp_path), "run")[0]


def test_the_log_is_shown_record_by_record(tmp_path: Path) -> None:
    a_run(tmp_path, commits=1)

    shown = Bundled().log_records(str(tmp_path), "run")

    kinds = ["opened", "attempt_started", "checkpoint_committed"]
    assert [(r.number, r.record["kind"]) for r in shown] == list(enumerate(kinds, 1))


def test_temporaries_and_uploads_that_were_never_committed_are_left_over(tmp_path: Path) -> None:
    a_run(tmp_path, commits=1)
    assert Bundled().files_left(str(tmp_path), "run") == []
    (tmp_path / "run" / LOG / ".0000000004.json.x.tmp").touch()
    (tmp_path / "run" / CHECKPOINTS / "000002-t1-a1").mkdir()
    (tmp_path / "run" / CHECKPOINTS / "000001-t1-a1" / ".partial-0-x").touch()

    left = Bundled().files_left(str(tmp_path), "run")

    assert [line.split(":")[0] for line in left] == [
        "log/.0000000004.json.x.tmp",
        "checkpoints/000002-t1-a1",
        "checkpoints/000001-t1-a1/.partial-0-x",
    ]
