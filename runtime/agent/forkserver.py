"""The fork server of an agent: a fresh process that has imported torch or jax (and this package) and forks workers.

It imports and does nothing else: no operation that could start a thread before a fork (docs/architecture.md, "Process
tree"). It is the subreaper of all its descendants, so that whatever a worker leaves behind is its to kill, and it ends
with its agent, however that ends: by the closed socket, or by the parent-death signal if something holds it open.

Between the two stands a guard, which does nothing but wait: when the fork server is killed together with the agent, or
stands still while that dies, what the workers left behind is the guard's to kill. Only who kills all three at once
leaves orphans: children of a worker that have their own session and do not look whether their parent lives.

    python -m shaketable.runtime.agent.forkserver FD PARENT_PID
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

from shaketable.runtime.transport import messages as msg
from shaketable.runtime.transport.wire import Channel, ChannelClosed

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# SIGKILLed processes are gone within this, unless the kernel itself is stuck
_SWEEP_S = 5.0


def prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def die_with_parent(sig: signal.Signals, parent: int) -> None:
    """End when the thread that forked us ends. A parent that is gone already is noticed too."""
    prctl(_PR_SET_PDEATHSIG, sig)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    serve(int(sys.argv[1]), int(sys.argv[2]))


def serve(fd: int, parent: int) -> None:
    """Until the agent `parent` at the other end of the socket `fd` is gone."""
    signal.signal(signal.SIGTERM, _leave)
    # Ctrl-C is the driver's to handle
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _adopt_orphans(parent)
    guard, server = os.getpid(), os.fork()
    if server != 0:
        os.close(fd)
        _guard(server)
    _adopt_orphans(guard)
    sock = socket.socket(fileno=fd)
    try:
        _Server(sock).run()
    except ChannelClosed:
        pass
    finally:
        _sweep()


def _adopt_orphans(parent: int) -> None:
    """Neither of the two is inherited by a fork."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    die_with_parent(signal.SIGTERM, parent)


def _guard(server: int) -> NoReturn:
    """Until the fork server or the agent (see `_leave`) is gone."""
    _, status = os.waitpid(server, 0)
    _sweep()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _leave(*_: object) -> None:
    _sweep()
    os._exit(0)


class _Server:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._channel = Channel(sock)
        # pidfd -> pid, attempt
        self._children: dict[int, tuple[int, int]] = {}

    def run(self) -> None:
        """Serve until the agent is gone."""
        while True:
            self._channel.drain()
            ours = self._sock.fileno()
            # Not `select`, which knows no descriptor above 1023.
            poll = select.poll()
            for fd in (ours, *self._children):
                poll.register(fd, select.POLLIN)
            for fd, _ in poll.poll():
                self._serve() if fd == ours else self._reap(fd)

    def _serve(self) -> None:
        # Descriptors ride on the stream: the agent sends one with each ForkChild and waits for Forked.
        data, fds, _, _ = socket.recv_fds(self._sock, 1 << 16, 1)
        if not data:
            raise ChannelClosed("the agent is gone")
        for message in self._channel.feed(data):
            match message:
                case msg.Warm():
                    self._warm(message)
                case msg.ForkChild():
                    self._fork(message.attempt, fds.pop())

    def _warm(self, message: msg.Warm) -> None:
        # what the driver has first, and what only this node has after it
        sys.path[:] = dict.fromkeys([*message.sys_path, *sys.path])
        # before anything is imported that reads it
        os.environ.update(message.environment)
        for name in message.preload:
            try:
                importlib.import_module(name)
            except ImportError as error:
                self._channel.send(msg.Unfit(detail=f"cannot import {name!r} on this node: {error}"))
                return
        gc.collect()
        # a collection in a worker would copy every page it shares with us
        gc.freeze()
        self._channel.send(msg.Ready())

    def _fork(self, attempt: int, fd: int) -> None:
        server = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._become_worker(fd, server)
        os.close(fd)
        self._children[os.pidfd_open(pid)] = (pid, attempt)
        self._channel.send(msg.Forked(attempt=attempt, pid=pid))

    def _become_worker(self, fd: int, server: int) -> None:
        from shaketable.runtime.agent import worker

        try:
            os.setsid()
            die_with_parent(signal.SIGKILL, server)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._sock.close()
            for pidfd in self._children:
                os.close(pidfd)
            worker.main(fd)
        finally:
            # worker.main never returns
            os._exit(70)

    def _reap(self, pidfd: int) -> None:
        pid, attempt = self._children.pop(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        _sweep(except_for={pid for pid, _ in self._children.values()})
        self._channel.send(msg.Reaped(attempt=attempt, pid=pid, status=status))


def _sweep(except_for: set[int] | None = None) -> None:
    """Kill and reap every descendant but `except_for`: a worker's own children end up as ours when it ends."""
    deadline = time.monotonic() + _SWEEP_S
    while (remaining := _descendants() - (except_for or set())) and time.monotonic() < deadline:
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in remaining:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _descendants() -> set[int]:
    found: set[int] = set()
    todo = [os.getpid()]
    while todo:
        children = _children(todo.pop()) - found
        found |= children
        todo += children
    return found


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    # it may be gone at any moment
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found |= {int(child) for child in (thread / "children").read_text().split()}
    return found


if __name__ == "__main__":
    main()
