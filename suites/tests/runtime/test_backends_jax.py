"""What a worker of JaxTrainer finds in its environment, attempt by attempt."""

from __future__ import annotations

import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from shaketable.runtime.backends import jax as backend
from shaketable.runtime.backends.jax import Coordination, JaxBackend, await_coordinator, with_slices

AT = Coordination("10.0.0.1", 4000, 4001)
STALE = {
    "MEGASCALE_COORDINATOR_ADDRESS": "gone",
    "MEGASCALE_PORT": "8081",
    "MEGASCALE_NUM_SLICES": "3",
    "MEGASCALE_SLICE_ID": "2",
    "MEGASCALE_TRANSPORT_TYPE": "grpc",
    "TPU_NAME": "a",
    "TPU_WORKER_ID": "1",
}
HOST = {"TPU_NAME": "a", "TPU_WORKER_ID": "1"}


def found(rank: int, world_size: int, workers_per_slice: int) -> dict[str, str]:
    environment = dict(STALE)
    with_slices(environment, AT, rank, world_size, workers_per_slice)
    return environment


@pytest.mark.parametrize(("rank", "slice_id"), [(0, "0"), (3, "0"), (4, "1"), (7, "1")])
def test_workers_of_several_slices_are_told_of_this_attempt_and_of_nothing_else(rank: int, slice_id: str) -> None:
    assert found(rank, 8, 4) == HOST | {
        "MEGASCALE_COORDINATOR_ADDRESS": "10.0.0.1",
        "MEGASCALE_PORT": "4001",
        "MEGASCALE_NUM_SLICES": "2",
        "MEGASCALE_SLICE_ID": slice_id,
    }


@pytest.mark.parametrize(("world_size", "workers_per_slice"), [(4, 4), (3, 0)])
def test_one_slice_or_none_is_told_of_no_others_whatever_the_host_inherited(
    world_size: int, workers_per_slice: int
) -> None:
    assert found(1, world_size, workers_per_slice) == HOST


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_comes_before_the_coordinator_waits_until_that_listens(
    rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for rank 0, whose own the coordinator is."""
    jax: Any = pytest.importorskip("jax")
    listener = socket.create_server(("127.0.0.1", 0))
    at = Coordination("127.0.0.1", listener.getsockname()[1], 0)
    listener.close()
    opened: list[socket.socket] = []
    seen: list[bool] = []
    looked = threading.Event()

    def tried(*_: object, **__: object) -> Any:
        looked.set()
        raise ConnectionRefusedError

    def coordinator() -> None:
        assert looked.wait(60), "rank 1 has not looked for the coordinator within 60 s"
        opened.append(socket.create_server((at.host, at.port)))
        monkeypatch.setattr(socket, "create_connection", connect)

    connect = socket.create_connection
    monkeypatch.setattr(socket, "create_connection", tried)
    monkeypatch.setattr(backend, "broadcast_from_rank_zero", lambda mine: at)
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **__: seen.append(listens(at.port)))
    thread = threading.Thread(target=coordinator, daemon=True)
    thread.start()
    session: Any = SimpleNamespace(node_ip=at.host, context=SimpleNamespace(rank=rank, world_size=2))
    JaxBackend(timeout_s=60).start(session)
    looked.set()
    thread.join(60)
    for one in opened:
        one.close()
    assert seen == [rank == 1]


def test_a_coordinator_that_never_listens_is_left_to_jax_to_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    began_s = time.monotonic()
    await_coordinator(Coordination("127.0.0.1", port, 0), 0.2)
    assert time.monotonic() - began_s >= 0.2
