"""The driver's loop by itself, without a cluster."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, patch

import pytest

from shaketable.runtime.agent.loop import AgentSpec
from shaketable.runtime.config import RunConfig, ScalingConfig
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.settings import Settings
from shaketable.runtime.driver.executor import Executor, Job, _Call
from shaketable.runtime.driver.placement import Nodes, Placement, Silence
from shaketable.runtime.driver.ray_placement import RayNodes, RayPlacement, _Lease
from shaketable.runtime.log.run_log import open_run
from shaketable.suites.tests.rigs.log_examples import CONFIGURATION


def executor_in(directory: Path) -> Executor:
    log, _ = open_run(directory / "run", CONFIGURATION)
    config = RunConfig(name="run", storage_path=str(directory))
    settings = Settings(config, ScalingConfig(num_workers=2), 1)
    executor = Executor(Job(b"", (), {}, ()), config, settings, log, RayNodes())
    # as if its loop had begun
    executor._placement = Mock(spec=Placement, silence=Silence)
    return executor


@pytest.mark.parametrize("another", [True, False])
def test_a_driver_that_goes_on_looks_for_a_newer_one_before_it_hears_anybody(tmp_path: Path, another: bool) -> None:
    """Protocols 2.1: what it hears first may have it command agents that another driver has by now."""
    executor = executor_in(tmp_path)
    executor._placement = RayPlacement(executor._post, AgentSpec("127.0.0.1", 1, b"", 0, 0), {"CPU": 1.0})
    executor._feed(ev.Begin())
    heard: list[str] = []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        executor._selector.register(ours, selectors.EVENT_READ, lambda: heard.append("an agent"))
        theirs.send(b"x")
        executor._post(_Call(lambda: heard.append("its log")))
        if another:
            open_run(tmp_path / "run", CONFIGURATION)
        executor._last_turn_s -= 10 * executor._config.fence_check_s
        executor._turn()
    if another:
        assert executor._outcome is not None and executor._outcome.outcome == "fenced"
        assert heard == []
    else:
        assert executor._outcome is None
        assert heard == ["an agent", "its log"]


@pytest.mark.parametrize("another", [True, False])
def test_a_driver_whose_placement_takes_long_to_start_begins_all_the_same(tmp_path: Path, another: bool) -> None:
    executor = executor_in(tmp_path)

    def start_slowly(_: object) -> None:
        if another:
            open_run(tmp_path / "run", CONFIGURATION)
        executor._last_turn_s -= 10 * executor._config.fence_check_s
        executor._post(ev.Interrupted(signal.SIGTERM))

    placement = Mock(spec=Placement, start=start_slowly)
    executor._nodes = Mock(spec=Nodes, host=lambda: "127.0.0.1", placement=lambda _: placement)
    assert executor.run().outcome == ("fenced" if another else "interrupted")


@pytest.mark.parametrize("away", [True, False])
def test_nodes_that_go_while_the_head_has_been_away_for_long_are_the_cluster_that_is_lost(
    tmp_path: Path, away: bool
) -> None:
    """kuberay#2153: a head that is gone takes all nodes with it a minute later, which is nobody's failure."""
    executor = executor_in(tmp_path)
    executor._placement = Mock(spec=Placement, silence=lambda: Silence(30.0, away=away, why="the head is away"))
    executor._feed(ev.Begin())
    executor._timers = {"look": time.monotonic() - 1.0}
    fed: list[ev.Event] = []
    with patch.object(executor, "_feed", fed.append):
        executor._fire_timers(time.monotonic())
    why = [event for event in fed if isinstance(event, ev.Interrupted)]
    assert [event.detail for event in why] == (["the head is away"] if away else [])
    assert fed[-1] == ev.TimerFired("look")


def test_nobody_is_charged_for_a_lost_node_while_the_head_does_not_answer(tmp_path: Path) -> None:
    """A suspended RayJob: the head goes, and the pods half a minute later, one by one."""
    executor, now = executor_in(tmp_path), time.monotonic()
    executor._feed(ev.Begin())
    fed: list[ev.Event] = []
    for silence, wanted in ((Silence(20.0, unheard=True), []), (Silence(), [ev.TimerFired("look")])):
        executor._placement = Mock(spec=Placement, silence=lambda silence=silence: silence)
        executor._timers = {"look": now - 1.0}
        with patch.object(executor, "_feed", fed.append):
            executor._fire_timers(now)
        assert fed == wanted
        assert ("look" in executor._timers) == (not wanted)


def test_a_driver_whose_cluster_is_gone_ends_as_interrupted_before_ray_ends_it(tmp_path: Path) -> None:
    executor = executor_in(tmp_path)
    executor._placement = Mock(spec=Placement, silence=lambda: Silence(52.0, gone=True, why="the head is away"))
    executor._feed(ev.Begin())
    executor._turn()
    executor._peers._last_beat_s -= 10.0
    executor._turn()
    executor._turn()
    assert str(executor.controller.state) == "INTERRUPTED"


def test_what_waits_is_given_back_before_what_is_had() -> None:
    """Else Ray gives it what has just come free, and never frees that again."""
    placement = RayPlacement(lambda event: None, AgentSpec("127.0.0.1", 1, b"", 0, 0), {"CPU": 1.0})
    placement._leases = {unit: _Lease(None, 0.0, placed=unit != 2) for unit in (1, 2, 3)}
    assert placement._units() == [2, 1, 3]


def test_who_asks_ray_and_waits_is_silent_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = RayPlacement(lambda event: None, AgentSpec("127.0.0.1", 1, b"", 0, 0), {"CPU": 1.0})
    assert placement.silence() == Silence()
    seen: list[Silence] = []
    placement._do(lambda: seen.append(placement.silence()))
    assert placement.silence() == Silence() and not seen[0].gone
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "20")
    placement._busy_s = time.monotonic() - 11.0
    assert not placement.silence().away
    placement._busy_s = time.monotonic() - 15.0
    assert (
        placement.silence().away and placement.silence().gone and "has not answered for 15 s" in placement.silence().why
    )


def test_time_in_which_the_driver_stood_still_is_no_silence_of_ray(tmp_path: Path) -> None:
    """A driver that was stopped in the middle of a call into Ray, for longer than Ray waits for its head."""
    executor = executor_in(tmp_path)
    placement = RayPlacement(executor._post, AgentSpec("127.0.0.1", 1, b"", 0, 0), {"CPU": 1.0})
    executor._placement = placement
    executor._feed(ev.Begin())
    placement._busy_s = time.monotonic() - 300.0
    executor._last_turn_s -= 300.0
    executor._peers._last_beat_s -= 300.0
    executor._turn()
    assert executor._outcome is None and not executor._gone
    assert placement.silence().seconds < 20.0


def test_a_hold_that_a_slow_record_made_longer_is_no_hanging_of_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = executor_in(tmp_path)
    fed: list[ev.Event] = []
    monkeypatch.setattr(executor, "controller", SimpleNamespace(attempt=SimpleNamespace(number=2)))
    monkeypatch.setattr(executor, "_feed", fed.append)
    for attempt in (1, 2):
        executor._execute(ev.CancelHold(attempt, time.monotonic() - 7.0))
        call = executor._queue.get_nowait()
        assert isinstance(call, _Call)
        call.call()
    (pause,) = fed
    assert isinstance(pause, ev.LoopPaused) and not pause.silent
    assert pause.seconds == pytest.approx(7.0, abs=5.0)


def test_a_driver_whose_output_nobody_reads_any_more_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = executor_in(tmp_path)
    read, write = os.pipe()
    os.close(read)
    nowhere = os.fdopen(write, "w")
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", nowhere)
        executor._warn("a warning")
    with contextlib.suppress(BrokenPipeError):
        nowhere.close()
