"""The worker's end of the subject `bundled`: the session API of shaketable's own runtime, and an ear at its
`report()`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shaketable.chaos.workloads.worker_api import Listener, Where
from shaketable.runtime import session
from shaketable.runtime.checkpoint import Checkpoint


class BundledApi:
    Checkpoint = Checkpoint
    report = staticmethod(session.report)
    get_checkpoint = staticmethod(session.get_checkpoint)
    get_context = staticmethod(session.get_context)
    checkpoint_requested = staticmethod(session.checkpoint_requested)
    # not get_preemption_info(), which two ranks may see at different steps
    notice = staticmethod(session.checkpoint_requested)
    broadcast_from_rank_zero = staticmethod(session.broadcast_from_rank_zero)


class BundledSide:
    def __init__(self) -> None:
        self.api = BundledApi()
        me = session.get_context()
        self.where = Where(me.term, me.attempt, me.get_world_rank(), me.get_world_size(), me.node_id)
        self.node_ip, self.resume = me.node_ip, me.resume

    @contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        session.listeners.append(listener)
        try:
            yield
        finally:
            session.listeners.remove(listener)


def enter() -> BundledSide:
    return BundledSide()
