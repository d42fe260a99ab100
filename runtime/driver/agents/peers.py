"""The agents that are connected: who they are, how they are reached, and when one of them is lost.

The connections are our own, because Ray reports a lost node 14 s late and a broken connection shows it at once.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from shaketable.runtime.config import RunConfig
from shaketable.runtime.controller.events import AgentId, UnitId
from shaketable.runtime.driver.agents.doorkeeper import PAUSE_S, Doorkeeper
from shaketable.runtime.transport import messages as msg
from shaketable.runtime.transport.wire import Channel, ChannelClosed

_GOODBYES_S = 2.0


@dataclass(slots=True)
class Peer:
    """A connected agent. `ready`: its fork server is warm; `unfit`: why it never will be. `rank` and `attempt`: the
    worker it was last asked to fork."""

    channel: Channel
    agent: AgentId
    unit: UnitId
    place: int
    node_id: str
    heard_s: float
    ready: bool = False
    unfit: str = ""
    attempt: int = 0
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """Whom the peers tell, on the thread of the loop: of a message, and of a peer that is lost, with the reason.
    `later` puts something in line with the events, from any thread; `setup` is what an agent is told first."""

    message: Callable[[Peer, msg.AnyMessage], None]
    lost: Callable[[Peer, str], None]
    later: Callable[[Callable[[], None]], None]
    setup: Callable[[], msg.Setup]
    warn: Callable[[str], None]


class Peers:
    def __init__(self, config: RunConfig, selector: selectors.DefaultSelector, secret: bytes, told: Told) -> None:
        self._config, self._selector, self._told = config, selector, told
        self.connected: dict[AgentId, Peer] = {}
        self.beat_s = max(0.1, min(2.0, config.heartbeat_timeout_s / 5))
        self._last_beat_s = time.monotonic()
        self._door = Doorkeeper(secret, lambda channel: told.later(lambda: self._welcome(channel)))
        self._listener: socket.socket | None = None
        # When the door is opened again that was shut for want of descriptors.
        self._reopen_s: float | None = None

    # ---- who comes

    def listen(self, listener: socket.socket) -> None:
        self._listener, self._reopen_s = listener, None
        self._selector.register(listener, selectors.EVENT_READ, lambda: self._on_connection(listener))

    def _on_connection(self, listener: socket.socket) -> None:
        if why := self._door.accept(listener):
            self._told.warn(f"{why}; trying again in {PAUSE_S:g} s")
            self._selector.unregister(listener)
            self._reopen_s = time.monotonic() + PAUSE_S

    def reopen(self) -> None:
        """The door, if it is time."""
        if self._listener is not None and self._reopen_s is not None and time.monotonic() >= self._reopen_s:
            self.listen(self._listener)

    def _welcome(self, channel: Channel) -> None:
        self._selector.register(channel.sock, selectors.EVENT_READ, lambda: self._on_first_word(channel))

    def _on_first_word(self, channel: Channel) -> None:
        self._selector.unregister(channel.sock)
        try:
            hello, *others = channel.receive()
        except (ChannelClosed, ValueError):
            channel.close()
            return
        if not isinstance(hello, msg.Hello):
            channel.close()
            return
        peer = Peer(channel, hello.agent, hello.unit, hello.place, hello.node_id, time.monotonic())
        self.connected[hello.agent] = peer
        self._selector.register(channel.sock, selectors.EVENT_READ, lambda: self._on_readable(peer))
        self.send(peer, self._told.setup())
        for message in others:
            self._told.message(peer, message)

    # ---- what is said

    def _on_readable(self, peer: Peer) -> None:
        try:
            messages = peer.channel.receive()
        except ChannelClosed:
            self._lose(peer, "its connection broke")
            return
        peer.heard_s = time.monotonic()
        for message in messages:
            self._told.message(peer, message)

    def send(self, peer: Peer, message: msg.AnyMessage) -> None:
        try:
            peer.channel.send(message)
        except ChannelClosed as error:
            why = f"its connection broke: {error}"
            # in its turn: we may be in the middle of a command
            self._told.later(lambda: self._lose(peer, why))

    def tell(self, attempt: int, message: msg.AnyMessage) -> None:
        """All whose worker is of that attempt."""
        for peer in list(self.connected.values()):
            if peer.attempt == attempt:
                self.send(peer, message)

    # ---- who goes

    def due_s(self) -> float:
        """When one of them has to be looked at next."""
        silent = [peer.heard_s + self._config.heartbeat_timeout_s for peer in self.connected.values()]
        reopen = [] if self._reopen_s is None else [self._reopen_s]
        return min([*silent, *reopen, self._last_beat_s + self.beat_s])

    @property
    def unsent(self) -> bool:
        return any(peer.channel.unsent for peer in self.connected.values())

    def beat(self, now: float) -> bool:
        """Whoever has been silent for too long is lost; the others are pinged, if it is time. Says whether it was."""
        for peer in list(self.connected.values()):
            silent_s = now - peer.heard_s
            if silent_s >= self._config.heartbeat_timeout_s:
                self._lose(peer, f"it has been silent for {silent_s:.1f} s")
        if now < self._last_beat_s + self.beat_s:
            return False
        self._last_beat_s = now
        for peer in list(self.connected.values()):
            self.send(peer, msg.Ping())
        return True

    def excuse(self, seconds: float) -> None:
        """For so long nobody could be heard."""
        for peer in self.connected.values():
            peer.heard_s += seconds

    def _lose(self, peer: Peer, why: str) -> None:
        if self.connected.get(peer.agent) is not peer:
            return
        self._forget(peer)
        self._told.lost(peer, peer.unfit or why)

    def _forget(self, peer: Peer) -> None:
        self.connected.pop(peer.agent, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(peer.channel.sock)
        peer.channel.close()

    def dismiss(self, unit: UnitId) -> None:
        """All of that unit; nobody is told that they are lost."""
        for peer in [peer for peer in self.connected.values() if peer.unit == unit]:
            self.send(peer, msg.Shutdown(final=False))
            self._forget(peer)

    def close(self) -> None:
        """An agent that leaves cleans up after itself; one that does not is killed by its release."""
        for peer in list(self.connected.values()):
            self.send(peer, msg.Shutdown(final=True))
            with contextlib.suppress(ChannelClosed):
                peer.channel.flush()
        deadline = time.monotonic() + _GOODBYES_S
        while self.connected and time.monotonic() < deadline:
            for peer in list(self.connected.values()):
                with contextlib.suppress(ChannelClosed):
                    if peer.channel.wait(0.01):
                        peer.channel.receive()
                    continue
                self._forget(peer)
