"""Checkpoints on their way: what an agent uploads, what it restores, and what of it is believed."""

from __future__ import annotations

from typing import Any

import msgspec

from shaketable.suites.mutants.defining import defect, replace

DURABLE, RESUME, BUDGET = "durability", "resume-from-checkpoint", "failure-budget"


@defect("checkpoints.store", DURABLE, BUDGET, experiment="worker-crash", tried="processes", within_s=60)
def last_file_left_out(store: Any) -> None:
    """of the files of a checkpoint the last is not uploaded"""
    replace(store, "_walk", lambda original: lambda source, below="": iter(list(original(source, below))[:-1]))


@defect(
    "checkpoints.store", DURABLE, BUDGET, "truthful-ending", experiment="worker-crash", tried="processes", within_s=60
)
def checksum_of_something_else(store: Any) -> None:
    """a commit lists checksums that are not those of its files"""

    def make(original: Any) -> Any:
        def upload(*known: Any, **named: Any) -> Any:
            return [msgspec.structs.replace(each, checksum="xxh3:" + 32 * "0") for each in original(*known, **named)]

        return upload

    replace(store, "upload", make)


@defect(
    "checkpoints.store", DURABLE, BUDGET, "truthful-ending", experiment="worker-crash", tried="processes", within_s=60
)
def size_of_something_else(store: Any) -> None:
    """a commit lists sizes that are not those of its files"""

    def make(original: Any) -> Any:
        def upload(*known: Any, **named: Any) -> Any:
            return [msgspec.structs.replace(each, size=each.size + 1) for each in original(*known, **named)]

        return upload

    replace(store, "upload", make)


@defect(
    "agent.checkpoint_io", DURABLE, BUDGET, "truthful-ending", experiment="worker-crash", tried="processes", within_s=60
)
def voted_before_the_upload(copying: Any) -> None:
    """a rank votes for a checkpoint of which nothing is there"""

    def make(original: Any) -> Any:
        def copied(self: Any, source: Any, target: Any, rank: int, upload: Any) -> Any:
            files = original(self, source, target, rank, upload)
            for file in files:
                (target / file.path).unlink()
            return files

        return copied

    replace(copying.Copying, "_copied", make)


@defect("agent.checkpoint_io", DURABLE, BUDGET, "no-leaks", experiment="worker-crash", tried="processes", within_s=60)
def uploaded_under_another_name(copying: Any) -> None:
    """a checkpoint is uploaded into the directory of another report"""
    replace(
        copying, "checkpoint_name", lambda original: lambda index, term, attempt: original(index + 1, term, attempt)
    )


@defect("agent.checkpoint_io", "failure-budget", experiment="worker-crash", tried="processes", within_s=60)
def restored_with_an_error_called_none(copying: Any) -> None:
    """a worker is told of an empty directory in the place of its checkpoint"""

    def make(original: Any) -> Any:
        def restore(self: Any, fork: Any, commit: Any) -> None:
            empty = self.run_directory / "empty"
            empty.mkdir(parents=True, exist_ok=True)
            self.later(lambda: self.to_worker(copying.msg.Restored(path=str(empty)), fork.attempt))

        return restore

    replace(copying.Copying, "_restore", make)


@defect("checkpoints.merge", DURABLE, experiment="jax-worker-crash", tried="processes", within_s=120)
def only_rank_0_is_committed(merge: Any) -> None:
    """of the files of all ranks only those of rank 0 are committed"""
    replace(
        merge,
        "merge_files",
        lambda original: lambda votes: original({rank: files for rank, files in votes.items() if rank == min(votes)}),
    )
