"""What events survives: kills, forks, a full queue, a harness that is gone; and whom the harness listens
to."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shaketable.chaos.history.events import (
    AnyEvent,
    FaultHealed,
    Healed,
    StateChanged,
    Stepped,
    TermBegan,
    encode,
    read_events,
)
from shaketable.chaos.history.handshake import MAX_LINE_BYTES, hello
from shaketable.chaos.history.witness import Collector, CollectorError, Witness, WitnessConfig

NOBODY = WitnessConfig(directory="", host="127.0.0.1", port=9, secret="s")


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    collector = Collector(tmp_path / "witness")
    yield collector
    collector.close()


def state(text: str) -> StateChanged:
    return StateChanged(term=1, state=text)


def states(events: list[AnyEvent]) -> list[str]:
    return [event.state for event in events if isinstance(event, StateChanged)]


def config(directory: Path) -> WitnessConfig:
    return WitnessConfig(str(directory), NOBODY.host, NOBODY.port, NOBODY.secret)


def test_an_event_reaches_the_harness_and_the_file_with_writer_and_number(collector: Collector) -> None:
    witness = Witness(collector.config, "worker")
    witness.emit(state("a"))
    witness.emit(state("b"))
    heard = collector.wait_for(lambda e: True, nth=2, timeout_s=5, name="second event")
    assert heard is not None
    assert (heard.writer, heard.seq) == (witness.writer, 1)
    path = Path(collector.config.directory) / f"{witness.writer}.jsonl"
    assert states(read_events(path)) == ["a", "b"]


def test_the_configuration_travels_as_text(collector: Collector) -> None:
    assert WitnessConfig.load(collector.config.dump()) == collector.config


def test_what_nobody_hears_is_still_in_the_file(tmp_path: Path) -> None:
    witness = Witness(config(tmp_path), "worker")
    witness.emit(state("a"))
    witness.close()
    assert states(read_events(tmp_path / f"{witness.writer}.jsonl")) == ["a"]


def test_recording_after_close_is_silently_ignored(collector: Collector) -> None:
    witness = Witness(collector.config, "worker")
    witness.close()
    witness.emit(state("late"))
    assert collector.finish() == []


def test_a_witness_used_after_a_fork_goes_on_as_a_new_writer(collector: Collector) -> None:
    witness = Witness(collector.config, "worker")
    witness.emit(state("parent"))
    pid = os.fork()
    if pid == 0:
        witness.emit(state("child"))
        witness.emit(state("child again"))
        os._exit(0)
    os.waitpid(pid, 0)
    witness.emit(state("parent again"))
    assert collector.wait_for(lambda e: True, nth=4, timeout_s=5, name="all four") is not None
    events = collector.finish()
    assert [e.seq for e in events if f"-{pid}-" in e.writer] == [0, 1]
    assert [e.seq for e in events if e.writer == witness.writer] == [0, 1]
    assert len(events) == 4


def test_a_fork_while_another_thread_records_does_not_deadlock_the_child(collector: Collector) -> None:
    witness = Witness(collector.config, "worker")
    stop = threading.Event()

    def chatter() -> None:
        while not stop.is_set():
            witness.emit(state("x"))

    thread = threading.Thread(target=chatter)
    thread.start()
    try:
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                # the kernel ends a child that deadlocks
                signal.alarm(5)
                witness.emit(state("child"))
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        stop.set()
        thread.join(5)


KILLED = """
import sys
from shaketable.chaos.history.events import StateChanged
from shaketable.chaos.history.witness import Witness, WitnessConfig
witness = Witness(WitnessConfig.load(sys.argv[1]), "victim")
for number in range(10**9):
    witness.emit(StateChanged(term=number, state="x" * (number % 2000)))
"""


def test_a_writer_killed_at_any_byte_leaves_a_readable_history_without_gaps(collector: Collector) -> None:
    victim = subprocess.Popen([sys.executable, "-c", KILLED, collector.config.dump()])
    assert collector.wait_for(lambda e: True, nth=500, timeout_s=20, name="500 events") is not None
    victim.kill()
    victim.wait()
    events = collector.finish()
    assert [e.term for e in events if isinstance(e, StateChanged)] == list(range(len(events)))
    assert len(events) >= 500


def test_a_torn_last_line_in_a_file_is_dropped(collector: Collector) -> None:
    witness = Witness(collector.config, "worker")
    witness.emit(state("whole"))
    path = Path(collector.config.directory) / f"{witness.writer}.jsonl"
    with path.open("ab") as file:
        file.write(encode(state("torn"))[:-9])
    assert states(collector.finish()) == ["whole"]


def connect(collector: Collector, first: bytes) -> socket.socket:
    peer = socket.create_connection((collector.config.host, collector.config.port), timeout=5)
    peer.sendall(first)
    return peer


def closed_by_harness(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_peer_without_the_secret_is_refused_and_noted(collector: Collector) -> None:
    peer = connect(collector, hello("wrong", "worker-1-aa") + encode(state("forged")))
    assert closed_by_harness(peer)
    assert collector.snapshot() == []
    assert collector.rejected == ["an unknown peer did not know the secret"]


def test_a_peer_that_speaks_for_another_writer_is_refused(collector: Collector) -> None:
    forged = encode(StateChanged(writer="worker-2-bb", term=1, state="forged"))
    peer = connect(collector, hello(collector.config.secret, "worker-1-aa") + forged)
    assert closed_by_harness(peer)
    assert collector.snapshot() == []
    assert collector.rejected == ["worker-1-aa spoke for 'worker-2-bb'"]


def test_nobody_may_speak_as_the_harness(collector: Collector) -> None:
    assert closed_by_harness(connect(collector, hello(collector.config.secret, "harness")))


@pytest.mark.parametrize("content", [b"\x80\x04K\x01.\n", b'{"kind": "nonsense"}\n', b"x" * (MAX_LINE_BYTES + 9)])
def test_what_is_no_event_or_too_long_closes_the_connection(collector: Collector, content: bytes) -> None:
    peer = connect(collector, hello(collector.config.secret, "worker-1-aa"))
    with contextlib.suppress(ConnectionError):
        peer.sendall(content)
    assert closed_by_harness(peer)
    assert len(collector.rejected) == 1


def test_an_endless_first_line_is_not_read_on(collector: Collector) -> None:
    assert closed_by_harness(connect(collector, b"x" * 5000))


def stepped(metrics: dict[str, object]) -> Stepped:
    return Stepped(term=1, attempt=1, rank=0, step=1, world_size=1, metrics=metrics)


@pytest.mark.parametrize("value", [object(), "x" * (MAX_LINE_BYTES + 1), {1: {2, 3}}, ["y"] * MAX_LINE_BYTES])
def test_metrics_that_do_not_fit_on_a_line_are_cut_down_not_lost(tmp_path: Path, value: object) -> None:
    witness = Witness(config(tmp_path), "worker")
    witness.emit(stepped({"step": 1, "thing": value}))
    (event,) = read_events(tmp_path / f"{witness.writer}.jsonl")
    assert isinstance(event, Stepped)
    assert event.metrics is not None
    assert event.metrics["step"] == 1
    assert len(str(event.metrics["thing"])) <= 200


def test_a_role_that_is_no_file_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="witness name"):
        Witness(config(tmp_path), "../evil")


def test_waiting_sees_past_events_and_counts_them(collector: Collector) -> None:
    for text in ("a", "b", "a"):
        collector.emit(state(text))
    second = collector.wait_for(
        lambda e: isinstance(e, StateChanged) and e.state == "a", nth=2, timeout_s=5, name="second a"
    )
    assert second is not None
    assert second.seq == 2


def test_waiting_wakes_at_once_and_gives_up_at_its_deadline(collector: Collector) -> None:
    timer = threading.Timer(0.2, lambda: collector.emit(Healed()))
    timer.start()
    began_s = time.monotonic()
    assert collector.wait_for(lambda e: isinstance(e, Healed), timeout_s=30, name="healed") is not None
    assert time.monotonic() - began_s < 20
    assert collector.wait_for(lambda e: False, timeout_s=0.05, name="never") is None


def test_subscribers_get_later_events_in_order_on_one_thread_until_they_leave(collector: Collector) -> None:
    collector.emit(state("before"))
    got: list[AnyEvent] = []
    threads: set[int] = set()
    full = threading.Event()

    def callback(event: AnyEvent) -> None:
        got.append(event)
        threads.add(threading.get_ident())
        if len(got) == 3:
            full.set()

    leave = collector.subscribe(callback)
    for text in ("a", "b", "c"):
        collector.emit(state(text))
    assert full.wait(5)
    leave()
    collector.emit(state("after"))
    collector.finish()
    assert states(got) == ["a", "b", "c"]
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_a_subscriber_may_record_and_unsubscribe_from_its_callback(collector: Collector) -> None:
    def callback(event: AnyEvent) -> None:
        leave()
        collector.emit(FaultHealed(fault=0, name="x"))

    leave = collector.subscribe(callback)
    collector.emit(state("go"))
    healed = collector.wait_for(lambda e: isinstance(e, FaultHealed), timeout_s=5, name="answer")
    assert healed is not None


def test_an_error_in_a_callback_comes_out_of_the_harness(collector: Collector) -> None:
    def callback(event: AnyEvent) -> None:
        raise RuntimeError("boom")

    collector.subscribe(callback)
    collector.emit(state("go"))
    with pytest.raises(CollectorError, match="boom"):
        collector.wait_for(lambda e: False, timeout_s=5, name="never")
    with pytest.raises(CollectorError, match="boom"):
        collector.finish()


def test_finish_merges_files_and_stream_without_doubles_and_writes_the_history(
    collector: Collector, tmp_path: Path
) -> None:
    collector.emit(TermBegan(term=1, spent={}))
    heard = Witness(collector.config, "worker")
    heard.emit(state("heard"))
    unheard = Witness(config(Path(collector.config.directory)), "worker")
    unheard.emit(state("unheard"))
    assert collector.wait_for(lambda e: e.writer == heard.writer, timeout_s=5, name="worker") is not None
    events = collector.finish()
    assert states(events) == ["heard", "unheard"]
    assert len(events) == 3
    assert read_events(tmp_path / "history.jsonl") == events


def test_what_was_sent_before_the_end_is_heard_though_its_file_is_lost(collector: Collector) -> None:
    witness = Witness(collector.config, "worker")
    for number in range(1000):
        witness.emit(state(str(number)))
    witness.close()
    (Path(collector.config.directory) / f"{witness.writer}.jsonl").unlink()
    assert states(collector.finish()) == [str(number) for number in range(1000)]


def test_the_collector_takes_no_events_after_the_end(collector: Collector) -> None:
    collector.finish()
    with pytest.raises(CollectorError, match="closed"):
        collector.emit(Healed())


def test_a_harness_that_does_not_read_costs_the_witness_no_time(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        witness = Witness(WitnessConfig(str(tmp_path), "127.0.0.1", port, "s"), "worker")
        began_s = time.monotonic()
        for _ in range(200):
            # 20 MB: more than any socket buffer takes
            witness.emit(state("x" * 100_000))
        assert time.monotonic() - began_s < 20
    assert len(read_events(tmp_path / f"{witness.writer}.jsonl")) == 200
