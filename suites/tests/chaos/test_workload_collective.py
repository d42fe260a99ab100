"""The job's own allgather, between real processes: order, speed, a killed peer, a stranger at the door."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import socket
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from shaketable.chaos.workloads import collective
from shaketable.chaos.workloads.collective import Collective, join
from shaketable.clusters.protocol import LOOPBACK

fork = multiprocessing.get_context("fork")
Wires = list[Any]


def broadcast(rank: int, wires: Wires) -> Callable[[Any], Any]:
    def to_all(data: Any) -> Any:
        if rank == 0:
            for wire in wires[1:]:
                wire.put(data)
            return data
        return wires[rank].get(timeout=30)

    return to_all


def spawn(world_size: int, body: Callable[[Collective, Any], None]) -> tuple[list[Any], Any]:
    """Each rank a process of its own that runs `body` in the joined group; results come over the queue."""
    wires, results = [fork.Queue() for _ in range(world_size)], fork.Queue()

    def main(rank: int) -> None:
        with join(rank, world_size, broadcast(rank, wires), LOOPBACK) as group:
            body(group, results)

    processes = [fork.Process(target=main, args=(rank,), daemon=True) for rank in range(world_size)]
    for process in processes:
        process.start()
    return processes, results


def end(processes: list[Any]) -> None:
    for process in processes:
        process.join(30)
        assert not process.is_alive()


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_everybody_gets_everybodys_message_by_rank(world_size: int) -> None:
    def body(group: Collective, results: Any) -> None:
        got: list[bytes] = []
        for number in range(5):
            got = group.allgather(f"{group.rank}:{number}".encode() * (number * group.rank))
        results.put((group.rank, got))

    processes, results = spawn(world_size, body)
    got = dict(results.get(timeout=30) for _ in range(world_size))
    expected = [f"{rank}:4".encode() * (4 * rank) for rank in range(world_size)]
    assert got == dict.fromkeys(range(world_size), expected)
    end(processes)


def test_a_large_message_passes_whole() -> None:
    def body(group: Collective, results: Any) -> None:
        results.put([len(part) for part in group.allgather(b"x" * 3_000_000)])

    processes, results = spawn(3, body)
    assert [results.get(timeout=30) for _ in range(3)] == [[3_000_000] * 3] * 3
    end(processes)


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_peer_makes_the_others_raise_promptly(victim: int) -> None:
    def body(group: Collective, results: Any) -> None:
        try:
            for number in range(10**9):
                if number == 50 and group.rank == victim:
                    os.kill(os.getpid(), signal.SIGKILL)
                group.allgather(b"x")
        except ConnectionError:
            results.put(group.rank)

    processes, results = spawn(4, body)
    began_s = time.monotonic()
    assert sorted(results.get(timeout=30) for _ in range(3)) == sorted({0, 1, 2, 3} - {victim})
    assert time.monotonic() - began_s < 10
    end(processes)


def test_an_allgather_of_four_takes_a_fraction_of_a_millisecond() -> None:
    def body(group: Collective, results: Any) -> None:
        times = []
        for _ in range(500):
            began_s = time.perf_counter()
            group.allgather(b"x" * 64)
            times.append(time.perf_counter() - began_s)
        if group.rank == 0:
            results.put(statistics.median(times))

    processes, results = spawn(4, body)
    # 0.2 ms when nothing else runs; finds Nagle and polling, not load
    assert results.get(timeout=30) < 0.01
    end(processes)


def serve(world_size: int) -> tuple[queue.Queue[Any], threading.Thread, list[Any]]:
    """Rank 0 in a thread; its address, and what came of it."""
    told: queue.Queue[Any] = queue.Queue()
    ends: list[Any] = []

    def tell(data: Any) -> Any:
        told.put(data)
        return data

    def main() -> None:
        try:
            ends.append(join(0, world_size, tell, LOOPBACK))
        except ConnectionError as error:
            ends.append(error)

    thread = threading.Thread(target=main, daemon=True)
    thread.start()
    return told, thread, ends


def test_strangers_at_the_door_neither_join_nor_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective, "HANDSHAKE_WITHIN_S", 0.2)
    told, thread, ends = serve(2)
    address = told.get(timeout=10)
    silent = socket.create_connection((address["host"], address["port"]))
    liar = socket.create_connection((address["host"], address["port"]))
    liar.sendall(b"\0" * 52)
    peer = join(1, 2, lambda _: address, LOOPBACK)
    thread.join(10)
    answers: list[list[bytes]] = []
    other = threading.Thread(target=lambda: answers.append(peer.allgather(b"b")))
    other.start()
    assert ends[0].allgather(b"a") == [b"a", b"b"]
    other.join(10)
    assert answers == [[b"a", b"b"]]
    for connection in (silent, liar):
        connection.close()
    ends[0].close()
    peer.close()


def test_a_peer_with_the_secret_of_another_attempt_is_not_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective, "JOIN_WITHIN_S", 0.5)
    told, thread, ends = serve(2)
    address = {**told.get(timeout=10), "secret": "of an older attempt"}
    with pytest.raises(ConnectionError, match="rank 1 cannot join"):
        join(1, 2, lambda _: address, LOOPBACK)
    thread.join(10)
    assert isinstance(ends[0], ConnectionError)


def test_rank_zero_names_who_came_when_somebody_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective, "JOIN_WITHIN_S", 0.3)
    _, thread, ends = serve(3)
    thread.join(10)
    assert "only ranks [] joined" in str(ends[0])


def test_a_peer_that_is_silent_is_a_connection_error_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    told, thread, ends = serve(2)
    address = told.get(timeout=10)
    with join(1, 2, lambda _: address, LOOPBACK):
        thread.join(10)
        monkeypatch.setattr(collective, "GATHER_WITHIN_S", 0.2)
        with pytest.raises(ConnectionError):
            ends[0].allgather(b"a")


def test_a_message_changed_on_its_way_is_refused() -> None:
    left, right = socket.socketpair()
    hub = collective.Channel(left, b"k" * 32, hub=True)
    peer = collective.Channel(right, b"K" * 32, hub=False)
    peer.send(b"hello")
    with pytest.raises(ConnectionError, match="did not send"):
        hub.receive()
    left.close()
    right.close()
