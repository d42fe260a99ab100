"""Checkpoints: their votes, their commit, their keeping."""

from __future__ import annotations

from typing import Any

import msgspec

from shaketable.suites.mutants.defining import defect, replace, replace_item

DURABLE = "durability"


@defect("attempt", DURABLE, experiment="driver-sigkill-upload")
def commit_before_upload(attempt: Any) -> None:
    """a checkpoint is committed when it is reported, whatever becomes of its upload"""

    def make(original: Any) -> Any:
        def reported(of: Any, rank: int, index: int, metrics: Any, *, uploading: bool) -> None:
            original(of, rank, index, metrics, uploading=uploading)
            if uploading:
                attempt.uploaded(of, rank, index, ())

        return reported

    replace(attempt, "reported", make)


@defect("attempt", DURABLE)
def commit_before_all_uploads(attempt: Any) -> None:
    """the first upload of a checkpoint commits it, though other ranks are not done with theirs"""

    def make(original: Any) -> Any:
        def complete(of: Any, index: int) -> bool:
            return bool(of.candidates[index].votes) and of.progress.all_passed(index)

        return complete

    replace(attempt, "complete", make)


@defect("attempt", DURABLE, "runtime")
def commit_before_all_ranks_passed(attempt: Any) -> None:
    """a checkpoint is committed as soon as nobody is uploading, though not every rank has come to it"""

    def make(original: Any) -> Any:
        def complete(of: Any, index: int) -> bool:
            candidate = of.candidates[index]
            return not candidate.uploading and bool(candidate.votes)

        return complete

    replace(attempt, "complete", make)


@defect("attempt", DURABLE)
def upload_cut_off_counts(attempt: Any) -> None:
    """the upload of a rank whose agent is lost counts as a vote without files"""

    def make(original: Any) -> Any:
        def lose(self: Any, rank: int) -> None:
            for candidate in self.candidates.values():
                if rank in candidate.uploading:
                    candidate.uploading.discard(rank)
                    candidate.votes[rank] = ()
            original(self, rank)

        return lose

    replace(attempt.Attempt, "lose", make)


@defect("controller.endings", "single-writer")
def late_commit_of_an_ended_attempt(endings: Any) -> None:
    """what an attempt had on its way is committed after its end"""
    fold = endings.fold

    def make(original: Any) -> Any:
        def committed(state: Any, record: Any) -> Any:
            attempt = state.open_attempt
            if attempt is not None and attempt.attempt == record.attempt:
                return original(state, record)
            return fold.replace(
                state, next_number=state.next_number + 1, commits=state.commits.appended(record)
            )

        return committed

    replace_item(fold._RULES, fold.CheckpointCommitted, make)

    def make_close(original: Any) -> Any:
        def close(m: Any, ending: Any) -> None:
            attempt, term = m.live, m.run.term
            original(m, ending)
            for index in sorted(attempt.candidates):
                late = fold.CheckpointCommitted(
                    term=term, attempt=attempt.number, index=index, files=[], metrics={},
                    checkpoint=fold.checkpoint_name(index, term, attempt.number),
                )  # fmt: skip
                if m.run.outcome is None:
                    m.append(late)

        return close

    replace(endings, "close", make_close)


@defect("pipeline", "single-writer", "truthful-ending")
def commit_twice(pipeline: Any) -> None:
    """every commit is appended twice"""

    def make(original: Any) -> Any:
        def extend(self: Any, commands: Any) -> None:
            for command in commands:
                record = getattr(command, "record", None)
                original(self, [command] * (1 + hasattr(record, "files")))

        return extend

    replace(pipeline.Pipeline, "extend", make)


@defect("retention", DURABLE)
def num_to_keep_off_by_one(retention: Any) -> None:
    """one checkpoint less than num_to_keep is kept"""
    replace(
        retention,
        "expired",
        lambda original: lambda commits, keep, score: original(commits, keep and max(1, keep - 1), score),
    )


@defect("retention", DURABLE)
def one_checkpoint_too_many_kept(retention: Any) -> None:
    """one checkpoint more than num_to_keep is kept"""
    replace(
        retention,
        "expired",
        lambda original: lambda commits, keep, score: original(commits, keep and keep + 1, score),
    )


@defect("controller.commits", DURABLE, "resume-from-checkpoint")
def latest_checkpoint_deleted(commits_: Any) -> None:
    """with num_to_keep=1 the latest checkpoint goes, and nothing refuses it"""
    fold, retention = commits_.fold, commits_.retention

    def make(original: Any) -> Any:
        def deleted(state: Any, record: Any) -> Any:
            commits, name = state.commits, record.checkpoint
            if name != commits[-1].checkpoint:
                return original(state, record)
            return fold.replace(
                state, next_number=state.next_number + 1, commits=commits.without(len(commits) - 1),
                deleted=state.deleted.appended(name),
            )  # fmt: skip

        return deleted

    def expired(commits: Any, keep: int | None, _: Any) -> list[str]:
        return [] if keep is None else [each.checkpoint for each in commits[: len(commits) - keep + 1]]

    replace_item(fold._RULES, fold.CheckpointDeleted, make)
    replace(retention, "expired", lambda original: expired)


@defect("controller.commits", DURABLE)
def deleted_before_recorded(commits: Any) -> None:
    """an old checkpoint's files go before the log says so"""

    def make(original: Any) -> Any:
        def commit(m: Any, index: int) -> None:
            original(m, index)
            m.commands.sort(key=lambda command: not isinstance(command, commits.ev.DeleteCheckpoint))

        return commit

    replace(commits, "_commit", make)


@defect("collection", "no-leaks", experiment="driver-sigkill-upload")
def uploads_never_collected(collection: Any) -> None:
    """what attempts uploaded and never committed stays for ever"""
    replace(collection, "_attempt_of", lambda original: lambda name: None)


@defect("collection", DURABLE, experiment="worker-crash")
def live_checkpoints_collected(collection: Any) -> None:
    """the collector of uploads that were never committed does not look which were"""
    replace(collection, "_kept", lambda original: lambda state: set())


@defect("transfer", "failure-budget", experiment="checkpoint-corrupt", tried="local")
def no_checksum_on_restore(transfer: Any) -> None:
    """what the storage gives is taken for what was committed"""
    replace(transfer, "_believe", lambda original: lambda commit, file, read: read() and None)


@defect("controller.endings", "sample-accounting")
def final_metrics_mangled(endings: Any) -> None:
    """text among a run's final metrics is cut after eight characters"""

    def make(original: Any) -> Any:
        def finished(*, metrics: Any, **fields: Any) -> Any:
            cut = {key: value[:8] if isinstance(value, str) else value for key, value in metrics.items()}
            return msgspec.structs.replace(original(metrics=metrics, **fields), metrics=cut)

        return finished

    class Records:
        """`records` as `endings` sees it."""

        def __getattr__(self, name: str) -> Any:
            return make(records.RunFinished) if name == "RunFinished" else getattr(records, name)

    records = endings.rec
    replace(endings, "rec", lambda original: Records())
