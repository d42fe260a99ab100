"""The agent, its fork server and its worker: what is not passed on, not waited for, not swept, not asked."""

from __future__ import annotations

from typing import Any

from shaketable.suites.mutants.defining import defect, replace

BUDGET, GROW, LIVE, SAMPLES = "failure-budget", "grow-back", "liveness", "sample-accounting"
FORKS, HELD = "runtime/test_forkserver.py::", "runtime/test_session_hold.py::"
REPORTS, REAL = "runtime/test_session_reports.py::", "runtime/test_runtime_without_ray.py::"


def _not_told(agentloop: Any, *kinds: str) -> None:
    """The worker never hears of these."""

    def make(original: Any) -> Any:
        def tell(self: Any, message: Any, attempt: int) -> None:
            if type(message).__name__ not in kinds:
                original(self, message, attempt)

        return tell

    replace(agentloop.AgentLoop, "_tell_worker", make)


# ---- the agent


@defect("agent.loop", LIVE, experiment="worker-crash", tried="processes", within_s=30)
def deliveries_not_passed_on(agentloop: Any) -> None:
    """what the ranks exchange does not reach the worker"""
    _not_told(agentloop, "Delivery")


@defect("agent.loop", GROW, LIVE, experiment="node-added", tried="processes", within_s=60)
def holds_not_passed_on(agentloop: Any) -> None:
    """a worker is not told that its attempt holds"""
    _not_told(agentloop, "HoldBegin")


@defect("agent.loop", GROW, LIVE, experiment="node-added", tried="processes", within_s=60)
def common_report_not_passed_on(agentloop: Any) -> None:
    """a worker is not told at which report its attempt holds"""
    _not_told(agentloop, "HoldUntil")


@defect("agent.loop", LIVE, experiment="worker-crash", tried="processes", within_s=30)
def uploads_not_answered(agentloop: Any) -> None:
    """a worker is not told that its checkpoint is uploaded"""
    _not_told(agentloop, "UploadDone")


@defect("agent.loop", GROW, LIVE, experiment="node-added", tried="processes", within_s=60)
def kills_not_obeyed(agentloop: Any) -> None:
    """an agent that is told to kill its worker does nothing"""
    replace(agentloop.AgentLoop, "_kill", lambda original: lambda self, attempt: None)


@defect("agent.loop", "truthful-ending", SAMPLES, BUDGET, experiment="worker-crash", tried="processes", within_s=60)
def death_called_an_end(agentloop: Any) -> None:
    """a worker that was killed counts as finished"""
    replace(
        agentloop,
        "_death",
        lambda original: lambda status, fork: agentloop.msg.WorkerFinished(attempt=fork.attempt, rank=fork.rank),
    )


@defect("agent.loop", LIVE, experiment="worker-crash", tried="processes", within_s=30)
def end_of_a_worker_not_told(agentloop: Any) -> None:
    """a worker that is gone is gone without a word"""

    def make(original: Any) -> Any:
        def reaped(self: Any, message: Any) -> None:
            if self._worker is not None and self._worker.killed_s is None:
                self._worker.killed_s = 0.0
            original(self, message)

        return reaped

    replace(agentloop.AgentLoop, "_reaped", make)


@defect("agent.loop", BUDGET, LIVE, experiment="worker-crash", tried="processes", within_s=60)
def one_worker_in_its_life(agentloop: Any) -> None:
    """an agent that has had a worker forks no other"""

    def make(original: Any) -> Any:
        def fork(self: Any, order: Any) -> None:
            if getattr(self, "_had_one", False):
                return
            self._had_one = True
            original(self, order)

        return fork

    replace(agentloop.AgentLoop, "_fork", make)


# ---- the fork server


@defect("agent.forkserver", tests=FORKS + "test_a_worker_that_finishes_leaves_no_grandchild")
def descendants_not_swept(forkserver: Any) -> None:
    """what a worker leaves behind lives on"""
    replace(forkserver, "_sweep", lambda original: lambda except_for=None: None)


@defect("agent.forkserver", tests=FORKS + "test_all_below_it_die_with_a_fork_server_or_its_guard")
def guard_that_does_not_look(forkserver: Any) -> None:
    """the guard of a fork server ends with it, and sweeps nothing"""

    def make(original: Any) -> Any:
        def guard(server: int) -> None:
            forkserver.os.waitpid(server, 0)
            forkserver.os._exit(0)

        return guard

    replace(forkserver, "_guard", make)


# ---- the session


@defect("session", tests=REPORTS + "test_metrics_that_cannot_be_recorded_consume_their_index_and_vote_no")
def no_word_of_a_report_that_raises(session: Any) -> None:
    """a rank whose report() raises does not vote against its commit"""
    replace(session.Session, "_vote_no", lambda original: lambda self, index, error: None)


@defect("session", tests=REPORTS + "test_a_report_does_not_raise_for_its_own_checkpoint_however_soon_that_is_refused")
def own_upload_raises(session: Any) -> None:
    """report() raises for its own ASYNC checkpoint, if that is refused soon enough"""

    def make(original: Any) -> Any:
        def raise_failed(self: Any, before: int) -> None:
            original(self, before + 1)

        return raise_failed

    replace(session.Session, "_raise_failed_uploads", make)


@defect("session", tests=REPORTS + "test_the_newest_checkpoint_is_what_the_rank_has_uploaded_last")
def own_checkpoints_not_found(session: Any) -> None:
    """get_checkpoint() gives the checkpoint to resume from for the whole attempt"""

    def make(original: Any) -> Any:
        def get_checkpoint(self: Any) -> Any:
            self._newest = None
            return original(self)

        return get_checkpoint

    replace(session.Session, "get_checkpoint", make)


@defect("session", tests=REPORTS + "test_the_reported_checkpoints_wait_until_all_ranks_are_there")
def settled_without_asking(session: Any) -> None:
    """a worker takes its reports for settled as soon as it has made them"""
    replace(session.Session, "settled", lambda original: lambda self, within_s: True)


@defect("session", tests=REPORTS + "test_a_notice_names_the_ranks_of_its_nodes")
def notices_without_ranks(session: Any) -> None:
    """a worker is not told whose nodes go"""

    def make(original: Any) -> Any:
        def on(self: Any, message: Any) -> None:
            if isinstance(message, session.msg.Preemption):
                self._announced = session.PreemptionInfo(message.deadline_s, tuple(message.node_ids), {})
            else:
                original(self, message)

        return on

    replace(session.Session, "_on", make)


# ---- the worker


@defect("agent.worker", tests="runtime/test_runtime_on_processes.py::test_rank_zero_can_speak_to_all")
def first_word_wins(worker: Any) -> None:
    """what the ranks exchange is each one's own"""

    def make(original: Any) -> Any:
        def exchange(self: Any, data: bytes) -> bytes:
            original(self, data)
            return data

        return exchange

    replace(worker.session.Session, "exchange", make)


@defect(
    "agent.checkpoint_io",
    tests=REAL + "test_a_final_checkpoint_that_is_refused_is_named_in_the_result_and_its_files_are_kept",
)
def stranded_files_removed(copying: Any) -> None:
    """the files of a checkpoint that the storage refused are removed"""

    def make(original: Any) -> Any:
        def kept(self: Any, report: Any) -> Any:
            copying.shutil.rmtree(report.directory, ignore_errors=True)
            return copying.Path(report.directory)

        return kept

    replace(copying.Copying, "_kept", make)
