"""The harness's end of the events: takes the lines of every witness, wakes whoever waits for one, and in
the end writes the history.

One thread reads all connections. A connection says who it is first (`wire.py`) and may then only speak for
that writer; a line that is too long, no event, or somebody else's closes it and is noted in `rejected`.
Callbacks run on that thread, in order of arrival; an error in one comes out of the harness's next call, as
`CollectorError`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from shaketable.chaos.errors import ChaosError
from shaketable.chaos.history.events import AnyEvent, Event, decode, encode, merge, read_events
from shaketable.chaos.history.handshake import HARNESS, MAX_HELLO_BYTES, MAX_LINE_BYTES, WitnessConfig, authenticated
from shaketable.chaos.history.sealing import sealed
from shaketable.clusters.protocol import LOOPBACK

HELLO_WITHIN_S = 5.0
READ_BYTES = 1 << 18
STOP_WITHIN_S = 10.0
DRAIN_WITHIN_S = 2.0


class CollectorError(ChaosError):
    """The collector cannot go on: it was closed already, or a callback failed (its error is the cause)."""


@dataclass(slots=True)
class _Peer:
    """One connection: who it proved to be (None: nobody yet), and what came of its next line."""

    connection: socket.socket
    hello_by_s: float
    writer: str | None = None
    pending: bytearray = field(default_factory=bytearray)


@dataclass(slots=True, eq=False)
class _Subscription:
    callback: Callable[[AnyEvent], None]
    # index of the event that it gets next
    next: int


class Collector:
    """Collects events until `finish()`, at the address `host` of this machine. `config` is what the witnesses need;
    hand it to them privately."""

    def __init__(self, directory: Path, host: str = LOOPBACK) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._server = socket.create_server((host, 0), backlog=128)
        self._server.setblocking(False)
        port: int = self._server.getsockname()[1]
        self.config = WitnessConfig(str(directory.absolute()), host, port, secrets.token_hex(16))
        self.rejected: list[str] = []
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._own = os.open(directory / f"{HARNESS}.jsonl", flags, 0o644)
        self._seq = 0
        self._events: list[AnyEvent] = []
        self._seen: dict[tuple[str, int], AnyEvent] = {}
        self._subscriptions: list[_Subscription] = []
        self._changed = threading.Condition(threading.RLock())
        self._stopping = False
        self._error: BaseException | None = None
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="shaketable-collector", daemon=True)
        self._thread.start()

    # ---- what the harness calls ----

    def emit(self, event: Event) -> None:
        """The harness's own events, as writer "harness"; on disk before anybody hears of it."""
        with self._changed:
            self._check()
            if self._stopping:
                raise CollectorError("the collector is closed: record before finish()")
            stamped = msgspec.structs.replace(event, writer=HARNESS, seq=self._seq, at_s=time.time())
            line = encode(stamped)
            if os.write(self._own, line) != len(line):
                raise CollectorError(f"{self._directory}: the disk took only a part of a line; free some space")
            self._seq += 1
            self._arrived(decode(line))
        self._wake()

    def snapshot(self) -> list[AnyEvent]:
        """Everything heard so far, in order of arrival."""
        with self._changed:
            return list(self._events)

    def wait_for(
        self, predicate: Callable[[AnyEvent], bool], *, nth: int = 1, timeout_s: float, name: str
    ) -> AnyEvent | None:
        """The `nth` event of which `predicate` is true, past ones included; None after `timeout_s` without
        it. `name` says what is waited for, in the error if the collector dies meanwhile."""
        deadline_s = time.monotonic() + timeout_s
        looked, matches = 0, 0
        while True:
            with self._changed:
                self._check(f" while waiting for {name}")
                if looked == len(self._events):
                    left_s = deadline_s - time.monotonic()
                    if left_s <= 0 or self._stopping:
                        return None
                    self._changed.wait(left_s)
                fresh = self._events[looked:]
            for event in fresh:
                matches += predicate(event)
                if matches == nth:
                    return event
            looked += len(fresh)

    def subscribe(self, callback: Callable[[AnyEvent], None]) -> Callable[[], None]:
        """Call back for every event that arrives from now on, on the collector's thread, in order of arrival.
        Returns what ends the subscription. (`snapshot()` taken afterwards has the ones before.)"""
        subscription = _Subscription(callback, 0)
        with self._changed:
            self._check()
            subscription.next = len(self._events)
            self._subscriptions.append(subscription)

        def unsubscribe() -> None:
            with self._changed:
                if subscription in self._subscriptions:
                    self._subscriptions.remove(subscription)

        return unsubscribe

    def finish(self) -> list[AnyEvent]:
        """Stop listening, merge the files and the stream, write `<directory>/../history.jsonl`, return it."""
        self.close()
        if self._error is not None:
            raise CollectorError(f"the collector's thread failed: {self._error!r}") from self._error
        files = [read_events(path) for path in sorted(self._directory.glob("*.jsonl"))]
        events = merge([*files, self._events])
        _write_whole(self._directory.parent / "history.jsonl", sealed(events))
        return events

    def close(self) -> None:
        """Stop listening and let go of everything. Idempotent."""
        with self._changed:
            if self._stopping:
                return
            self._stopping = True
            os.close(self._own)
            self._changed.notify_all()
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_WITHIN_S)

    # ---- the thread ----

    def _run(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                self._listen(selector)
        except BaseException as error:  # noqa: BLE001  (comes out of the harness's next call, see _check)
            with self._changed:
                self._error = error
                self._changed.notify_all()
        finally:
            for end in (self._server, self._wake_in, self._wake_out):
                end.close()

    def _listen(self, selector: selectors.BaseSelector) -> None:
        selector.register(self._server, selectors.EVENT_READ)
        selector.register(self._wake_in, selectors.EVENT_READ)
        while not self._stopping:
            self._read_once(selector, 1.0)
            self._deliver()
        # what was sent before the end is still heard
        drain_until_s = time.monotonic() + DRAIN_WITHIN_S
        while self._read_once(selector, 0.0) and time.monotonic() < drain_until_s:
            pass
        for key in list(selector.get_map().values()):
            if isinstance(key.data, _Peer):
                key.data.connection.close()

    def _read_once(self, selector: selectors.BaseSelector, timeout_s: float) -> bool:
        """One round over what is readable; true if there was anything of a witness."""
        heard = False
        for key, _ in selector.select(timeout_s):
            if isinstance(key.data, _Peer):
                heard = True
                self._read(selector, key.data)
            elif key.fileobj is self._server:
                heard = True
                self._accept(selector)
            else:
                self._wake_in.recv(4096)
        now_s = time.monotonic()
        for key in list(selector.get_map().values()):
            if isinstance(key.data, _Peer) and key.data.writer is None and now_s > key.data.hello_by_s:
                self._reject(selector, key.data, "did not say who it is")
        return heard

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:
            # it went away again before it was taken
            return
        connection.setblocking(False)
        peer = _Peer(connection, time.monotonic() + HELLO_WITHIN_S)
        selector.register(connection, selectors.EVENT_READ, peer)

    def _read(self, selector: selectors.BaseSelector, peer: _Peer) -> None:
        try:
            data = peer.connection.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        # closed, or killed in the middle of a line, which is dropped
        if not data:
            selector.unregister(peer.connection)
            peer.connection.close()
            return
        peer.pending += data
        *lines, rest = peer.pending.split(b"\n")
        peer.pending = rest
        for line in lines:
            if (complaint := self._take(peer, bytes(line))) is not None:
                self._reject(selector, peer, complaint)
                return
        if len(rest) > (MAX_HELLO_BYTES if peer.writer is None else MAX_LINE_BYTES):
            self._reject(selector, peer, f"sent a line of more than {len(rest)} bytes")

    def _take(self, peer: _Peer, line: bytes) -> str | None:
        """Take one line in; a string says why it must not be."""
        if peer.writer is None:
            peer.writer = authenticated(self.config.secret, line) if len(line) <= MAX_HELLO_BYTES else None
            return None if peer.writer is not None else "did not know the secret"
        try:
            event = decode(line)
        except msgspec.DecodeError as error:
            return f"sent no event: {error}"
        if event.writer != peer.writer:
            return f"spoke for {event.writer!r}"
        with self._changed:
            self._arrived(event)
        return None

    def _reject(self, selector: selectors.BaseSelector, peer: _Peer, complaint: str) -> None:
        self.rejected.append(f"{peer.writer or 'an unknown peer'} {complaint}")
        selector.unregister(peer.connection)
        peer.connection.close()

    def _deliver(self) -> None:
        with self._changed:
            subscriptions = list(self._subscriptions)
        for subscription in subscriptions:
            while (event := self._next_for(subscription)) is not None:
                subscription.callback(event)

    def _next_for(self, subscription: _Subscription) -> AnyEvent | None:
        with self._changed:
            ended = subscription not in self._subscriptions
            if ended or self._stopping or subscription.next == len(self._events):
                return None
            subscription.next += 1
            return self._events[subscription.next - 1]

    # ---- both sides, under the lock ----

    def _arrived(self, event: AnyEvent) -> None:
        """A line that is sent again is dropped; another line of the same number is kept, for the judge to see."""
        known = self._seen.setdefault((event.writer, event.seq), event)
        if known is event or known != event:
            self._events.append(event)
            self._changed.notify_all()

    def _check(self, doing: str = "") -> None:
        """Raise what went wrong on the thread."""
        if self._error is not None:
            raise CollectorError(f"the collector's thread failed{doing}: {self._error!r}") from self._error

    def _wake(self) -> None:
        # full: it is awake already; closed: the thread has ended
        with contextlib.suppress(OSError):
            self._wake_out.send(b"x")


def amend(path: Path, events: list[AnyEvent], said: Event) -> list[AnyEvent]:
    """The finished history at `path` with one more word of the harness."""
    seq = 1 + max((event.seq for event in events if event.writer == HARNESS), default=-1)
    stamped = msgspec.structs.replace(said, writer=HARNESS, seq=seq, at_s=time.time())
    amended = merge([events, [decode(encode(stamped))]])
    _write_whole(path, sealed(amended))
    return amended


def _write_whole(path: Path, content: bytes) -> None:
    """All of it or nothing, whenever the harness is killed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
