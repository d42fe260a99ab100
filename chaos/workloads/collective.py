"""A small allgather over TCP, so that the hash-chain job needs neither torch nor jax nor numpy.

Rank 0 is the hub: it listens before anybody hears of its address, then every other rank connects to it. The
secret is made anew for each attempt and travels through the subject's own broadcast, so nobody of an older
attempt can join; both sides prove that they know it, and every message carries a MAC over its direction,
number and content. A peer that breaks makes the others raise ConnectionError at once, as a real collective
does: the hub notices a closed socket and closes all others. Every wait has a deadline, and past it is a
ConnectionError too.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

MAX_MESSAGE_BYTES = 64 << 20
JOIN_WITHIN_S = 60.0
GATHER_WITHIN_S = 120.0
# a stranger who says nothing holds the hub up for no longer; a peer tries again
HANDSHAKE_WITHIN_S = 2.0
RETRY_S = 0.05

Address = dict[str, str | int]
Broadcast = Callable[[Address | None], Address]

_TAG_BYTES = 16
_frame = struct.Struct("!I16s")
_greeting = struct.Struct("!I16s32s")


class Channel:
    """One authenticated connection, used by one thread: whole messages, in order, none forged."""

    def __init__(self, connection: socket.socket, key: bytes, *, hub: bool) -> None:
        self._connection = connection
        self._key = key
        self._sends, self._hears = (b"hub>", b"peer>") if hub else (b"peer>", b"hub>")
        self._sent = self._heard = 0

    def send(self, payload: bytes) -> None:
        tag = _mac(self._key, self._sends, self._sent, payload)
        self._sent += 1
        self._connection.settimeout(GATHER_WITHIN_S)
        self._connection.sendall(_frame.pack(len(payload), tag) + payload)

    def receive(self) -> bytes:
        deadline_s = time.monotonic() + GATHER_WITHIN_S
        size, tag = _frame.unpack(_exactly(self._connection, _frame.size, deadline_s))
        if size > MAX_MESSAGE_BYTES:
            raise ConnectionError(f"collective: a message of {size} bytes, at most {MAX_MESSAGE_BYTES} are taken")
        payload = _exactly(self._connection, size, deadline_s)
        if not hmac.compare_digest(tag, _mac(self._key, self._hears, self._heard, payload)):
            raise ConnectionError("collective: a message that the peer did not send")
        self._heard += 1
        return payload

    def close(self) -> None:
        self._connection.close()


class Collective:
    """The worker group of one attempt. Leaving it (also by an exception) breaks it for everybody."""

    def __init__(self, rank: int, world_size: int, channels: list[Channel]) -> None:
        self.rank = rank
        self.world_size = world_size
        # of the hub: one for each rank from 1; of a peer: the one to the hub
        self._channels = channels

    def allgather(self, payload: bytes) -> list[bytes]:
        """Everybody's payload, by rank, on every rank."""
        try:
            if self.rank == 0:
                return self._gather_as_hub(payload)
            self._channels[0].send(payload)
            return _split(self._channels[0].receive(), self.world_size)
        except OSError as error:
            # so that nobody waits for a group that is broken
            self.close()
            if isinstance(error, ConnectionError):
                raise
            raise ConnectionError(f"collective: rank {self.rank} lost its group: {error}") from error

    def _gather_as_hub(self, payload: bytes) -> list[bytes]:
        parts = [payload, *(channel.receive() for channel in self._channels)]
        everything = b"".join(struct.pack("!I", len(part)) + part for part in parts)
        for channel in self._channels:
            channel.send(everything)
        return parts

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def join(rank: int, world_size: int, broadcast: Broadcast, host: str) -> Collective:
    """Called by every rank of the attempt. `broadcast` gives everybody what rank 0 passes to it; `host`: the address of
    this rank's node, at which the others reach it."""
    if world_size == 1:
        return Collective(0, 1, [])
    if rank == 0:
        return Collective(0, world_size, _serve(world_size, broadcast, host))
    return Collective(rank, world_size, [_connect(rank, broadcast(None))])


# ---- the hub -------------------------------------------------------------------------------------------------


def _serve(world_size: int, broadcast: Broadcast, host: str) -> list[Channel]:
    secret = secrets.token_hex(32)
    # listens before anybody is told
    with socket.create_server((host, 0), backlog=world_size + 8) as server:
        broadcast({"host": host, "port": server.getsockname()[1], "secret": secret})
        return _accept_all(server, world_size, secret)


def _accept_all(server: socket.socket, world_size: int, secret: str) -> list[Channel]:
    deadline_s = time.monotonic() + JOIN_WITHIN_S
    channels: dict[int, Channel] = {}
    try:
        while len(channels) < world_size - 1:
            _accept_one(server, secret, deadline_s, channels, world_size)
    except BaseException:
        for channel in channels.values():
            channel.close()
        raise
    return [channels[rank] for rank in range(1, world_size)]


def _accept_one(
    server: socket.socket, secret: str, deadline_s: float, channels: dict[int, Channel], world_size: int
) -> None:
    server.settimeout(_left(deadline_s, f"{len(channels)} of {world_size - 1} peers joined"))
    try:
        connection, _ = server.accept()
    except TimeoutError as error:
        raise ConnectionError(f"collective: only ranks {sorted(channels)} joined rank 0 in time") from error
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        rank, key = _challenge(connection, secret)
    except OSError:
        # a stranger, or a peer that was too slow: that one tries again
        connection.close()
        return
    if not 1 <= rank < world_size:
        connection.close()
        return
    if rank in channels:
        # its first try ended half way
        channels[rank].close()
    channels[rank] = Channel(connection, key, hub=True)


def _challenge(connection: socket.socket, secret: str) -> tuple[int, bytes]:
    """Hub's side: who is it, and does it know the secret? Prove the same to it."""
    deadline_s = time.monotonic() + HANDSHAKE_WITHIN_S
    connection.settimeout(HANDSHAKE_WITHIN_S)
    nonce = secrets.token_bytes(16)
    connection.sendall(nonce)
    rank, peer_nonce, proof = _greeting.unpack(_exactly(connection, _greeting.size, deadline_s))
    if not hmac.compare_digest(proof, _proof(secret, "peer", rank, nonce + peer_nonce)):
        raise ConnectionError("collective: a peer without the secret of this attempt")
    connection.sendall(_proof(secret, "hub", rank, nonce + peer_nonce))
    return rank, _proof(secret, "key", rank, nonce + peer_nonce)


# ---- a peer --------------------------------------------------------------------------------------------------


def _connect(rank: int, address: Address) -> Channel:
    deadline_s = time.monotonic() + JOIN_WITHIN_S
    where = (str(address["host"]), int(address["port"]))
    while True:
        try:
            return _greet(rank, where, str(address["secret"]))
        except OSError as error:
            if time.monotonic() + RETRY_S > deadline_s or isinstance(error, ConnectionRefusedError):
                raise ConnectionError(f"collective: rank {rank} cannot join rank 0 at {where}: {error}") from error
            # between tries at a hub that was busy; the deadline is above
            time.sleep(RETRY_S)


def _greet(rank: int, where: tuple[str, int], secret: str) -> Channel:
    connection = socket.create_connection(where, timeout=JOIN_WITHIN_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        # the hub greets one after the other
        deadline_s = time.monotonic() + JOIN_WITHIN_S
        nonce, own = _exactly(connection, 16, deadline_s), secrets.token_bytes(16)
        connection.sendall(_greeting.pack(rank, own, _proof(secret, "peer", rank, nonce + own)))
        if not hmac.compare_digest(_exactly(connection, 32, deadline_s), _proof(secret, "hub", rank, nonce + own)):
            raise ConnectionError("collective: who answers there does not know the secret of this attempt")
        return Channel(connection, _proof(secret, "key", rank, nonce + own), hub=False)
    except BaseException:
        connection.close()
        raise


# ---- small pieces --------------------------------------------------------------------------------------------


def _proof(secret: str, what: str, rank: int, nonces: bytes) -> bytes:
    return hmac.digest(secret.encode(), f"shaketable {what} {rank} ".encode() + nonces, "sha256")


def _mac(key: bytes, direction: bytes, number: int, payload: bytes) -> bytes:
    mac = hashlib.blake2s(direction + struct.pack("!Q", number), key=key, digest_size=_TAG_BYTES)
    mac.update(payload)
    return mac.digest()


def _exactly(connection: socket.socket, size: int, deadline_s: float) -> bytes:
    data = b""
    while len(data) < size:
        connection.settimeout(_left(deadline_s, f"{len(data)} of {size} bytes of a message came"))
        try:
            piece = connection.recv(size - len(data))
        except TimeoutError as error:
            raise ConnectionError(f"collective: silence, {len(data)} of {size} bytes came") from error
        if not piece:
            raise ConnectionResetError("collective: the peer closed the connection")
        data += piece
    return data


def _left(deadline_s: float, so_far: str) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise ConnectionError(f"collective: deadline passed, {so_far}")
    return left_s


def _split(everything: bytes, count: int) -> list[bytes]:
    parts, at = [], 0
    for _ in range(count):
        (size,) = struct.unpack_from("!I", everything, at)
        parts.append(everything[at + 4 : at + 4 + size])
        at += 4 + size
    return parts
