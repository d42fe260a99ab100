from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import xxhash

from shaketable.runtime.checkpoints.merge import merge_files
from shaketable.runtime.checkpoints.store import delete, left_of, stage, upload
from shaketable.runtime.errors import ConflictingShards, StorageError
from shaketable.runtime.storage.file import File
from shaketable.runtime.storage.hashing import CHUNK


def write(directory: Path, **files: bytes) -> Path:
    for name, content in files.items():
        path = directory / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    checkpoints = tmp_path / "run" / "checkpoints"
    # as whoever opens the run does
    checkpoints.mkdir(parents=True)
    return checkpoints / "000001-t1-a1"


def test_every_file_is_copied_and_listed_with_size_and_checksum(tmp_path: Path, target: Path) -> None:
    source = write(tmp_path / "source", model=b"weights", optimizer__state=b"", a__b__c=b"x")
    files = upload(source, target)
    assert contents(target) == {"model": b"weights", "optimizer/state": b"", "a/b/c": b"x"}
    assert {file.path for file in files} == set(contents(target))
    model = next(file for file in files if file.path == "model")
    checksum = "xxh3:" + xxhash.xxh3_128_hexdigest(b"weights")
    mode = (source / "model").stat().st_mode & 0o777
    assert model == File(path="model", size=7, checksum=checksum, mode=mode)


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 17])
def test_files_around_the_size_of_the_buffer_arrive_whole(tmp_path: Path, target: Path, size: int) -> None:
    content = os.urandom(size)
    [file] = upload(write(tmp_path / "source", shard=content), target)
    assert (target / "shard").read_bytes() == content
    assert (file.size, file.checksum) == (size, "xxh3:" + xxhash.xxh3_128_hexdigest(content))


def test_many_files_arrive_whole(tmp_path: Path, target: Path) -> None:
    content = {f"d{number % 7}__f{number}": os.urandom(number * 5000) for number in range(100)}
    files = upload(write(tmp_path / "source", **content), target)
    assert contents(target) == {name.replace("__", "/"): data for name, data in content.items()}
    for file in files:
        assert file.checksum == "xxh3:" + xxhash.xxh3_128_hexdigest((target / file.path).read_bytes())


def test_the_directory_stays_the_callers(tmp_path: Path, target: Path) -> None:
    source = write(tmp_path / "source", model=b"1")
    upload(source, target)
    (source / "model").write_bytes(b"22")
    assert contents(target) == {"model": b"1"}


def test_an_empty_directory_uploads_nothing(tmp_path: Path, target: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert upload(tmp_path / "empty", target) == []


def test_ranks_share_a_directory_with_shards_of_their_own(tmp_path: Path, target: Path) -> None:
    votes = {}
    for rank in (0, 1):
        source = write(tmp_path / f"source-{rank}", **{f"shard-{rank}": bytes([rank]), "common": b"same"})
        votes[rank] = upload(source, target, rank)
    assert [file.path for file in merge_files(votes)] == ["common", "shard-0", "shard-1"]
    assert set(contents(target)) == {"common", "shard-0", "shard-1"}


@pytest.mark.parametrize("digits", ["ab", "ba"])
def test_two_ranks_that_write_one_name_with_different_bytes_are_both_named(digits: str) -> None:
    def vote(digit: str) -> list[File]:
        return [File(path="model", size=1, checksum="xxh3:" + digit * 32)]

    with pytest.raises(ConflictingShards, match="ranks 1 and 3 both wrote 'model'") as error:
        merge_files({3: vote(digits[1]), 1: vote(digits[0]), 0: []})
    assert (error.value.path, error.value.ranks) == ("model", (1, 3))


@pytest.mark.parametrize(
    ("modes", "merged"),
    [
        ((0o644, 0o600), 0o600),
        ((0o600, 0o644), 0o600),
        ((0o640, 0o640), 0o640),
        ((None, 0o600), None),
        ((0o600, None), 0o600),
    ],
)
def test_what_two_ranks_wrote_is_as_private_as_the_more_private_of_the_two(
    modes: tuple[int | None, int | None], merged: int | None
) -> None:
    """None: of a version that recorded no mode."""
    votes = {rank: [File(path="model", size=1, checksum="xxh3:aa", mode=mode)] for rank, mode in enumerate(modes)}
    assert [file.mode for file in merge_files(votes)] == [merged]


def test_two_processes_that_write_one_name_never_mix_their_bytes(tmp_path: Path, target: Path) -> None:
    """Each file is one rank's, whole, whichever came last."""
    code = (
        "import sys; from pathlib import Path; from shaketable.runtime.checkpoints.store import upload\n"
        "for _ in range(10): upload(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))"
    )
    sources = [write(tmp_path / str(rank), model=bytes([rank]) * 3_000_000) for rank in (1, 2)]
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(source), str(target), source.name]) for source in sources
    ]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert contents(target) in [{"model": bytes([rank]) * 3_000_000} for rank in (1, 2)]


def test_links_to_files_inside_are_followed(tmp_path: Path, target: Path) -> None:
    source = write(tmp_path / "source", step_5=b"weights")
    (source / "last").symlink_to("step_5")
    upload(source, target)
    assert contents(target) == {"step_5": b"weights", "last": b"weights"}
    assert not (target / "last").is_symlink()


def test_links_out_of_the_checkpoint_are_refused(tmp_path: Path, target: Path) -> None:
    write(tmp_path, secret=b"key")
    source = write(tmp_path / "source", model=b"1")
    (source / "stolen").symlink_to(tmp_path / "secret")
    with pytest.raises(StorageError, match="stolen is a link out of the checkpoint"):
        upload(source, target)


@pytest.mark.parametrize("target_kind", ["pipe", "link to a directory", "dangling link"])
def test_what_is_no_file_is_refused_by_name(tmp_path: Path, target: Path, target_kind: str) -> None:
    source = write(tmp_path / "source", inner__model=b"1")
    if target_kind == "pipe":
        os.mkfifo(source / "odd")
    else:
        (source / "odd").symlink_to("inner" if target_kind == "link to a directory" else "nowhere")
    with pytest.raises(StorageError, match="odd is neither a file nor a real directory"):
        upload(source, target)


def test_a_name_that_is_no_text_is_refused(tmp_path: Path, target: Path) -> None:
    source = write(tmp_path / "source", model=b"1")
    Path(os.fsdecode(os.fsencode(source) + b"/\xff")).write_bytes(b"")
    with pytest.raises(StorageError, match="use names that are UTF-8"):
        upload(source, target)


def test_a_directory_that_is_gone_is_named(tmp_path: Path, target: Path) -> None:
    with pytest.raises(StorageError, match=r"the checkpoint in .*gone could not be written"):
        upload(tmp_path / "gone", target)


@pytest.mark.parametrize("count", [1, 40])
def test_a_disk_that_is_full_is_named_and_no_partial_file_is_left(tmp_path: Path, target: Path, count: int) -> None:
    """A real limit of the process stands in for the disk: its write gets EFBIG after a part."""
    source = write(tmp_path / "source", **{f"f{number:02d}": b"x" * 40_000 for number in range(count)})
    script = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from shaketable.runtime.checkpoints.store import upload; from shaketable.runtime.errors import StorageError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))\n"
        "try: upload(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "except StorageError as error: print(error)"
    )
    command = [sys.executable, "-c", script, str(source), str(target)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert os.strerror(errno.EFBIG) in output and "could not be written" in output
    assert list(target.iterdir()) == []


def test_files_are_synced_before_directories(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "source", a=b"1", d__b=b"2")
    synced: list[str] = []
    fsync = os.fsync

    def noted_fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    upload(source, target)
    last_file = max(at for at, path in enumerate(synced) if ".partial-" in path)
    assert synced[last_file + 1 :] == [str(target / "d"), str(target), str(target.parent)]
    assert sum(".partial-" in path for path in synced) == 2


def test_memory_stays_bounded_whatever_the_size(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(8):
        with (source / str(number)).open("wb") as file:
            file.truncate(32 << 20)
    tracemalloc.start()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        upload(source, target)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 17 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 48 << 10


# ---- staging


def test_staging_moves_the_entries_on_the_same_file_system(tmp_path: Path) -> None:
    source = write(tmp_path / "source", model=b"1", d__b=b"2")
    inode = (source / "model").stat().st_ino
    staged = stage(source, tmp_path / "staging")
    assert contents(staged) == {"model": b"1", "d/b": b"2"}
    assert (staged / "model").stat().st_ino == inode
    assert list(source.iterdir()) == [], "the directory stays, its entries are handed over"


def test_staging_copies_across_file_systems(tmp_path: Path) -> None:
    """/dev/shm is a file system of its own on every Linux."""
    source = write(tmp_path / "source", model=b"1", d__b=b"2")
    shm = Path("/dev/shm") / f"shaketable-test-{os.getpid()}"
    try:
        assert contents(stage(source, shm)) == contents(source) == {"model": b"1", "d/b": b"2"}
    finally:
        subprocess.run(["rm", "-rf", shm], check=True)


def test_staging_leaves_links_what_they_are(tmp_path: Path) -> None:
    """Where they lead is judged when they are uploaded."""
    source = write(tmp_path / "source", model=b"1")
    (source / "link").symlink_to("model")
    assert (stage(source, tmp_path / "staging", take=False) / "link").is_symlink()


def test_a_staging_that_fails_names_both_places(tmp_path: Path) -> None:
    (tmp_path / "staging").write_text("no directory")
    with pytest.raises(StorageError, match=r"source could not be staged in .*staging.*Check the rights"):
        stage(write(tmp_path / "source", model=b"1"), tmp_path / "staging")


def test_staging_twice_never_collides(tmp_path: Path) -> None:
    staged = [stage(write(tmp_path / "source", model=b"1"), tmp_path / "staging") for _ in range(2)]
    assert staged[0] != staged[1]


# ---- deleting


def test_deleting_removes_the_checkpoint_and_is_repeatable(tmp_path: Path, target: Path) -> None:
    upload(write(tmp_path / "source", model=b"1"), target)
    for _ in range(2):
        delete(tmp_path / "run", [target.name])
    assert list(target.parent.iterdir()) == []


def test_an_interrupted_delete_is_finished_and_nothing_else_is_touched(tmp_path: Path, target: Path) -> None:
    source = write(tmp_path / "source", model=b"1")
    for name in ("one", ".deleting-two", "three"):
        upload(source, target.with_name(name))
    assert left_of(tmp_path / "run", ["one", "two", "gone"]) == ["one", "two"]
    delete(tmp_path / "run", ["one", "two"])
    assert [path.name for path in target.parent.iterdir()] == ["three"]
    assert left_of(tmp_path / "elsewhere", ["one"]) == []


@pytest.mark.parametrize("name", ["..", "../other", "/etc", "."])
def test_a_deletion_never_leads_out_of_the_run(tmp_path: Path, name: str) -> None:
    write(tmp_path / "other", precious=b"1")
    with pytest.raises(StorageError, match="the log was edited"):
        delete(tmp_path / "run", [name])
    assert contents(tmp_path / "other") == {"precious": b"1"}
