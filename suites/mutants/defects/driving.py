"""The driver's shell: its loop, its peers, its places, its chores."""

from __future__ import annotations

from typing import Any

from shaketable.suites.mutants.defining import defect, replace, replace_item

BUDGET, GROW, LIVE, SAMPLES = "failure-budget", "grow-back", "liveness", "sample-accounting"


def _command_skipped(executor: Any, *kinds: str) -> None:
    def make(original: Any) -> Any:
        def execute(self: Any, command: Any) -> None:
            if type(command).__name__ not in kinds:
                original(self, command)

        return execute

    replace(executor.Executor, "_execute", make)


@defect("driver.executor", GROW, LIVE, experiment="node-added", tried="processes", within_s=60)
def stops_not_executed(executor: Any) -> None:
    """an attempt that is to stop is not told so"""
    _command_skipped(executor, "StopAttempt")


@defect("driver.executor", GROW, LIVE, experiment="node-added", tried="processes", within_s=60)
def holds_not_executed(executor: Any) -> None:
    """an attempt that is to hold is not told so"""
    _command_skipped(executor, "BeginHold")


@defect("driver.executor", "resume-from-checkpoint", experiment="worker-crash", tried="processes", within_s=60)
def first_report_told_too_high(executor: Any) -> None:
    """workers are told to begin with the report after the right one"""

    def make(original: Any) -> Any:
        def start(self: Any, command: Any) -> None:
            original(self, executor.msgspec.structs.replace(command, first_index=command.first_index + 1))

        return start

    replace(executor.Executor, "_start_attempt", make)


@defect("driver.executor", LIVE, experiment="worker-crash", tried="processes", within_s=30)
def one_rank_not_forked(executor: Any) -> None:
    """the last rank of an attempt is never told to fork"""

    def make(original: Any) -> Any:
        def start(self: Any, command: Any) -> None:
            last = self._peers.connected.pop(command.members[-1], None)
            original(self, command)
            if last is not None:
                self._peers.connected[last.agent] = last

        return start

    replace(executor.Executor, "_start_attempt", make)


@defect("driver.executor", LIVE, experiment="worker-crash", tried="processes", within_s=30)
def exchanges_not_ended(executor: Any) -> None:
    """what the ranks exchange is never complete"""
    replace(executor.Executor, "_contribute", lambda original: lambda self, message: None)


@defect(
    "driver.executor",
    tests="runtime/test_executor.py::test_a_driver_that_goes_on_looks_for_a_newer_one_before_it_hears_anybody",
)
def goes_on_without_looking(executor: Any) -> None:
    """a driver that stood still does not look whether another has taken over"""
    replace(executor.Executor, "_check_gap", lambda original: lambda self, now: None)


@defect(
    "driver.executor",
    tests="runtime/test_executor.py::test_a_hold_that_a_slow_record_made_longer_is_no_hanging_of_its_workers",
)
def holds_count_as_hanging(executor: Any) -> None:
    """the time for which a record kept workers in a hold is their own"""
    replace(executor.Executor, "_held", lambda original: lambda self, attempt, seconds: None)


@defect("driver.executor", tests="runtime/test_executor.py::test_a_driver_whose_output_nobody_reads_any_more_goes_on")
def warnings_must_be_read(executor: Any) -> None:
    """a driver whose output nobody reads ends with its next warning"""
    replace(executor.Executor, "_warn", lambda original: lambda self, text: print(f"shaketable: {text}", flush=True))


@defect("driver.pipeline", tests="runtime/test_pipeline.py::test_what_follows_a_record_waits_until_it_is_durable")
def nothing_waits_for_a_record(pipeline: Any) -> None:
    """what follows a record is done before it is durable"""

    def make(original: Any) -> Any:
        def run(self: Any) -> None:
            original(self)
            self.appended()

        return run

    replace(pipeline.Pipeline, "run", make)


@defect(
    "driver.user_callback",
    tests="runtime/test_user_callback.py::test_a_plain_report_is_told_once_all_ranks_have_made_it",
)
def told_with_the_first_rank(callback: Any) -> None:
    """a report is told as soon as one rank has made it"""

    def make(original: Any) -> Any:
        def on_report(self: Any, attempt: int, rank: int, index: int, metrics: Any, checkpoint: bool) -> None:
            size, self._world_size = self._world_size, 1
            original(self, attempt, rank, index, metrics, checkpoint)
            self._world_size = size

        return on_report

    replace(callback.Calling, "on_report", make)


@defect(
    "controller.core", tests="runtime/test_controller.py::test_nodes_that_went_with_the_cluster_are_charged_to_nobody"
)
def nodes_of_a_lost_cluster_charged(core: Any) -> None:
    """the nodes that go when Ray has no head any more are charged"""

    def make(original: Any) -> Any:
        return lambda m, event: None if event.detail and m.state is core.STOPPING else original(m, event)

    replace_item(core.HANDLERS, core.ev.Interrupted, make)


@defect(
    "driver.executor",
    tests="runtime/test_executor.py::test_nodes_that_go_while_the_head_has_been_away_for_long_are_"
    "the_cluster_that_is_lost",
)
def silent_head_not_looked_for(executor: Any) -> None:
    """nodes that go are taken for lost ones, however long Ray has not answered"""
    replace(executor.Executor, "_is_unexplained", lambda original: lambda self: False)


@defect(
    "driver.executor",
    tests="runtime/test_executor.py::test_nobody_is_charged_for_a_lost_node_while_the_head_does_not_answer",
)
def charged_while_nobody_answers(executor: Any) -> None:
    """a node that is lost half a minute after the head is charged at once, as the last pod of a suspended RayJob"""
    replace(executor.Executor, "_is_unexplained", lambda original: lambda self: bool(original(self)) and False)


@defect(
    "driver.executor",
    tests="runtime/test_executor.py::test_a_driver_whose_cluster_is_gone_ends_as_interrupted_before_ray_ends_it",
)
def cluster_without_a_head_waited_for(executor: Any) -> None:
    """a driver whose Ray cluster has no head goes on until Ray ends its process"""

    def make(original: Any) -> Any:
        def beat(self: Any, now: float) -> None:
            self._gone = True
            original(self, now)
            self._gone = False

        return beat

    replace(executor.Executor, "_beat", make)


@defect("driver.ray_placement", tests="runtime/test_executor.py::test_what_waits_is_given_back_before_what_is_had")
def what_is_had_given_back_first(ray_placement: Any) -> None:
    """places are given back in the order in which they were asked for"""
    replace(ray_placement.RayPlacement, "_units", lambda original: lambda self: list(self._leases))


@defect(
    "driver.placement_thread",
    tests="runtime/test_executor.py::test_time_in_which_the_driver_stood_still_is_no_silence_of_ray",
)
def own_pause_taken_for_a_silent_head(placement_thread: Any) -> None:
    """a driver that was stopped in the middle of a call believes that Ray has not answered for so long"""
    replace(placement_thread.PlacementThread, "excuse", lambda original: lambda self, seconds: None)
