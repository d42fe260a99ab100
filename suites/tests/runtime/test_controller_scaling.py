"""What an event costs does not depend on how many hosts, ranks or records there are. Processor time is compared as a
ratio between a size and sixteen times that size: 16 is linear, 256 is quadratic, and 64 lies halfway between them. A
busy machine can spoil a measurement, so one of several has to be good; what is quadratic has no good one. (Many hosts,
because copying a set of a thousand ranks is still quick.)"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

import pytest

from shaketable.runtime.controller import Controller, State
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.capacity import Capacity
from shaketable.runtime.controller.scaling import Bounds, decide_growth, decide_start
from shaketable.runtime.log import records as rec
from shaketable.runtime.log.run_state import RunState, apply
from shaketable.runtime.storage.file import File
from shaketable.suites.tests.rigs.controller_world import AT_ONCE, opened, settings
from shaketable.suites.tests.rigs.log_examples import committed, started

FEW, MANY = 256, 4096
MEASUREMENTS = 8
# what comes before the last `yield` is not measured, nor is what follows it
Story = Callable[[int], Iterator[None]]


def seconds(story: Story, hosts: int) -> float:
    """Processor time between the story's two yields."""
    chapters = story(hosts)
    next(chapters)
    gc.collect()
    before = time.process_time()
    next(chapters)
    spent = time.process_time() - before
    assert next(chapters, "end") == "end"
    return spent


def growth(story: Story, accepted: float) -> float:
    """How many times what `FEW` cost `MANY` cost: the first ratio below `accepted`, or the last of several. Of `FEW` it
    is the least of three, which is the one that nothing disturbed; `MANY` take long and are asked once."""
    ratio = 0.0
    for _ in range(MEASUREMENTS):
        ratio = seconds(story, MANY) / min(seconds(story, FEW) for _ in range(3))
        if ratio < accepted:
            break
    return ratio


def running(hosts: int, agents_per_unit: int = 1, most: int | None = None) -> Controller:
    """Every host is a rank that has entered; `most`: max, if more are wanted."""
    controller = starting(hosts, agents_per_unit, most)
    for rank in range(hosts):
        controller.handle(ev.WorkerEntered(1, rank), 1.3)
    assert controller.state is State.RUNNING
    return controller


def starting(hosts: int, agents_per_unit: int = 1, most: int | None = None) -> Controller:
    bounds = Bounds(hosts, most or hosts)
    controller = Controller(settings(bounds=bounds, agents_per_unit=agents_per_unit, start_settle_s=AT_ONCE), opened())
    controller.handle(ev.Begin(), 0.0)
    warm(controller, range(hosts), agents_per_unit, 0.1)
    if controller.state is State.WAITING:
        controller.handle(ev.TimerFired("settle"), 1.2)
    return controller


def warm(controller: Controller, hosts: range, agents_per_unit: int, now: float) -> None:
    for host in hosts[::agents_per_unit]:
        nodes = tuple(f"n{node}" for node in range(host, host + agents_per_unit))
        controller.handle(ev.UnitPlaced(host // agents_per_unit + 1, nodes), now)
    for host in hosts:
        controller.handle(ev.AgentReady(host, host // agents_per_unit + 1, f"n{host}"), now)


def view(hosts: int, draining: range = range(0), dead: range = range(0)) -> ev.NodesChanged:
    return ev.NodesChanged(
        tuple(ev.NodeView(f"n{k}", alive=k not in dead, draining=k in draining) for k in range(hosts))
    )


def report(controller: Controller, hosts: int, index: int, *, uploaded: bool) -> None:
    """Rank 0 has a checkpoint, which with `uploaded` is in at once and then waits for the others to pass."""
    for rank in range(hosts):
        controller.handle(ev.ReportReceived(1, rank, index, {}, uploading=rank == 0), 2.0)
        if uploaded and rank == 0:
            controller.handle(ev.UploadFinished(1, 0, index, ()), 2.0)


# ---- the life of an attempt, piece by piece


def single_hosts_get_ready(hosts: int) -> Iterator[None]:
    yield
    assert starting(hosts).state is State.STARTING
    yield


def slices_get_ready(hosts: int) -> Iterator[None]:
    yield
    assert starting(hosts, agents_per_unit=16).state is State.STARTING
    yield


def an_elastic_run_waits_for_more(hosts: int) -> Iterator[None]:
    """Min is there at once; with every further agent it is considered whether to start."""
    controller = Controller(settings(bounds=Bounds(1, hosts)), opened())
    yield
    controller.handle(ev.Begin(), 0.0)
    warm(controller, range(hosts), 1, 0.1)
    yield
    assert controller.attempt is not None and controller.attempt.world_size == hosts


def ranks_enter(hosts: int) -> Iterator[None]:
    controller = starting(hosts)
    yield
    for rank in range(hosts):
        controller.handle(ev.WorkerEntered(1, rank), 1.0)
    yield
    assert controller.state is State.RUNNING


def ranks_report(hosts: int) -> Iterator[None]:
    controller = running(hosts)
    yield
    for index in (1, 2, 3):
        report(controller, hosts, index, uploaded=True)
    yield
    assert controller.run.latest is not None and controller.run.latest.index == 3


def ranks_upload(hosts: int) -> Iterator[None]:
    controller = running(hosts)
    yield
    for rank in range(hosts):
        controller.handle(ev.ReportReceived(1, rank, 1, {}, uploading=True), 2.0)
    for rank in range(hosts):
        file = File(path=f"shard-{rank}", size=1, checksum="")
        controller.handle(ev.UploadFinished(1, rank, 1, (file,)), 2.0)
    yield
    assert controller.run.latest is not None and len(controller.run.latest.files) == hosts


def ranks_hold_and_stop(hosts: int) -> Iterator[None]:
    controller = running(hosts)
    yield
    controller.handle(view(hosts, draining=range(1)), 2.0)
    for rank in range(hosts):
        controller.handle(ev.HoldAnswered(1, rank, 7), 2.0)
    report(controller, hosts, 9, uploaded=False)
    for rank in range(hosts):
        controller.handle(ev.HoldReached(1, rank, 9), 2.0)
    controller.handle(ev.UploadFinished(1, 0, 9, ()), 2.0)
    for rank in range(hosts):
        controller.handle(ev.WorkersStopped(1, rank), 2.0)
    yield
    assert controller.run.ended[-1].cause == "preempted"


def ranks_finish(hosts: int) -> Iterator[None]:
    controller = running(hosts)
    yield
    for rank in range(hosts):
        controller.handle(ev.WorkerFinished(1, rank), 2.0)
        controller.handle(ev.WorkersStopped(1, rank), 2.0)
    yield
    assert controller.state is State.FINISHED


def ranks_fail(hosts: int) -> Iterator[None]:
    controller = running(hosts)
    yield
    for rank in range(hosts):
        controller.handle(ev.WorkerFailed(1, rank, "reset", "ConnectionError", collateral=True), 2.0)
    yield
    controller.handle(ev.TimerFired("collateral"), 3.0)
    assert controller.run.ended[-1].cause == "worker_error"


# ---- hosts that come and go


def new_hosts_come_while_it_runs(hosts: int) -> Iterator[None]:
    """With every one of them it is considered whether to grow."""
    controller = running(hosts, most=2 * hosts)
    yield
    # before the resize interval has passed
    warm(controller, range(hosts, 2 * hosts), 1, 1.5)
    yield
    assert ev.BeginHold(1) in controller.handle(ev.TimerFired("resize"), 9.0)


def new_hosts_come_while_half_of_the_old_are_draining(hosts: int) -> Iterator[None]:
    controller = running(hosts, most=2 * hosts)
    yield
    controller.handle(view(hosts, draining=range(hosts // 2)), 1.5)
    warm(controller, range(hosts, 2 * hosts), 1, 1.5)
    yield
    assert controller.state is State.HOLDING


def all_hosts_are_lost_and_buried(hosts: int) -> Iterator[None]:
    controller = running(hosts)
    yield
    for host in range(hosts):
        controller.handle(ev.AgentLost(host, "broke"), 2.0)
    controller.handle(view(hosts, dead=range(hosts)), 15.0)
    yield
    assert controller.run.ended[-1].cause == "node_lost"
    assert not controller.capacity.owner(0)


def ray_sees_all_hosts_dead(hosts: int) -> Iterator[None]:
    controller = running(hosts, agents_per_unit=16)
    yield
    controller.handle(view(hosts, draining=range(hosts // 2)), 2.0)
    controller.handle(view(hosts, dead=range(hosts)), 15.0)
    yield
    assert controller.run.ended[-1].cause == "preempted"
    assert not controller.capacity.owner(0)


def the_hosts_of_one_great_slice_come_and_go(hosts: int) -> Iterator[None]:
    yield
    controller = running(hosts, agents_per_unit=hosts)
    for host in range(hosts):
        controller.handle(ev.AgentLost(host, "silent"), 2.0)
    controller.handle(view(hosts, dead=range(1)), 15.0)
    yield
    assert controller.run.ended[-1].cause == "node_lost"
    assert 1 not in controller.capacity.units


def all_hosts_are_lost_and_answer_again(hosts: int) -> Iterator[None]:
    """Each that comes back makes one request for another too many."""
    controller = running(hosts)
    yield
    for host in range(hosts):
        controller.handle(ev.AgentLost(host, "silent"), 2.0)
    controller.handle(ev.TimerFired("look"), 4.0)
    for host in range(hosts):
        controller.handle(ev.AgentReady(hosts + host, host + 1, f"n{host}"), 4.0)
    yield
    assert controller.state is State.STARTING
    assert len(controller.capacity.units) == hosts


STORIES = (
    single_hosts_get_ready,
    slices_get_ready,
    an_elastic_run_waits_for_more,
    ranks_enter,
    ranks_report,
    ranks_upload,
    ranks_hold_and_stop,
    ranks_finish,
    ranks_fail,
    new_hosts_come_while_it_runs,
    new_hosts_come_while_half_of_the_old_are_draining,
    all_hosts_are_lost_and_buried,
    ray_sees_all_hosts_dead,
    the_hosts_of_one_great_slice_come_and_go,
    all_hosts_are_lost_and_answer_again,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_sixteen_times_the_hosts_cost_about_sixteen_times_as_much(story: Story) -> None:
    ratio = growth(story, accepted=64)
    assert ratio < 64, f"{MANY} hosts cost {ratio:.1f} times what {FEW} cost"


# ---- a single decision, a single record


def some_usable(hosts: int) -> Capacity:
    capacity = Capacity()
    for number in range(hosts):
        capacity.requested(number, 0.0)
        capacity.placed(number, (f"n{number}",), 0.0)
        if number % 2:
            capacity.warmed(number, number, f"n{number}", 0.0)
    return capacity


def start_is_put_off(hosts: int) -> Iterator[None]:
    capacity, bounds = some_usable(hosts), Bounds(1, hosts)
    yield
    for _ in range(200):
        assert not decide_start(capacity, bounds, 1.0, enough_since_s=0.5, settle_s=9.0).units
    yield


def growth_is_put_off(hosts: int) -> Iterator[None]:
    capacity, bounds = some_usable(hosts), Bounds(1, hosts)
    yield
    for _ in range(200):
        assert not decide_growth(capacity, bounds, 1.0, world_size=1, due_s=0.0, settle_s=9.0).units
    yield


def a_run_with_a_long_history_goes_on(records: int) -> Iterator[None]:
    state = apply(apply(RunState(), rec.Opened(term=1, configuration={})), started(1))
    for index in range(1, records):
        state = apply(state, committed(index))
    yield
    for index in range(records, records + 500):
        state = apply(state, committed(index))
    yield
    assert len(state.commits) == records + 499


@pytest.mark.parametrize("story", [start_is_put_off, growth_is_put_off, a_run_with_a_long_history_goes_on])
def test_sixteen_times_as_much_of_everything_costs_one_decision_nothing(story: Story) -> None:
    ratio = growth(story, accepted=4)
    assert ratio < 4, f"{MANY} cost {ratio:.1f} times what {FEW} cost"
