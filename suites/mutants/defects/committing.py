"""Checkpoints: their votes, their commit, their keeping."""

from __future__ import annotations

from typing import Any

import msgspec

from shaketable.suites.mutants.defining import defect, replace, replace_item

DURABLE = "durability"


@defect("controller.attempt", DURABLE, experiment="driver-sigkill-upload")
def commit_before_upload(attempt: Any) -> None:
    """a checkpoint is committed when it is reported, before its upload"""

    def make(original: Any) -> Any:
        def reported(of: Any, rank: int, index: int, metrics: Any, *, uploading: bool) -> None:
            original(of, rank, index, metrics, uploading=uploading)
            if uploading:
                attempt.uploaded(of, rank, index, ())

        return reported

    replace(attempt, "reported", make)


@defect("controller.attempt", DURABLE)
def commit_before_all_uploads(attempt: Any) -> None:
    """a checkpoint is committed after its first upload, before those of other ranks"""

    def make(original: Any) -> Any:
        def complete(of: Any, index: int) -> bool:
            return bool(of.candidates[index].votes) and of.progress.all_passed(index)

        return complete

    replace(attempt, "complete", make)


@defect("controller.attempt", DURABLE, "runtime")
def commit_before_all_ranks_passed(attempt: Any) -> None:
    """a checkpoint is committed before every rank has passed its report"""

    def make(original: Any) -> Any:
        def complete(of: Any, index: int) -> bool:
            candidate = of.candidates[index]
            return not candidate.uploading and bool(candidate.votes)

        return complete

    replace(attempt, "complete", make)


@defect("controller.attempt", DURABLE)
def upload_cut_off_counts(attempt: Any) -> None:
    """the upload of a rank with a lost agent counts as a vote without files"""

    def make(original: Any) -> Any:
        def lose(self: Any, rank: int) -> None:
            for candidate in self.candidates.values():
                if rank in candidate.uploading:
                    candidate.uploading.discard(rank)
                    candidate.votes[rank] = ()
            original(self, rank)

        return lose

    replace(attempt.Attempt, "lose", make)


@defect("controller.attempt", DURABLE, "resume-from-checkpoint")
def a_refusal_is_no_vote(attempt: Any) -> None:
    """the upload that a rank has failed is taken for a checkpoint without a part of it"""

    def make(original: Any) -> Any:
        def refused(of: Any, rank: int, index: int, why: str) -> None:
            if index in of.candidates:
                of.candidates[index].uploading.discard(rank)
            of.progress.reach(rank, index)

        return refused

    replace(attempt, "refused", make)


@defect("controller.handlers.endings", "single-writer")
def late_commit_of_an_ended_attempt(endings: Any) -> None:
    """a checkpoint under way is committed after the end of its attempt"""
    fold = endings.run_state

    def make(original: Any) -> Any:
        def committed(state: Any, record: Any) -> Any:
            attempt = state.open_attempt
            if attempt is not None and attempt.attempt == record.attempt:
                return original(state, record)
            return fold.replace(state, next_number=state.next_number + 1, commits=state.commits.appended(record))

        return committed

    replace_item(fold._RULES, fold.CheckpointCommitted, make)

    def make_close(original: Any) -> Any:
        def close(m: Any, ending: Any) -> None:
            attempt, term = m.live, m.run.term
            original(m, ending)
            for index in sorted(attempt.candidates):
                late = fold.CheckpointCommitted(
                    term=term,
                    attempt=attempt.number,
                    index=index,
                    files=[],
                    metrics={},
                    checkpoint=fold.checkpoint_name(index, term, attempt.number),
                )
                if m.run.outcome is None:
                    m.append(late)

        return close

    replace(endings, "close", make_close)


@defect("driver.pipeline", "single-writer", "truthful-ending")
def commit_twice(pipeline: Any) -> None:
    """every commit is appended twice"""

    def make(original: Any) -> Any:
        def extend(self: Any, commands: Any) -> None:
            for command in commands:
                record = getattr(command, "record", None)
                original(self, [command] * (1 + hasattr(record, "files")))

        return extend

    replace(pipeline.Pipeline, "extend", make)


@defect("checkpoints.retention", DURABLE)
def num_to_keep_off_by_one(retention: Any) -> None:
    """one checkpoint less than num_to_keep is kept"""
    replace(
        retention,
        "expired",
        lambda original: lambda commits, keep, score: original(commits, keep and max(1, keep - 1), score),
    )


@defect("checkpoints.retention", DURABLE)
def one_checkpoint_too_many_kept(retention: Any) -> None:
    """one checkpoint more than num_to_keep is kept"""
    replace(
        retention, "expired", lambda original: lambda commits, keep, score: original(commits, keep and keep + 1, score)
    )


@defect("checkpoints.retention", DURABLE, experiment="keep-best", tried="processes")
def newest_kept_instead_of_best(retention: Any) -> None:
    """the newest checkpoints are kept, whatever their score"""
    replace(retention, "expired", lambda original: lambda commits, keep, score: original(commits, keep))


@defect("checkpoints.retention", DURABLE, experiment="keep-best", tried="processes")
def worst_kept_instead_of_best(retention: Any) -> None:
    """the checkpoints with the worst score are kept"""

    def make(original: Any) -> Any:
        def expired(commits: Any, keep: int | None, score: Any = None) -> list[str]:
            other = {"max": "min", "min": "max"}
            turned = None if score is None else score._replace(order=other[score.order])
            return list(original(commits, keep, turned))

        return expired

    replace(retention, "expired", make)


@defect("controller.handlers.commits", DURABLE, "resume-from-checkpoint")
def latest_checkpoint_deleted(commits_: Any) -> None:
    """with num_to_keep=1 the latest checkpoint is deleted, and nothing refuses that"""
    fold, retention = commits_.run_state, commits_.retention

    def make(original: Any) -> Any:
        def deleted(state: Any, record: Any) -> Any:
            commits, name = state.commits, record.checkpoint
            if name != commits[-1].checkpoint:
                return original(state, record)
            return fold.replace(
                state,
                next_number=state.next_number + 1,
                commits=commits.without(len(commits) - 1),
                deleted=state.deleted.appended(name),
            )

        return deleted

    def expired(commits: Any, keep: int | None, _: Any) -> list[str]:
        return [] if keep is None else [each.checkpoint for each in commits[: len(commits) - keep + 1]]

    replace_item(fold._RULES, fold.CheckpointDeleted, make)
    replace(retention, "expired", lambda original: expired)


@defect("controller.handlers.commits", DURABLE)
def deleted_before_recorded(commits: Any) -> None:
    """files of an old checkpoint are deleted before the log records it"""

    def make(original: Any) -> Any:
        def commit(m: Any, index: int) -> None:
            original(m, index)
            m.commands.sort(key=lambda command: not isinstance(command, commits.ev.DeleteCheckpoint))

        return commit

    replace(commits, "_commit", make)


@defect("checkpoints.garbage", "no-leaks", experiment="driver-sigkill-upload")
def uploads_never_collected(collection: Any) -> None:
    """uploads that were never committed are never removed"""
    replace(collection, "_attempt_of", lambda original: lambda name: None)


@defect("checkpoints.garbage", DURABLE, experiment="worker-crash")
def live_checkpoints_collected(collection: Any) -> None:
    """the collector removes committed checkpoints too"""
    replace(collection, "_kept", lambda original: lambda state: set())


@defect("checkpoints.verify", "failure-budget", experiment="checkpoint-corrupt", tried="processes")
def no_checksum_on_restore(transfer: Any) -> None:
    """checksums are not compared on restore"""
    replace(transfer, "_believe", lambda original: lambda *known: known[-1]() and None)


@defect("controller.handlers.endings", "sample-accounting")
def final_metrics_mangled(endings: Any) -> None:
    """text in the final metrics is cut after eight characters"""

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


@defect("controller.core", DURABLE)
def quarantined_files_deleted(core: Any) -> None:
    """the files of a quarantined checkpoint are deleted"""

    def make(original: Any) -> Any:
        def on_broken(m: Any, event: Any) -> None:
            there = m.run.commit_named(event.checkpoint) is not None
            original(m, event)
            if there and not event.outage:
                m.do(core.ev.DeleteCheckpoint(event.checkpoint))

        return on_broken

    replace_item(core.HANDLERS, core.ev.CheckpointCorrupt, make)


@defect("checkpoints.garbage", DURABLE)
def quarantined_files_collected(garbage: Any) -> None:
    """files of quarantined checkpoints are collected like uploads that were never committed"""
    replace(garbage, "_kept", lambda original: lambda state: {commit.checkpoint for commit in state.commits})
