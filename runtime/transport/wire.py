"""Length-prefixed msgpack frames over a stream socket, and the mutual proof that both ends know the run's secret."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import select
import socket
import struct
import time

from shaketable.runtime.errors import ShaketableError
from shaketable.runtime.transport.messages import AnyMessage, decode, encode

_LENGTH = struct.Struct(">I")
# a cloudpickled function may be large; a stranger never gets to send one
_LARGEST = 1 << 30
_NONCE = 32
_HANDSHAKE_S = 10.0


class ChannelClosed(ShaketableError, ConnectionError):
    """The other end is gone."""


class Channel:
    """One end of a connection. Never blocks, except in `drain` and `wait`."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._incoming = bytearray()
        self._outgoing = bytearray()

    def fileno(self) -> int:
        return self.sock.fileno()

    @property
    def unsent(self) -> bool:
        return bool(self._outgoing)

    def send(self, message: AnyMessage) -> None:
        """Queue a message and send what the socket takes now. Raises ChannelClosed."""
        data = encode(message)
        # At once: a signal's handler may raise between two statements, and half a frame would spoil all that follow.
        self._outgoing += _LENGTH.pack(len(data)) + data
        self.flush()

    def send_with_fd(self, message: AnyMessage, fd: int) -> None:
        """Send a message and a descriptor with it, at once: for a local peer that reads with recv_fds."""
        self.drain()
        data = encode(message)
        socket.send_fds(self.sock, [_LENGTH.pack(len(data)) + data], [fd])

    def flush(self) -> None:
        try:
            while self._outgoing:
                sent = self.sock.send(self._outgoing)
                del self._outgoing[:sent]
        except BlockingIOError:
            return
        except OSError as error:
            # nobody will ever take it; what the peer said before can still be read
            self._outgoing.clear()
            raise ChannelClosed(str(error)) from error

    def drain(self) -> None:
        """Block until everything queued is sent: a full socket is the brake on a sender that is too fast."""
        while self._outgoing:
            _poll(self.sock, select.POLLOUT, None)
            self.flush()

    def wait(self, timeout_s: float | None) -> bool:
        """True if there is something to receive, at the latest after `timeout_s`."""
        return _poll(self.sock, select.POLLIN, timeout_s)

    def receive(self) -> list[AnyMessage]:
        """Every whole message that has arrived. Raises ChannelClosed once the other end is gone and all is read."""
        closed = self._read()
        messages = self.feed(b"")
        if closed and not messages:
            raise ChannelClosed("the other end has closed the connection")
        return messages

    def feed(self, data: bytes) -> list[AnyMessage]:
        """The whole messages there are once `data` has arrived."""
        self._incoming += data
        messages = []
        while len(self._incoming) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._incoming)
            if length > _LARGEST:
                raise ChannelClosed(f"a frame of {length} bytes; the largest is {_LARGEST}")
            if len(self._incoming) < _LENGTH.size + length:
                break
            messages.append(decode(bytes(self._incoming[_LENGTH.size : _LENGTH.size + length])))
            del self._incoming[: _LENGTH.size + length]
        return messages

    def _read(self) -> bool:
        while True:
            try:
                data = self.sock.recv(1 << 16)
            except BlockingIOError:
                return False
            except OSError:
                return True
            if not data:
                return True
            self._incoming += data
            if len(data) < 1 << 16:
                return False

    def close(self) -> None:
        self.sock.close()


def _poll(sock: socket.socket, events: int, timeout_s: float | None) -> bool:
    """True if the socket is ready, or broken. (`select` knows no descriptor above 1023, which a driver of many agents
    and a training function with many files have.)"""
    poll = select.poll()
    poll.register(sock, events)
    return bool(poll.poll(None if timeout_s is None else max(0, math.ceil(timeout_s * 1000))))


def _proof(secret: bytes, who: bytes, *nonces: bytes) -> bytes:
    return hmac.new(secret, who + b"".join(nonces), hashlib.sha256).digest()


def _read_exactly(sock: socket.socket, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        part = sock.recv(size - len(data))
        if not part:
            raise ChannelClosed("closed during the handshake")
        data += part
    return data


def accept(sock: socket.socket, secret: bytes) -> Channel:
    """The driver's side of the handshake. Raises ChannelClosed for a peer that does not know the secret."""
    deadline, ours = time.monotonic() + _HANDSHAKE_S, secrets.token_bytes(_NONCE)
    try:
        sock.sendall(ours)
        answer = _read_exactly(sock, _NONCE + 32, deadline)
        theirs, proof = answer[:_NONCE], answer[_NONCE:]
        if not hmac.compare_digest(proof, _proof(secret, b"agent", ours, theirs)):
            raise ChannelClosed("the peer does not know this run's secret")
        sock.sendall(_proof(secret, b"driver", theirs, ours))
    except OSError as error:
        sock.close()
        raise ChannelClosed(f"no handshake: {error}") from error
    return _channel(sock)


def connect(host: str, port: int, secret: bytes) -> Channel:
    """The agent's side. Raises ChannelClosed if the driver cannot be reached or does not know the secret."""
    deadline, ours = time.monotonic() + _HANDSHAKE_S, secrets.token_bytes(_NONCE)
    try:
        sock = socket.create_connection((host, port), timeout=_HANDSHAKE_S)
    except OSError as error:
        raise ChannelClosed(f"the driver at {host}:{port} cannot be reached: {error}") from error
    try:
        theirs = _read_exactly(sock, _NONCE, deadline)
        sock.sendall(ours + _proof(secret, b"agent", theirs, ours))
        if not hmac.compare_digest(_read_exactly(sock, 32, deadline), _proof(secret, b"driver", ours, theirs)):
            raise ChannelClosed(f"what listens at {host}:{port} is not this run's driver")
    except OSError as error:
        sock.close()
        raise ChannelClosed(f"no handshake with {host}:{port}: {error}") from error
    return _channel(sock)


def _channel(sock: socket.socket) -> Channel:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Channel(sock)


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a local stream, for processes of one node."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
