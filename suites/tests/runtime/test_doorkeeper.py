"""Strangers at the driver's door: they cost little, keep nobody of ours out, and never end the run."""

from __future__ import annotations

import errno
import os
import resource
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shaketable.runtime.driver.agents.doorkeeper import MOST, PAUSE_S, Doorkeeper
from shaketable.runtime.transport import messages as msg
from shaketable.runtime.transport import wire
from shaketable.runtime.transport.wire import Channel
from shaketable.suites.tests.runtime.test_executor import executor_in

SECRET = b"s" * 32


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        listener.setblocking(False)
        yield listener


def accept_all(door: Doorkeeper, listener: socket.socket, count: int) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        for _ in range(count):
            assert selector.select(10), "who has connected is there to be accepted"
            assert door.accept(listener) == ""


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def until(condition: object, what: str) -> None:
    """Sooner than a stranger's time for its handshake is over."""
    assert callable(condition)
    deadline_s = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.01)


def test_silent_strangers_hold_a_bounded_number_of_descriptors_and_keep_no_agent_out(listener: socket.socket) -> None:
    welcomed: list[Channel] = []
    door = Doorkeeper(SECRET, welcomed.append)
    before = descriptors()
    with ExitStack() as stack:
        strangers = 3 * MOST
        for _ in range(strangers):
            stack.enter_context(socket.create_connection(listener.getsockname()))
            accept_all(door, listener, 1)
        until(lambda: descriptors() <= before + strangers + MOST + 3, "the oldest are sent away")
        host, port = listener.getsockname()
        pid = os.fork()
        if pid == 0:
            wire.connect(host, port, SECRET).send(msg.Beat())
            os._exit(0)
        accept_all(door, listener, 1)
        until(lambda: welcomed, "the agent is welcome")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    welcomed[0].close()


def test_a_driver_without_descriptors_says_so_and_accepts_again_when_there_are_some(
    tmp_path: Path, listener: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    executor = executor_in(tmp_path)
    executor._peers.listen(listener)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.create_connection(listener.getsockname()):
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        try:
            executor._peers._on_connection(listener)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert os.strerror(errno.EMFILE) in capsys.readouterr().out
        with pytest.raises(KeyError):
            executor._selector.get_key(listener)
        time.sleep(PAUSE_S)
        executor._peers.reopen()
        assert executor._selector.get_key(listener)
        executor._peers._on_connection(listener)
        assert len(executor._peers._door._waiting) == 1
    executor._selector.close()
