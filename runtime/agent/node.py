"""A node without Ray, as one process: `python -m shaketable.runtime.agent.node SPEC`. Agents are its children.

It does what a raylet does for a run. A place is leased over a connection (`transport/node_words.py`) and is free again
when that closes, whoever closes it; then its agent is killed. SIGTERM drains it, as `ray start --block` does: it is
announced to go in `TERM_DRAIN_S`, and goes then, or as soon as nobody holds a place of it. Agents are forked, for this
process has all that they import: an agent is there in milliseconds. It has one thread, so that forking is safe.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec

from shaketable.runtime.agent import forkserver
from shaketable.runtime.agent.checkpoint_io import Place
from shaketable.runtime.agent.forkserver import die_with_parent
from shaketable.runtime.agent.loop import AgentLoop, AgentSpec, DriverSilent, Leave
from shaketable.runtime.errors import ShaketableError
from shaketable.runtime.transport import node_words as words
from shaketable.runtime.transport import wire
from shaketable.runtime.transport.wire import ChannelClosed

# what the kernel calls them, at most 15 letters
NODE_NAME, AGENT_NAME, SERVER_NAME = "shaketable-node", "shaketable-agt", "shaketable-fork"
# as `ray start --block` announces it
TERM_DRAIN_S = 30.0
# the exit code of an agent that had no word from its driver for longer than its lease
DRIVER_SILENT = 75
_LOOK_S = 0.1
_WORD_S = 1.0
_REAPED_S = 0.002


class NodeSpec(msgspec.Struct, frozen=True):
    """`directory`: of this node's disk, with its socket in it. `environment`: what all of its processes have besides
    what their driver has."""

    node_id: str
    number: int
    ip: str
    registry: str
    directory: str
    amounts: dict[str, float]
    labels: dict[str, str]
    environment: dict[str, str]
    # imported before anything is forked
    preload: tuple[str, ...] = ()


@dataclass(slots=True)
class _Held:
    """A place that is leased. `pid` 0: no agent is in it."""

    peer: words.Words
    asked: words.Lease
    pid: int = 0


class Node:
    def __init__(self, spec: NodeSpec) -> None:
        self._spec, self._registry = spec, Path(spec.registry)
        self._selector = selectors.DefaultSelector()
        self._leases: dict[words.Words, _Held] = {}
        self._deadline_wall_s = 0.0
        self._draining = self._terminated = self._told_to_go = False
        path = str(Path(spec.directory) / "node.sock")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(64)
        self._entry = words.NodeEntry(
            spec.node_id, spec.number, os.getpid(), path, spec.amounts, spec.labels, ip=spec.ip
        )

    def run(self) -> None:
        """Until it is drained, or found dead."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wake = (wake_read, wake_write)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        self._selector.register(wake_read, selectors.EVENT_READ, lambda: os.read(wake_read, 4096))
        self._selector.register(self._listener, selectors.EVENT_READ, self._on_connection)
        self._register()
        try:
            while not self._is_over():
                for key, _ in self._selector.select(_LOOK_S):
                    key.data()
                self._obey()
                self._reap()
        finally:
            self._leave()

    def _is_over(self) -> bool:
        if words.is_dead(self._registry, self._spec.node_id) or not self._registry.exists():
            return True
        if not self._draining:
            return False
        return not self._leases or (self._terminated and time.time() >= self._deadline_wall_s)

    def _leave(self) -> None:
        for held in self._leases.values():
            self._kill(held)
        words.mark_dead(self._registry, self._spec.node_id)

    def _on_term(self, *_: object) -> None:
        """The loop does it, which is woken: here it would be in the midst of anything, of writing the entry for one."""
        self._told_to_go = True

    def _obey(self) -> None:
        if self._told_to_go and not self._terminated:
            self._terminated = True
            self._drain(time.time() + TERM_DRAIN_S)

    def _drain(self, deadline_wall_s: float) -> None:
        self._draining, self._deadline_wall_s = True, deadline_wall_s
        self._register()

    def _register(self) -> None:
        held = tuple(
            words.Held(each.asked.run, each.asked.unit, each.asked.amounts, each.pid) for each in self._leases.values()
        )
        self._entry = msgspec.structs.replace(
            self._entry, draining=self._draining, deadline_wall_s=self._deadline_wall_s, held=held
        )
        with contextlib.suppress(FileNotFoundError):
            # the whole cluster has been taken down
            words.write_entry(self._registry, self._entry)

    # ---- who comes

    def _on_connection(self) -> None:
        sock, _ = self._listener.accept()
        sock.settimeout(_WORD_S)
        peer = words.Words(sock)
        self._watch(peer, lambda: self._on_words(peer))

    def _watch(self, peer: words.Words, handler: Callable[[], None]) -> None:
        self._selector.register(peer.sock, selectors.EVENT_READ, handler)

    def _on_words(self, peer: words.Words) -> None:
        try:
            for word in peer.receive():
                self._on_word(peer, word)
        except (EOFError, OSError, msgspec.DecodeError):
            self._forget(peer)

    def _on_word(self, peer: words.Words, word: words.AnyWord) -> None:
        match word:
            case words.Lease():
                self._lease(peer, word)
            case words.Start() if peer in self._leases:
                self._start(self._leases[peer], word)
            case words.Drain(deadline_wall_s):
                self._drain(deadline_wall_s)
                peer.send(words.Draining())

    def _lease(self, peer: words.Words, asked: words.Lease) -> None:
        lacking = [name for name, amount in asked.amounts.items() if self._entry.free(name) < amount]
        if self._draining or lacking:
            peer.send(words.Refused("the node is draining" if self._draining else f"no {' and '.join(lacking)} left"))
            return
        self._leases[peer] = _Held(peer, asked)
        self._register()
        peer.send(words.Granted())

    def _forget(self, peer: words.Words) -> None:
        self._selector.unregister(peer.sock)
        peer.close()
        held = self._leases.pop(peer, None)
        if held is not None:
            self._kill(held)
            self._register()

    # ---- agents

    def _start(self, held: _Held, order: words.Start) -> None:
        self._kill(held)
        sys.stdout.flush()
        sys.stderr.flush()
        node = os.getpid()
        try:
            held.pid = os.fork()
        except OSError as error:
            held.peer.send(words.Failed(order.agent, f"it could not be forked: {error}"))
            return
        if held.pid == 0:
            self._become_agent(order, node)
        self._register()

    def _kill(self, held: _Held) -> None:
        """Its fork server and workers end with it."""
        if held.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(held.pid, signal.SIGKILL)
            held.pid = 0

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._ended(pid, os.waitstatus_to_exitcode(status))

    def _ended(self, pid: int, code: int) -> None:
        """The place stays leased, for another agent; but where the driver was silent for too long, somebody else may
        have it."""
        held = next((each for each in self._leases.values() if each.pid == pid), None)
        if held is None:
            return
        held.pid = 0
        if code == DRIVER_SILENT:
            self._forget(held.peer)
        else:
            self._register()

    def _become_agent(self, order: words.Start, node: int) -> NoReturn:
        try:
            os.setsid()
            die_with_parent(signal.SIGKILL, node)
            _call_oneself(AGENT_NAME)
            self._drop_everything()
            os.environ.clear()
            os.environ.update({**order.environment, **self._spec.environment})
            _live(order, Place(self._spec.node_id, self._spec.ip, Path(self._spec.directory) / "shaketable"))
        finally:
            os._exit(70)

    def _drop_everything(self) -> None:
        """That is the node's."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        for key in list(self._selector.get_map().values()):
            if key.fd != self._wake[0]:
                os.close(key.fd)
        self._selector.close()
        for fd in self._wake:
            os.close(fd)


def _live(order: words.Start, place: Place) -> NoReturn:
    """An agent's whole life, as that of Ray's actor (`actor.py`)."""
    spec = AgentSpec(order.host, order.port, bytes.fromhex(order.secret), order.agent, order.unit, order.place)
    code = 0
    try:
        AgentLoop(wire.connect(spec.host, spec.port, spec.secret), spec, place, _forked_server).run()
    except Leave:
        pass
    except (ChannelClosed, OSError, ShaketableError) as error:
        print(f"shaketable agent {spec.agent} leaves: {error}", file=sys.stderr, flush=True)
        code = DRIVER_SILENT if isinstance(error, DriverSilent) else 0
    except Exception:  # noqa: BLE001  (a bug of ours, which os._exit would hide: the node's log has to have it)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


@dataclass(slots=True)
class _ForkedServer:
    """A fork server that has been forked itself."""

    pid: int

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        deadline_s = time.monotonic() + (math.inf if timeout is None else timeout)
        while (ended := os.waitpid(self.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > deadline_s:
                raise subprocess.TimeoutExpired("the fork server", timeout or 0.0)
            time.sleep(_REAPED_S)
        return os.waitstatus_to_exitcode(ended[1])


def _forked_server(fd: int, sys_path: Sequence[str]) -> _ForkedServer:
    """What it would import is there, so it is warm at once. It keeps nothing else of the agent's."""
    sys.stdout.flush()
    sys.stderr.flush()
    agent = os.getpid()
    pid = os.fork()
    if pid != 0:
        return _ForkedServer(pid)
    try:
        _close_all_but(fd)
        _call_oneself(SERVER_NAME)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys_path))
        forkserver.serve(fd, agent)
        os._exit(0)
    finally:
        os._exit(70)


def _close_all_but(fd: int) -> None:
    os.closerange(3, fd)
    os.closerange(fd + 1, max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + 1)


def _call_oneself(name: str) -> None:
    Path("/proc/self/comm").write_text(name)


def main() -> None:
    # Ctrl-C is the harness's to handle
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _call_oneself(NODE_NAME)
    spec = msgspec.json.decode(sys.argv[1], type=NodeSpec)
    for name in spec.preload:
        importlib.import_module(name)
    Node(spec).run()


if __name__ == "__main__":
    main()
