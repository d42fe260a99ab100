from __future__ import annotations

import pytest

from shaketable.runtime import messages as msg
from shaketable.runtime import wire
from shaketable.runtime.wire import Channel, ChannelClosed


def test_what_a_peer_that_has_gone_will_never_take_is_not_sent_again() -> None:
    """An agent that tried to, for its worker that had just ended, died of it, and took its uploads along."""
    ours, theirs = (Channel(sock) for sock in wire.pair())
    theirs.close()
    with pytest.raises(ChannelClosed):
        ours.send(msg.Ping())
    assert not ours.unsent


def test_what_a_peer_said_before_it_went_is_still_heard() -> None:
    ours, theirs = (Channel(sock) for sock in wire.pair())
    theirs.send(msg.Ping())
    theirs.close()
    with pytest.raises(ChannelClosed):
        ours.send(msg.Ping())
    assert ours.receive() == [msg.Ping()]
    with pytest.raises(ChannelClosed):
        ours.receive()
