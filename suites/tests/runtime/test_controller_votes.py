"""A rank that failed a report votes no; what was handed over and not committed is named; agents that do not start."""

from __future__ import annotations

from shaketable.runtime.controller import Controller, State
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.scaling import Bounds
from shaketable.runtime.log import records as rec
from shaketable.runtime.log.records import Uncommitted
from shaketable.runtime.storage.file import File
from shaketable.suites.tests.rigs.controller_world import opened, settings
from shaketable.suites.tests.runtime.test_controller import _grown, records, running

FILES = (File(path="state", size=1, checksum="xxh3:0"),)


def said(*commands: ev.Command) -> str:
    return "\n".join(command.text for command in commands if isinstance(command, ev.Warn))


def finish(controller: Controller, *ranks: int) -> list[ev.Command]:
    commands = [command for rank in ranks for command in controller.handle(ev.WorkerFinished(1, rank), 8.0)]
    return commands + [command for rank in ranks for command in controller.handle(ev.WorkersStopped(1, rank), 9.0)]


def finished(commands: list[ev.Command]) -> rec.RunFinished:
    return next(record for record in records(commands) if isinstance(record, rec.RunFinished))


def test_a_report_that_a_rank_has_failed_is_never_committed_whatever_its_peers_bring() -> None:
    controller = running()
    controller.handle(ev.UploadFailed(1, 0, 1, "report() raised TypeError"), 1.0)
    controller.handle(ev.ReportReceived(1, 1, 1, {}, uploading=True), 1.1)
    assert not records(controller.handle(ev.UploadFinished(1, 1, 1, FILES), 1.2))
    controller.handle(ev.ReportReceived(1, 0, 2, {}, uploading=True), 1.3)
    controller.handle(ev.ReportReceived(1, 1, 2, {}), 1.4)
    (commit,) = records(controller.handle(ev.UploadFinished(1, 0, 2, FILES), 1.5))
    assert isinstance(commit, rec.CheckpointCommitted) and commit.index == 2


def test_a_no_after_the_report_takes_the_checkpoint_back_though_its_upload_ends_well() -> None:
    """An alarm's exception in `report()`, while the upload is waited for."""
    controller = running(world_size=1)
    controller.handle(ev.ReportReceived(1, 0, 1, {}, uploading=True), 1.0)
    warned = controller.handle(ev.UploadFailed(1, 0, 1, "report() raised Late"), 1.1)
    assert said(*warned) == "report 1 will not be committed, rank 0 failed it: report() raised Late"
    assert not records(controller.handle(ev.UploadFinished(1, 0, 1, FILES), 1.2))


def test_a_report_that_is_on_record_is_not_committed_again() -> None:
    controller = running(world_size=1)
    controller.handle(ev.ReportReceived(1, 0, 1, {"loss": 1}, uploading=True), 1.0)
    assert len(records(controller.handle(ev.UploadFinished(1, 0, 1, FILES), 1.1))) == 1
    controller.handle(ev.ReportReceived(1, 0, 1, {"loss": 2}, uploading=True), 1.2)
    assert not records(controller.handle(ev.UploadFinished(1, 0, 1, ()), 1.3))
    assert finished(finish(controller, 0)).metrics == {"loss": 1}


def test_peers_do_not_wait_in_a_hold_for_a_checkpoint_that_one_of_them_has_failed() -> None:
    controller = running()
    controller.handle(ev.NodesChanged((ev.NodeView("n0", True, draining=True, drain_deadline_s=99.0),)), 1.0)
    assert controller.state is State.HOLDING
    for rank in (0, 1):
        controller.handle(ev.HoldAnswered(1, rank, 0), 1.1)
    controller.handle(ev.ReportReceived(1, 1, 2, {}, uploading=True), 1.2)
    controller.handle(ev.HoldReached(1, 1, 2), 1.3)
    controller.handle(ev.UploadFinished(1, 1, 2, FILES), 1.3)
    controller.handle(ev.UploadFailed(1, 0, 2, "report() raised TypeError"), 1.4)
    told = controller.handle(ev.HoldReached(1, 0, 2), 1.4)
    assert ev.CancelHold(1, 1.4) in told
    # The node goes all the same: all are asked to stop once more.
    assert ev.BeginHold(1) in told and controller.state is State.HOLDING


def test_a_resize_whose_checkpoint_one_of_them_has_failed_is_given_up_and_the_attempt_goes_on() -> None:
    controller = _grown()
    for rank in (0, 1):
        controller.handle(ev.HoldAnswered(1, rank, 0), 5.1)
    controller.handle(ev.ReportReceived(1, 1, 2, {}, uploading=True), 5.2)
    controller.handle(ev.HoldReached(1, 1, 2), 5.2)
    controller.handle(ev.UploadFinished(1, 1, 2, FILES), 5.2)
    controller.handle(ev.UploadFailed(1, 0, 2, "report() raised TypeError"), 5.3)
    told = controller.handle(ev.HoldReached(1, 0, 2), 5.3)
    assert ev.CancelHold(1, 5.3) in told and controller.state is State.RUNNING


# ---- the last checkpoint


def test_a_last_checkpoint_whose_node_goes_is_named_in_the_result() -> None:
    controller = running()
    for rank in (0, 1):
        controller.handle(ev.ReportReceived(1, rank, 1, {}, uploading=rank == 0), 1.0)
    assert not records(finish(controller, 0, 1))
    commands = controller.handle(ev.AgentLost(100, "its connection broke"), 10.0)
    end = finished(commands)
    assert "the checkpoint of report 1 is not committed" in said(*commands)
    assert end.uncommitted == [Uncommitted(index=1, detail="the agent of rank 0 was lost while it uploaded its part")]
    assert controller.run.uncommitted == end.uncommitted


def test_a_last_checkpoint_that_is_refused_after_the_function_has_returned_is_named_in_the_result() -> None:
    controller = running(world_size=1)
    controller.handle(ev.ReportReceived(1, 0, 1, {}, uploading=True), 1.0)
    assert not records(finish(controller, 0))
    end = finished(controller.handle(ev.UploadFailed(1, 0, 1, "refused; the files lie in /x on 10.0.0.1"), 10.0))
    assert end.uncommitted == [Uncommitted(index=1, detail="rank 0: refused; the files lie in /x on 10.0.0.1")]


def test_a_run_that_has_committed_everything_names_nothing() -> None:
    controller = running(world_size=1)
    controller.handle(ev.ReportReceived(1, 0, 1, {}, uploading=True), 1.0)
    controller.handle(ev.UploadFinished(1, 0, 1, FILES), 1.1)
    # and handed nothing over
    controller.handle(ev.UploadFailed(1, 0, 2, "report() raised TypeError"), 1.2)
    assert finished(finish(controller, 0)).uncommitted == []


# ---- a function that cannot be loaded


def test_what_no_other_attempt_could_do_better_ends_the_run_at_once() -> None:
    controller = Controller(settings(bounds=Bounds(1, 1)), opened())
    controller.handle(ev.Begin(), 0.0)
    controller.handle(ev.UnitPlaced(1, ("n0",)), 0.1)
    controller.handle(ev.AgentReady(7, 1, "n0"), 0.2)
    controller.handle(ev.WorkerFailed(1, 0, "it cannot be loaded", error="Traceback", fatal=True), 0.4)
    assert controller.state is State.FAILED
    assert (controller.run.error or "").startswith("it cannot be loaded. No other attempt would fare better")
    assert controller.run.ended[-1].cause == "start_failed"


# ---- agents that do not start


def waiting(slots: dict[str, int], **changed: object) -> Controller:
    """Units are placed, none has an agent: so many on each node, in this order."""
    number = sum(slots.values())
    controller = Controller(settings(**{"bounds": Bounds(number, number), **changed}), opened())
    controller.handle(ev.Begin(), 0.0)
    controller.handle(ev.NodesChanged(tuple(ev.NodeView(node, alive=True) for node in slots)), 0.0)
    nodes = [node for node, count in slots.items() for _ in range(count)]
    for unit, node in enumerate(nodes, start=1):
        controller.handle(ev.UnitPlaced(unit, (node,)), 0.1)
    return controller


LIMITS = {"max_start_failures": 4}


def test_eight_slots_of_one_bad_node_do_not_end_a_run_while_others_still_start() -> None:
    controller = waiting({"bad": 8, "good": 24}, limits=LIMITS)
    for unit in range(1, 9):
        controller.handle(ev.AgentFailed(unit, "no disk"), 1.0)
    assert controller.state is State.WAITING


def test_a_node_that_starts_no_agents_is_avoided_for_a_while() -> None:
    controller = waiting({"bad": 2, "good": 2}, limits=LIMITS)
    for second in (1.0, 2.0):
        for unit in (1, 2):
            controller.handle(ev.AgentFailed(unit, "no disk"), second)
    commands = controller.handle(ev.AgentFailed(1, "no disk"), 3.0)
    assert [each.unit for each in commands if isinstance(each, ev.ReleaseUnit)] == [1, 2]
    assert [each.avoid for each in commands if isinstance(each, ev.RequestUnit)] == [("bad",)] * 2
    again = controller.handle(ev.TimerFired("quarantine"), 34.0)
    assert [each.avoid for each in again if isinstance(each, ev.RequestUnit)] == [()] * 2


def test_the_only_node_is_tried_on_and_avoided_as_soon_as_there_is_another() -> None:
    controller = waiting({"bad": 1}, limits={"max_start_failures": -1})
    for second in range(1, 6):
        controller.handle(ev.AgentFailed(1, "no disk"), float(second))
    assert not controller.capacity.resting
    controller.handle(ev.NodesChanged((ev.NodeView("bad", alive=True), ev.NodeView("good", alive=True))), 6.0)
    commands = controller.handle(ev.AgentFailed(1, "no disk"), 7.0)
    assert [each.avoid for each in commands if isinstance(each, ev.RequestUnit)] == [("bad",)]


def test_a_node_on_which_an_agent_works_is_not_avoided() -> None:
    controller = waiting({"n0": 2, "n1": 1}, limits={"max_start_failures": -1})
    controller.handle(ev.AgentReady(7, 1, "n0"), 0.5)
    for second in range(1, 9):
        controller.handle(ev.AgentFailed(2, "no disk"), float(second))
    assert not controller.capacity.resting


def test_a_cluster_on_which_nothing_starts_fails_the_run_and_says_so() -> None:
    controller = waiting({"n0": 2, "n1": 2}, limits=LIMITS)
    for second in range(1, 30):
        for unit in sorted(controller.capacity.units):
            if controller.state is State.WAITING:
                controller.handle(ev.UnitPlaced(unit, ("n0" if unit < 3 else "n1",)), float(second))
                controller.handle(ev.AgentFailed(unit, "cannot import 'nix'"), float(second))
    assert controller.state is State.FAILED
    assert "agents cannot be started, 5 times in a row; the last on node n" in (controller.run.error or "")
    assert "cannot import 'nix'" in (controller.run.error or "")
