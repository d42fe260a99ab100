from __future__ import annotations

import itertools
import resource
import threading

import msgspec
import pytest

from shaketable.runtime.storage.file import File
from shaketable.runtime.transport import messages as msg
from shaketable.runtime.transport import wire
from shaketable.runtime.transport.wire import Channel, ChannelClosed


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


def test_a_channel_works_above_descriptor_1023() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    pairs = [wire.pair() for _ in range(520)]
    try:
        ours, theirs = (Channel(sock) for sock in pairs[-1])
        assert ours.fileno() > 1023 and not theirs.wait(0)
        ours.send(msg.Delivery(attempt=1, round=1, data=bytes(2**22)))
        sender = threading.Thread(target=ours.drain)
        sender.start()
        found: list[msg.AnyMessage] = []
        while not found:
            assert theirs.wait(10)
            found = theirs.receive()
        sender.join()
        assert found == [msg.Delivery(attempt=1, round=1, data=bytes(2**22))]
    finally:
        for sock in itertools.chain(*pairs):
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_text_that_is_not_utf_8_travels_escaped() -> None:
    given = msg.WorkerFailed(attempt=1, rank=0, detail="caf\udce9", error="x")
    assert msg.decode(msg.encode(given)) == msgspec.structs.replace(given, detail="caf\\udce9")
    task = msg.UploadFinished(attempt=1, rank=0, index=1, files=(File(path="\udcff", size=1, checksum="c"),))
    assert msg.decode(msg.encode(task)).files[0].path == "\\udcff"  # type: ignore[union-attr]
