"""What agents say, as the controller hears it; what of it they are told in turn; and the control collective."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shaketable.runtime.clocks import as_wall_s
from shaketable.runtime.controller import events as ev
from shaketable.runtime.driver.agents.peers import Peer
from shaketable.runtime.log.metrics import decode
from shaketable.runtime.transport import messages as msg


def as_event(peer: Peer, message: msg.AnyMessage) -> ev.Event | None:
    """What the controller hears of a message; None for what is not its business."""
    match message:
        case msg.Ready():
            return ev.AgentReady(peer.agent, peer.unit, peer.node_id, peer.place)
        case msg.WorkerEvent():
            return message
        case msg.Stopped(attempt=attempt):
            return ev.WorkersStopped(attempt, peer.rank)
        case msg.Report(attempt=attempt, rank=rank, index=index, metrics=metrics):
            uploading = message.directory is not None
            return ev.ReportReceived(attempt, rank, index, decode(metrics), uploading=uploading)
    return None


def notice(attempt: int, deadline_s: float, node_ids: Sequence[str], peers: Iterable[Peer]) -> msg.Preemption:
    """Of nodes that go, and of the ranks on them."""
    ranks: dict[str, list[int]] = {}
    for peer in sorted(peers, key=lambda peer: peer.rank):
        if peer.attempt == attempt and peer.node_id in node_ids:
            ranks.setdefault(peer.node_id, []).append(peer.rank)
    return msg.Preemption(attempt=attempt, deadline_s=as_wall_s(deadline_s), node_ids=list(node_ids), ranks=ranks)


@dataclass(slots=True)
class _Round:
    ranks: set[int] = field(default_factory=set)
    data: bytes = b""


class Collective:
    """The rounds of the control collective that are open."""

    def __init__(self) -> None:
        self._rounds: dict[tuple[int, int], _Round] = {}

    def clear(self) -> None:
        self._rounds.clear()

    def contribute(self, message: msg.Contribution, world_size: int) -> msg.Delivery | None:
        """What all ranks are given, once the last of them has come."""
        current = self._rounds.setdefault((message.attempt, message.round), _Round())
        current.ranks.add(message.rank)
        current.data = current.data or message.data
        if len(current.ranks) < world_size:
            return None
        del self._rounds[message.attempt, message.round]
        return msg.Delivery(attempt=message.attempt, round=message.round, data=current.data)
