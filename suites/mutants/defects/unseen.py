"""What no invariant can see, or only seldom: each is caught by a test of the project."""

from __future__ import annotations

from typing import Any

from shaketable.suites.mutants.defining import defect, replace, replace_item

CONTROLLER = "runtime/test_controller.py::"
RULES = "runtime/test_fold_rules.py::test_start_failures_count_in_a_row"


@defect("controller.scaling", tests=CONTROLLER + "test_it_asks_for_max_and_starts_with_min_once_nothing_more_is_coming")
def starts_only_with_max(scaling: Any) -> None:
    """a run waits for all of max, although it has min"""

    def make(original: Any) -> Any:
        return lambda self, min_workers, max_workers: original(self, max_workers, max_workers)

    replace(scaling.Bounds, "__init__", make)


@defect(
    "controller.core",
    tests="runtime/test_controller_votes.py::test_what_no_other_attempt_could_do_better_ends_the_run_at_once",
)
def what_cannot_be_loaded_is_tried_again(core: Any) -> None:
    """a training function that cannot be loaded is tried again, like any failure"""

    def make(original: Any) -> Any:
        def failed(m: Any, event: Any) -> None:
            attempt = m.live
            original(m, event)
            attempt.fatal = ""

        return failed

    replace_item(core.HANDLERS, core.ev.WorkerFailed, make)


@defect(
    "controller.core",
    tests="runtime/test_controller_regressions.py::"
    "test_what_is_held_below_min_is_given_back_after_unit_wait_s_whatever_happens_meanwhile",
)
def held_for_ever(core: Any) -> None:
    """a run that holds too few workers never gives them back"""
    replace_item(core.TIMERS, "unit_wait", lambda original: lambda m: None)


@defect(
    "controller.core",
    tests="runtime/test_controller_regressions.py::"
    "test_what_was_given_back_is_not_asked_for_again_before_the_pause_is_over",
)
def given_back_and_asked_for_at_once(core: Any) -> None:
    """what a run gives back because it is too little, it asks for again with the next news of a node"""

    def make(original: Any) -> Any:
        def let_go(m: Any) -> None:
            original(m)
            m.let_go = False

        return let_go

    replace_item(core.TIMERS, "unit_wait", make)


@defect(
    "controller.handlers.holding",
    tests=CONTROLLER + "test_further_notices_are_waited_for_half_of_the_time_to_the_deadline_at_most",
)
def notice_window_ignored(holding: Any) -> None:
    """each notice costs a restart of its own, whatever notice_window_s says"""
    replace(holding, "_gathering_until_s", lambda original: lambda m, noticed_s, deadline: m.now)


@defect(
    "controller.handlers.holding",
    tests=CONTROLLER + "test_a_deadline_that_nobody_has_announced_stands_from_the_first_notice_on",
)
def deadline_put_off_at_every_look(holding: Any) -> None:
    """where no end is announced, the deadline moves on with every look at the nodes"""

    def make(original: Any) -> Any:
        return lambda m, threat, noticed_s: original(m, threat, m.now)

    replace(holding, "_deadline_s", make)


@defect("log.run_state", tests=RULES)
def start_failures_never_end_a_row(fold: Any) -> None:
    """start failures are counted over the whole run, not in a row"""
    for kind in (fold.AttemptEnded, fold.CheckpointCommitted):
        replace_item(fold._RULES, kind, lambda original: _row_goes_on(fold, original))


def _row_goes_on(fold: Any, original: Any) -> Any:
    def rule(state: Any, record: Any) -> Any:
        after, before = original(state, record), state.start_failures_in_a_row
        return fold.replace(after, start_failures_in_a_row=max(before, after.start_failures_in_a_row))

    return rule


@defect("log.run_state", tests=RULES)
def start_failures_forgotten_at_every_ending(fold: Any) -> None:
    """any ending but a start failure ends a row, one that says nothing of a start too"""

    def make(original: Any) -> Any:
        def ended(state: Any, record: Any) -> Any:
            after = original(state, record)
            fresh = record.account != "max_start_failures"
            return fold.replace(after, start_failures_in_a_row=0) if fresh else after

        return ended

    replace_item(fold._RULES, fold.AttemptEnded, make)


@defect(
    "controller.agent_starts",
    tests="runtime/test_controller_seldom.py::test_agents_that_cannot_be_started_end_a_run_also_while_it_pauses",
)
def agents_that_do_not_start_uncounted(agent_starts: Any) -> None:
    """agents that cannot be started are tried for ever"""
    replace(agent_starts.AgentStarts, "failed", lambda original: lambda self, unit, nodes: None)


@defect("log.metrics", tests="runtime/test_metrics.py::test_what_would_not_come_back_is_refused_by_its_name")
def what_json_cannot_say_recorded_as_text(metrics: Any) -> None:
    """a metric that cannot be recorded is recorded as its text"""
    replace(metrics, "_scalar", lambda original: lambda value, name: str(value))


@defect(
    "session",
    tests="runtime/test_session_reports.py::test_a_refused_upload_consumes_its_index_and_the_agent_has_said_the_no",
)
def report_returns_before_its_upload(session: Any) -> None:
    """report() does not wait for the upload of its checkpoint"""
    replace(session.Session, "_wait_for_upload", lambda original: lambda self, index: None)


@defect("storage.objects", tests="runtime/test_objects_s3.py::test_a_store_that_ignores_the_condition_is_refused")
def any_store_is_good_enough(objects: Any) -> None:
    """a store in which an object can be created twice is accepted"""
    replace(objects, "check_writable", lambda original: lambda path: None)


@defect(
    "storage.objects",
    tests="runtime/test_objects_s3.py::test_every_driver_opens_a_newer_term_and_the_older_one_is_fenced",
)
def objects_created_over_each_other(objects: Any) -> None:
    """a record in an object store is written over the one that is there"""

    def make(original: Any) -> Any:
        def create(path: Any, data: bytes) -> bool:
            objects.obstore.put(objects._store(path), path.key, data, use_multipart=False)
            return True

        return create

    replace(objects, "create", make)


@defect(
    "controller.handlers.endings",
    tests="runtime/test_storage_endurance.py::"
    "test_an_attempt_whose_checkpoint_cannot_be_read_ends_as_an_outage_uncharged",
)
def outage_does_not_say_what_is_safe(endings: Any) -> None:
    """the error of an outage names no commit"""
    replace(endings, "resume_hint", lambda original: lambda run: "Launch it again")


@defect(
    "storage.local",
    tests="runtime/test_power_loss.py::test_a_commit_that_was_answered_survives_a_power_cut_with_all_its_files",
)
def directories_not_synced(local: Any) -> None:
    """a file is synced, and the directory that has its name is not"""
    replace(local, "fsync_directory", lambda original: lambda directory: None)


@defect("log.run_log", tests="runtime/test_snapshots.py::test_only_what_comes_behind_the_snapshot_is_read")
def snapshots_never_read(run_log: Any) -> None:
    """a run is always opened from its first record"""
    replace(run_log.RunLog, "_begin_with_snapshot", lambda original: lambda self: None)


@defect(
    "log.compatibility",
    tests="runtime/test_runlog_open.py::test_what_makes_checkpoints_meaningless_is_refused_with_the_difference",
)
def any_configuration_goes_on(compatibility: Any) -> None:
    """a name is used again with whatever configuration"""
    replace(compatibility, "check_reuse", lambda original: lambda *known: [])
