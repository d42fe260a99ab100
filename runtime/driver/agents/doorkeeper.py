"""The driver's door: who connects has to prove that it knows the run's secret, and strangers cost little.

Every handshake has a thread and a descriptor of its own, so that a stranger that says nothing holds nobody up. There
are at most `MOST` at a time: with more the oldest is sent away, which of ours is none, since theirs take milliseconds.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from shaketable.runtime.transport import wire
from shaketable.runtime.transport.wire import Channel, ChannelClosed

MOST = 128
# after an accept that failed: the listener stays ready, and would be asked again at once
PAUSE_S = 1.0


@dataclass(slots=True)
class Doorkeeper:
    """`welcome` is called from a thread, with the channel of a peer that knows the secret."""

    secret: bytes
    welcome: Callable[[Channel], None]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waiting: dict[socket.socket, None] = field(default_factory=dict)

    def accept(self, listener: socket.socket) -> str:
        """One connection. Says why that was not possible, in which case it is to be tried again after `PAUSE_S`: this
        process or its machine has no descriptors left, which is no reason to end a run."""
        try:
            sock, _ = listener.accept()
        except (BlockingIOError, ConnectionError):
            # who had come has gone again
            return ""
        except OSError as error:
            self._send_away(MOST // 2)
            return f"no connection can be accepted: {error}"
        with self._lock:
            self._waiting[sock] = None
        self._send_away(MOST)
        try:
            threading.Thread(target=self._shake_hands, args=(sock,), daemon=True).start()
        except RuntimeError as error:
            self._forget(sock)
            sock.close()
            return f"no connection can be accepted: {error}"
        return ""

    def _send_away(self, keep: int) -> None:
        """Its thread closes the socket."""
        with self._lock:
            for sock in list(self._waiting)[: max(0, len(self._waiting) - keep)]:
                del self._waiting[sock]
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _shake_hands(self, sock: socket.socket) -> None:
        try:
            channel = wire.accept(sock, self.secret)
        except ChannelClosed:
            return
        finally:
            self._forget(sock)
        self.welcome(channel)

    def _forget(self, sock: socket.socket) -> None:
        with self._lock:
            self._waiting.pop(sock, None)
