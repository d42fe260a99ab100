"""A machine that came back in place: Ray has two nodes as alive where there is one."""

from __future__ import annotations

import socket

import pytest

from shaketable.runtime.ray_internals import nobody_listens
from shaketable.runtime.tpu.seen_nodes import Standing, replaced

POD = ("10.0.0.7", "/tmp/ray/session/sockets/raylet")


def standing(name: str, since_ms: int, at: tuple[str, str] = POD) -> Standing:
    return Standing(name, at, 4000 + since_ms, since_ms)


@pytest.mark.parametrize("listed", [("old", "new"), ("new", "old")])
def test_a_node_that_came_back_in_place_replaces_the_one_before(listed: tuple[str, ...]) -> None:
    since = {"old": 1, "new": 2}
    assert replaced([standing(name, since[name]) for name in listed], lambda address, port: True) == {"old"}


def test_only_who_is_gone_is_replaced() -> None:
    """Two containers on the network of their host have one address, and each a file system of its own."""
    asked = []

    def gone(address: str, port: int) -> bool:
        asked.append((address, port))
        return False

    assert replaced([standing("one", 1), standing("other", 2)], gone) == set()
    assert asked == [("10.0.0.7", 4001)]


def test_nodes_of_one_machine_replace_nobody() -> None:
    """Each has a socket of its own."""
    nodes = [standing(str(n), n, ("10.0.0.7", f"/tmp/ray/session/sockets/raylet.{n}")) for n in range(3)]
    assert replaced(nodes, lambda address, port: True) == set()


def test_a_pod_that_came_back_twice_leaves_two_ghosts() -> None:
    nodes = [standing("first", 1), standing("second", 2), standing("third", 3)]
    assert replaced(nodes, lambda address, port: port != 4003) == {"first", "second"}


def test_who_listens_is_there_and_who_refuses_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not nobody_listens("127.0.0.1", port)
    assert nobody_listens("127.0.0.1", port)
