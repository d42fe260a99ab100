"""How a process records: each event goes to a file of its own first, then over a socket to the harness.

The file survives a SIGKILL of the process at any byte (one `write` a line; a torn last line is dropped by the
reader), the stream survives the loss of the machine. Testifying never raises and never waits for anybody:
what the socket does not take at once is kept, within a bound, for the next time. A witness used after a fork
goes on as a new writer with a file of its own.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import time
import weakref
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from shaketable.chaos.history.collector import Collector, CollectorError
from shaketable.chaos.history.events import Event, encode
from shaketable.chaos.history.handshake import ENV, MAX_LINE_BYTES, WitnessConfig, check_name, hello

__all__ = ["ENV", "MAX_LINE_BYTES", "Collector", "CollectorError", "Witness", "WitnessConfig"]

# beyond it the stream has a gap, which the file fills
MAX_UNSENT_BYTES = 4 << 20
# at most one try a second: a refused connect costs 0.1 ms
RECONNECT_S = 1.0
CONNECT_TIMEOUT_S = 0.05


class Witness:
    """The events of one process. `writer` is `<role>-<pid>-<4 hex>`, the file
    `<directory>/<writer>.jsonl`."""

    def __init__(self, config: WitnessConfig, role: str) -> None:
        self._config = config
        self._role = check_name(role)
        self._lock = threading.Lock()
        self._closed = False
        self._stream = _Stream(config)
        self._file = _File()
        self._open()
        _alive.add(self)

    def _open(self) -> None:
        self._pid = os.getpid()
        self.writer = f"{self._role}-{self._pid}-{secrets.token_hex(2)}"
        self._seq = 0
        self._file.open(Path(self._config.directory), self.writer)
        self._stream.open(self.writer)

    def emit(self, event: Event) -> None:
        """Write it down, then tell the harness. In this order: a process records before it acts."""
        with self._lock:
            if self._closed:
                return
            if self._pid != os.getpid():
                self._open()
            line = _line(event, self.writer, self._seq)
            if line is None:
                return
            self._seq += 1
            self._file.write(line)
            self._stream.send(line)

    def close(self) -> None:
        """No more events from here; what the socket still takes at once is sent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._file.close()
                self._stream.close()

    def _after_fork(self) -> None:
        # the parent's may have been held in the instant of the fork
        self._lock = threading.Lock()


_alive: weakref.WeakSet[Witness] = weakref.WeakSet()


def _forked() -> None:
    for witness in list(_alive):
        witness._after_fork()


os.register_at_fork(after_in_child=_forked)


def _line(event: Event, writer: str, seq: int) -> bytes | None:
    """The stamped event as one line within the bound, or None (said on stderr) where there is no way to say
    it."""
    stamped = msgspec.structs.replace(event, writer=writer, seq=seq, at_s=time.time())
    for candidate in (stamped, _without_metrics(stamped)):
        try:
            line = encode(candidate)
        except (TypeError, ValueError, OverflowError, RecursionError):
            # a user's metrics may hold anything
            continue
        if len(line) <= MAX_LINE_BYTES:
            return line
    print(f"shaketable witness: cannot write down {type(event).__name__}: too large or not JSON", file=sys.stderr)
    return None


def _without_metrics(event: Event) -> Event:
    """The same event with its metrics, if any, reduced to short JSON values."""
    metrics = getattr(event, "metrics", None)
    if not metrics:
        return event
    short = {str(key)[:100]: _plain(value) for key, value in list(metrics.items())[:100]}
    return msgspec.structs.replace(event, metrics=short)


def _plain(value: object) -> Any:
    return value if isinstance(value, int | float | bool | None) else repr(value)[:200]


class _File:
    """One append-only file with whole lines in it, or nothing where the disk does not want it."""

    def __init__(self) -> None:
        self._fd = -1
        self._size = 0

    def open(self, directory: Path, writer: str) -> None:
        self.close()
        self._size = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(directory / f"{writer}.jsonl", flags, 0o644)
        except OSError as error:
            print(f"shaketable witness: no file in {directory}, streaming only: {error}", file=sys.stderr)

    def write(self, line: bytes) -> None:
        if self._fd < 0:
            return
        try:
            written = os.write(self._fd, line)
            if written == len(line):
                self._size += written
            else:
                # a full disk: never half a line before a whole one
                os.ftruncate(self._fd, self._size)
        except OSError as error:
            print(f"shaketable witness: {error}", file=sys.stderr)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _Stream:
    """Lines on their way to the collector. After a lost connection the line that was cut starts again; the
    collector drops what it has already (same writer and seq)."""

    def __init__(self, config: WitnessConfig) -> None:
        self._config = config
        self._socket: socket.socket | None = None
        self._writer = ""
        self._reset()

    def _reset(self) -> None:
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._sent_of_first = 0
        self._next_try_s = 0.0

    def open(self, writer: str) -> None:
        # in a forked child: closes the copy only, the parent's connection lives on
        self._drop()
        self._reset()
        self._writer = writer
        self._connect()

    def _connect(self) -> None:
        if time.monotonic() < self._next_try_s:
            return
        self._next_try_s = time.monotonic() + RECONNECT_S
        try:
            address = (self._config.host, self._config.port)
            connection = socket.create_connection(address, timeout=CONNECT_TIMEOUT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(hello(self._config.secret, self._writer))
            connection.setblocking(False)
        except OSError:
            return
        self._socket = connection
        self._sent_of_first = 0

    def send(self, line: bytes) -> None:
        if self._unsent_bytes + len(line) <= MAX_UNSENT_BYTES:
            self._unsent.append(line)
            self._unsent_bytes += len(line)
        if self._socket is None:
            self._connect()
        self._flush()

    def _flush(self) -> None:
        while self._socket is not None and self._unsent:
            first = self._unsent[0]
            try:
                self._sent_of_first += self._socket.send(first[self._sent_of_first :])
            except BlockingIOError:
                return
            except OSError:
                self._drop()
                return
            if self._sent_of_first == len(first):
                self._unsent_bytes -= len(self._unsent.popleft())
                self._sent_of_first = 0

    def close(self) -> None:
        self._flush()
        self._drop()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
