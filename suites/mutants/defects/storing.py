"""The storage: who sees it, what is believed of it, and who waits for it."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

from shaketable.suites.mutants.defining import RUNTIME, defect, replace

UNFIT = "runtime/test_unfit_nodes.py::"
ENDURANCE = "runtime/test_storage_endurance.py::"


@defect("log.presence", tests=UNFIT + "test_a_node_without_the_mount_calls_no_checkpoint_corrupt")
def node_without_the_mount_believed(presence: Any) -> None:
    """what a node says of files is believed, whether or not it sees the run there"""
    replace(presence, "check_presence", lambda original: lambda *run: None)


@defect("log.presence", tests=UNFIT + "test_another_run_in_the_same_place_is_not_taken_for_this_one")
def any_run_in_the_place_believed(presence: Any) -> None:
    """some run where this one should be is good enough"""
    replace(presence, "check_presence", lambda original: lambda path, run_id="": original(path))


@defect(
    "agent.loop", tests=UNFIT + "test_an_agent_is_not_ready_before_it_has_seen_the_run_and_leaves_where_it_does_not"
)
def ready_without_having_seen_the_run(agentloop: Any) -> None:
    """an agent is ready before it has looked for the run in its storage"""

    def make(original: Any) -> Any:
        def tell_ready(self: Any) -> None:
            self._fit = True
            original(self)

        return tell_ready

    replace(agentloop.AgentLoop, "_tell_ready", make)


@defect(
    "checkpoints.node_disk",
    tests=ENDURANCE + "test_a_node_whose_disk_stays_full_is_left_long_before_an_outage_would_end_the_run",
)
def disk_of_a_node_never_given_up(node_disk: Any) -> None:
    """a node's own disk is waited for as the storage is"""
    replace(node_disk, "NodeDiskFailed", lambda original: node_disk.StorageUnavailable)


@defect("agent.checkpoint_io", tests=ENDURANCE + "test_a_node_whose_disk_takes_nothing_is_unfit_from_the_start")
def ready_with_a_full_disk(copying: Any) -> None:
    """an agent is ready on a node whose disk takes nothing"""
    replace(copying, "check_disk", lambda original: lambda directory: None)


@defect("storage.local", tests=UNFIT + "test_nothing_is_built_where_the_storage_is_not_mounted")
def tree_built_on_the_nodes_own_disk(local_store: Any) -> None:
    """an upload makes every directory that it needs, also those of the run"""

    def make(original: Any) -> Any:
        def upload(self: Any, found: Any, key: str, rank: int, check: Any) -> Any:
            local_store.make_directory(self.root)
            return original(self, found, key, rank, check)

        return upload

    replace(local_store.LocalStore, "upload", make)


@defect(
    "checkpoints.reinstatement",
    tests=UNFIT + "test_a_relaunch_takes_back_what_is_whole_when_every_commit_is_quarantined",
)
def quarantine_is_final(reinstating: Any) -> None:
    """what was quarantined is never looked at again"""
    replace(reinstating, "reinstate", lambda original: lambda *known: [])


@defect(
    "checkpoints.reinstatement",
    tests=UNFIT + "test_a_relaunch_takes_back_what_is_whole_when_every_commit_is_quarantined",
)
def taken_back_unverified(reinstating: Any) -> None:
    """what was quarantined is taken back at the next launch, whole or not"""
    replace(reinstating, "_is_whole", lambda original: lambda *known: True)


@defect("checkpoints.node_cache", tests=ENDURANCE + "test_a_full_disk_of_the_node_is_waited_for")
def restore_tried_once(nodecache: Any) -> None:
    """a restore that the node's disk fails is not tried again"""
    replace(nodecache, "retrying", lambda original: lambda what, call: call())


@defect("storage.local", tests=ENDURANCE + "test_a_record_that_cannot_be_read_for_a_moment_does_not_fail_the_opening")
def local_reads_tried_once(local_store: Any) -> None:
    """what a local path fails to read is not read again"""
    replace(local_store, "retrying", lambda original: lambda what, call, within_s=None: call())


@defect(
    "controller.handlers.endings",
    tests=ENDURANCE + "test_an_attempt_whose_checkpoint_cannot_be_read_ends_as_an_outage_uncharged",
)
def outage_at_a_restore_quarantines(endings: Any) -> None:
    """a checkpoint that cannot be read for an outage is given up as corrupt"""

    def make(original: Any) -> Any:
        def on_broken(m: Any, event: Any) -> None:
            original(m, type(event)(event.attempt, event.rank, event.checkpoint, event.detail))

        return on_broken

    replace(endings, "on_broken", make)


@defect("driver.executor", tests=ENDURANCE + "test_records_and_fence_checks_never_stand_behind_what_nothing_waits_for")
def deletes_before_records(executor: Any) -> None:
    """deletes and stacks wait in the same queue as records"""

    def make(original: Any) -> Any:
        def prepare(self: Any, listener: Any) -> None:
            def delete(name: str) -> None:
                self._log_thread.do(lambda: chores.store.delete(self._log.run_path, [name]))

            self._chores.delete, self._chores.do = delete, self._log_thread.do
            original(self, listener)

        return prepare

    chores: Any = importlib.import_module(f"{RUNTIME}.driver.chores")
    replace(executor.Executor, "_prepare", make)


@defect(
    "agent.checkpoint_io", tests=ENDURANCE + "test_a_restore_does_not_wait_for_what_an_attempt_before_has_to_upload"
)
def restores_behind_uploads(copying: Any) -> None:
    """a restore waits until the uploads before it are done"""

    def make(original: Any) -> Any:
        def begin(self: Any, fork: Any) -> None:
            self._restores = self.pool
            original(self, fork)

        return begin

    replace(copying.Copying, "begin", make)


@defect(
    "agent.checkpoint_io", tests=ENDURANCE + "test_a_restore_does_not_wait_for_what_an_attempt_before_has_to_upload"
)
def dead_uploads_go_on(copying: Any) -> None:
    """what an attempt that is over had to upload is uploaded nevertheless"""
    replace(copying._Upload, "check", lambda original: lambda self: None)


@defect("driver.executor", tests=ENDURANCE + "test_whatever_ends_the_thread_of_the_log_ends_the_run_with_its_reason")
def death_of_a_thread_unnoticed(executor: Any) -> None:
    """a thread of the driver ends, and the run waits for it"""
    replace(executor.Executor, "_guarded", lambda original: lambda self, work: work)


@defect(
    "checkpoints.merge",
    tests=ENDURANCE + "test_a_file_and_a_directory_of_one_name_are_refused_before_they_are_committed",
)
def file_below_a_file_committed(shards: Any) -> None:
    """a checkpoint that no file system could hold is committed"""
    replace(shards, "_check_directories", lambda original: lambda owners: None)


@defect("storage.hashing", tests=ENDURANCE + "test_checkpoint_files_keep_their_permission_bits_in_storage_too")
def permission_bits_lost(hashing: Any) -> None:
    """files of checkpoints come out as readable as any new file"""
    replace(hashing, "new_file", lambda original: lambda target, mode: original(target, None))


@defect("storage.hashing", tests=ENDURANCE + "test_a_file_of_the_users_that_cannot_be_read_is_no_outage")
def unreadable_source_is_an_outage(hashing: Any) -> None:
    """a file of the user's that cannot be read is waited for as if the storage were away"""
    replace(hashing, "reading", lambda original: lambda source: contextlib.nullcontext())


@defect("session", tests="runtime/test_session_reports.py::test_a_report_that_is_refused_is_made_and_votes_no")
def refused_before_the_report_counts(session: Any) -> None:
    """arguments that are refused consume no index, so that the rank is a report behind its peers from then on"""

    def make(original: Any) -> Any:
        def report(metrics: Any, checkpoint: Any = None, **given: Any) -> None:
            session.refused("report", "validation", given.get("validation", False))
            original(metrics, checkpoint, **given)

        return report

    replace(session, "report", make)


@defect(
    "checkpoint", tests="runtime/test_checkpoint_metadata.py::test_the_metadata_of_a_commit_can_be_read_and_not_changed"
)
def metadata_written_into_a_commit(checkpoint: Any) -> None:
    """a commit is changed after its checksums are on record"""
    replace(checkpoint, "_in_a_run", lambda original: lambda path: False)


@defect(
    "driver.executor",
    tests="runtime/test_moving.py::test_a_function_for_ray_train_finds_its_checkpoints_environment_and_callbacks",
)
def settled_at_once(executor: Any) -> None:
    """whoever asks for the reported checkpoints is answered before the other ranks have reported"""

    def make(original: Any) -> Any:
        def on_message(self: Any, peer: Any, message: Any) -> None:
            if isinstance(message, executor.msg.AskSettled):
                self._peers.send(peer, executor.msg.Settled(attempt=message.attempt, index=message.index))
            else:
                original(self, peer, message)

        return on_message

    replace(executor.Executor, "_on_message", make)
