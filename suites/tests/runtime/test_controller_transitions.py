"""Every transition of the controller's two tables is taken: by exploration, or by the test that is named for it.

A transition that neither takes is mere paper: it gets a test, or it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from shaketable.chaos.simulation.subject.run import DECLARED
from shaketable.runtime.controller import Controller, in_words
from shaketable.runtime.controller import events as ev
from shaketable.suites.exploring.simulated import explore_chunk
from shaketable.suites.tests.runtime import test_checkpoint_quarantine as quarantine
from shaketable.suites.tests.runtime import test_controller as basics
from shaketable.suites.tests.runtime import test_controller_hangs as hangs
from shaketable.suites.tests.runtime import test_controller_regressions as regressions
from shaketable.suites.tests.runtime import test_controller_replacements as replacements
from shaketable.suites.tests.runtime import test_controller_seldom as seldom
from shaketable.suites.tests.runtime import test_controller_tiers as tiers
from shaketable.suites.tests.runtime import test_controller_votes as votes

SCHEDULES = 100

Transition = tuple[str, str, str]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> set[Transition]:
    """By every controller of this test, as it goes."""
    seen: set[Transition] = set()
    handle = Controller.handle

    def recorded(self: Controller, event: ev.Event, now: float) -> list[ev.Command]:
        commands = handle(self, event, now)
        seen.update(map(in_words, self.path))
        return commands

    monkeypatch.setattr(Controller, "handle", recorded)
    return seen


# The tests that take what the first `SCHEDULES` schedules of `explore --seed 1` take seldom or never.
BY_TEST: Mapping[Callable[[], None], tuple[Transition, ...]] = {
    seldom.test_what_is_no_reason_for_anything_leaves_every_state_as_it_is: (
        ("WAITING", "AgentLost", "WAITING"),
        ("WAITING", "timer quarantine", "WAITING"),
        ("STARTING", "AgentLost", "STARTING"),
        ("STARTING", "AgentFailed", "STARTING"),
        ("STARTING", "StacksTaken", "STARTING"),
        ("STARTING", "LoopPaused", "STARTING"),
        ("STARTING", "timer quarantine", "STARTING"),
        ("RUNNING", "AgentLost", "RUNNING"),
        ("RUNNING", "UploadFailed", "RUNNING"),
        ("RUNNING", "HoldAnswered", "RUNNING"),
        ("RUNNING", "CheckpointCorrupt", "RUNNING"),
        ("RUNNING", "StacksTaken", "RUNNING"),
        ("RUNNING", "timer resize", "RUNNING"),
        ("RUNNING", "timer quarantine", "RUNNING"),
        ("HOLDING", "AgentLost", "HOLDING"),
        ("HOLDING", "AgentFailed", "HOLDING"),
        ("HOLDING", "UploadFailed", "HOLDING"),
        ("HOLDING", "CheckpointCorrupt", "HOLDING"),
        ("HOLDING", "StacksTaken", "HOLDING"),
        ("HOLDING", "LoopPaused", "HOLDING"),
        ("HOLDING", "timer commit", "HOLDING"),
        ("HOLDING", "timer quarantine", "HOLDING"),
        ("STOPPING", "AgentFailed", "STOPPING"),
        ("STOPPING", "UploadFailed", "STOPPING"),
        ("STOPPING", "HoldAnswered", "STOPPING"),
        ("STOPPING", "StacksTaken", "STOPPING"),
        ("STOPPING", "LoopPaused", "STOPPING"),
        ("STOPPING", "timer quarantine", "STOPPING"),
        ("WAITING", "LoopPaused", "WAITING"),
        ("BACKOFF", "AgentLost", "BACKOFF"),
        ("BACKOFF", "AgentFailed", "BACKOFF"),
        ("BACKOFF", "LoopPaused", "BACKOFF"),
        ("BACKOFF", "timer quarantine", "BACKOFF"),
    ),
    seldom.test_a_log_that_is_gone_ends_the_run_in_every_state: (
        ("WAITING", "LogFailed", "FAILED"),
        ("STARTING", "LogFailed", "FAILED"),
        ("RUNNING", "LogFailed", "FAILED"),
        ("HOLDING", "LogFailed", "FAILED"),
        ("STOPPING", "LogFailed", "FAILED"),
        ("BACKOFF", "LogFailed", "FAILED"),
        ("FINISHED", "LogFailed", "FAILED"),
        ("FAILED", "LogFailed", "FAILED"),
        ("INTERRUPTED", "LogFailed", "FAILED"),
    ),
    seldom.test_a_driver_that_has_been_replaced_leaves_in_every_state: (
        ("HOLDING", "TakenOver", "FENCED"),
        ("STOPPING", "TakenOver", "FENCED"),
        ("FINISHED", "TakenOver", "FENCED"),
        ("FAILED", "TakenOver", "FENCED"),
        ("INTERRUPTED", "TakenOver", "FENCED"),
    ),
    seldom.test_an_echo_ends_a_start_once_every_rank_has_spoken: (
        ("STARTING", "WorkerFailed", "STARTING"),
        ("STARTING", "WorkersStopped", "STARTING"),
        ("STARTING", "timer collateral", "STARTING"),
        ("STARTING", "when only echoes", "STOPPING"),
    ),
    seldom.test_an_echo_ends_a_hold_once_every_rank_has_spoken: (
        ("HOLDING", "WorkerFailed", "HOLDING"),
        ("HOLDING", "WorkersStopped", "HOLDING"),
        ("HOLDING", "timer collateral", "HOLDING"),
        ("HOLDING", "when only echoes", "STOPPING"),
    ),
    seldom.test_the_end_of_the_last_rank_may_show_that_ranks_contradict_each_other: (
        ("RUNNING", "WorkerFinished", "STOPPING"),
        ("HOLDING", "WorkerFinished", "STOPPING"),
    ),
    seldom.test_an_outage_of_the_storage_ends_the_run: (
        ("RUNNING", "UploadFailed", "STOPPING"),
        ("SETTLED", "when storage out", "FAILED"),
    ),
    seldom.test_an_echo_ends_an_attempt_once_the_root_has_been_silent_for_too_long: (
        ("RUNNING", "timer collateral", "RUNNING"),
        ("RUNNING", "timer collateral", "STOPPING"),
    ),
    seldom.test_a_start_that_hangs_and_whose_ranks_do_not_answer_is_stopped: (
        ("STARTING", "timer hang", "STARTING"),
        ("STARTING", "timer hang", "STOPPING"),
    ),
    seldom.test_a_hold_in_which_the_ranks_hang_is_stopped: (
        ("HOLDING", "StacksTaken", "STOPPING"),
        ("HOLDING", "timer hang", "HOLDING"),
    ),
    seldom.test_a_broken_checkpoint_ends_the_attempt_also_in_a_hold: (
        ("RUNNING", "CheckpointCorrupt", "STOPPING"),
        ("HOLDING", "CheckpointCorrupt", "STOPPING"),
    ),
    quarantine.test_the_run_fails_truthfully_where_none_is_left_and_again_when_it_is_relaunched: (
        ("STARTING", "CheckpointCorrupt", "STOPPING"),
        ("SETTLED", "when all corrupt", "FAILED"),
    ),
    regressions.test_an_error_that_may_be_an_echo_is_not_forgotten_when_the_node_s_time_is_over: (
        ("HOLDING", "timer hold", "HOLDING"),
        ("HOLDING", "timer collateral", "STOPPING"),
    ),
    seldom.test_the_last_report_may_show_that_ranks_contradict_each_other: (("RUNNING", "ReportReceived", "STOPPING"),),
    seldom.test_ranks_that_have_returned_when_they_are_stopped_change_nothing: (
        ("STOPPING", "WorkerFinished", "STOPPING"),
    ),
    seldom.test_an_outage_of_the_storage_ends_a_hold: (("HOLDING", "UploadFailed", "STOPPING"),),
    seldom.test_an_echo_ends_a_start_once_the_root_has_been_silent_for_too_long: (
        ("STARTING", "timer collateral", "STOPPING"),
    ),
    seldom.test_an_agent_that_is_lost_during_the_start_ends_it: (("STARTING", "AgentLost", "STOPPING"),),
    seldom.test_agents_that_cannot_be_started_end_a_run_also_while_it_pauses: (("BACKOFF", "when given up", "FAILED"),),
    seldom.test_a_signal_starts_no_attempt_in_any_state: (("BACKOFF", "Interrupted", "INTERRUPTED"),),
    seldom.test_a_node_that_is_announced_to_go_during_the_start_is_left_once_all_have_entered: (
        ("STARTING", "WorkerEntered", "HOLDING"),
    ),
    seldom.test_a_hold_whose_last_vote_is_a_report_is_left_for_a_replacement_to_come: (
        ("HOLDING", "ReportReceived", "RUNNING"),
    ),
    seldom.test_a_hold_whose_last_vote_is_a_report_ends_the_attempt: (("HOLDING", "ReportReceived", "STOPPING"),),
    seldom.test_a_hold_that_waited_for_an_earlier_upload_is_left_when_that_fails: (
        ("HOLDING", "UploadFailed", "RUNNING"),
    ),
    seldom.test_a_hold_in_which_the_ranks_hang_and_do_not_answer_is_stopped: (("HOLDING", "timer hang", "STOPPING"),),
    tiers.test_without_capacity_on_the_last_tier_the_run_fails_and_says_so: (("WAITING", "when given up", "FAILED"),),
    hangs.test_who_is_not_in_the_function_yet_is_late_and_nobody_else: (("STARTING", "StacksTaken", "STOPPING"),),
    replacements.test_where_nobody_comes_the_node_is_left_in_time_for_another_commit: (
        ("RUNNING", "timer notices", "HOLDING"),
    ),
    hangs.test_what_is_late_is_ended_and_charged_and_its_place_is_named: (("RUNNING", "StacksTaken", "STOPPING"),),
    replacements.test_unless_it_was_told_to_wait_for_one: (("RUNNING", "timer notices", "RUNNING"),),
    quarantine.test_two_ranks_with_different_bytes_under_one_name_fail_the_attempt_that_names_them: (
        ("RUNNING", "UploadFinished", "STOPPING"),
    ),
    regressions.test_the_replacement_for_a_draining_node_is_kept_when_the_node_dies: (
        ("HOLDING", "NodesChanged", "STOPPING"),
    ),
    basics.test_the_loss_of_a_draining_node_is_a_preemption: (("STOPPING", "timer look", "STOPPING"),),
    regressions.test_the_death_of_a_node_that_ray_sees_ends_the_attempt_as_the_loss_of_its_agent_does: (
        ("RUNNING", "NodesChanged", "STOPPING"),
    ),
    hangs.test_ranks_that_do_not_answer_are_not_waited_for_long: (("RUNNING", "timer hang", "STOPPING"),),
    regressions.test_it_is_a_start_failure_if_not_every_rank_had_entered: (("STARTING", "NodesChanged", "STOPPING"),),
    tiers.test_an_empty_market_moves_the_run_whatever_was_given_back_and_asked_for_again_meanwhile: (
        ("BACKOFF", "timer capacity", "BACKOFF"),
    ),
    regressions.test_an_echo_is_all_there_is_once_the_last_rank_has_stopped: (
        ("RUNNING", "when only echoes", "STOPPING"),
    ),
    regressions.test_a_rank_that_is_reaped_before_it_says_that_it_has_finished_finishes_the_run_also_in_a_hold: (
        ("HOLDING", "WorkerFinished", "RUNNING"),
    ),
    votes.test_a_resize_whose_checkpoint_one_of_them_has_failed_is_given_up_and_the_attempt_goes_on: (
        ("HOLDING", "HoldReached", "RUNNING"),
    ),
}


@pytest.mark.parametrize("test", BY_TEST, ids=lambda test: test.__name__)
def test_what_exploration_seldom_takes_is_taken_by_the_test_that_is_named_for_it(
    taken: set[Transition], test: Callable[[], None]
) -> None:
    test()
    assert set(BY_TEST[test]) <= taken


def test_every_transition_of_the_tables_is_taken_by_exploration_or_by_its_test() -> None:
    explored = explore_chunk(1, 0, SCHEDULES).transitions
    by_test = {transition for transitions in BY_TEST.values() for transition in transitions}
    assert explored.keys() | by_test == set(DECLARED)
