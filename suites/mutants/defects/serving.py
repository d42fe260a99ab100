"""The driver's shell: whom the executor hears, what it tells them, and where placement puts them."""

from __future__ import annotations

from typing import Any

import msgspec

from shaketable.suites.mutants.defining import defect, replace

BUDGET, LIVE, RESUME, SAMPLES = "failure-budget", "liveness", "resume-from-checkpoint", "sample-accounting"
BOUNDS = "world-size-bounds"


# ---- the executor, and the agents it hears


@defect("driver.agents.peers", LIVE, experiment="agent-sigkill", tried="processes", within_s=60)
def broken_connection_not_noticed(peers: Any) -> None:
    """an agent whose connection broke is not lost"""
    replace(peers.Peers, "_lose", lambda original: lambda self, peer, why: self._forget(peer))


@defect("driver.agents.peers", BOUNDS, LIVE, experiment="worker-crash", tried="processes", within_s=60)
def ranks_given_backwards(peers: Any) -> None:
    """workers get their ranks in the opposite order"""
    _forked(peers, lambda fork: {"rank": fork.world_size - 1 - fork.rank})


@defect("driver.agents.peers", BOUNDS, LIVE, experiment="worker-crash", tried="processes", within_s=60)
def world_told_too_large(peers: Any) -> None:
    """workers are told of one more worker than there is"""
    _forked(peers, lambda fork: {"world_size": fork.world_size + 1})


@defect("driver.agents.peers", RESUME, experiment="worker-crash", tried="processes")
def forked_without_the_checkpoint(peers: Any) -> None:
    """workers are forked without the checkpoint to resume from"""
    _forked(peers, lambda fork: {"resume": None})


@defect("driver.agents.peers", "liveness", experiment="worker-crash", tried="processes", within_s=60)
def attempt_told_as_the_one_before(peers: Any) -> None:
    """workers are told the number of the attempt before theirs"""
    _forked(peers, lambda fork: {"attempt": max(1, fork.attempt - 1)})


@defect(
    "driver.agents.peers", "single-writer", "durability", experiment="driver-sigkill", tried="processes", within_s=60
)
def term_told_as_the_first(peers: Any) -> None:
    """workers of every driver are told that it is the first"""
    _forked(peers, lambda fork: {"term": 1})


@defect("driver.executor", LIVE, experiment="crash-loop", tried="processes", within_s=60)
def timers_never_fire(executor: Any) -> None:
    """no timer of the controller ever fires"""
    replace(executor.Executor, "_fire_timers", lambda original: lambda self, now: None)


@defect("driver.agents.words", "truthful-ending", experiment="worker-crash", tried="processes", within_s=60)
def checkpoint_taken_for_a_plain_report(words: Any) -> None:
    """a report with a checkpoint is taken for one without"""

    def make(original: Any) -> Any:
        def as_event(peer: Any, message: Any) -> Any:
            event = original(peer, message)
            plain = isinstance(event, words.ev.ReportReceived)
            return event.__class__(event.attempt, event.rank, event.index, event.metrics) if plain else event

        return as_event

    replace(words, "as_event", make)


@defect("driver.agents.words", "liveness", experiment="worker-crash", tried="processes", within_s=60)
def uploads_never_heard_of(words: Any) -> None:
    """the driver does not hear that a checkpoint is uploaded"""

    def make(original: Any) -> Any:
        def as_event(peer: Any, message: Any) -> Any:
            return None if isinstance(message, words.msg.UploadFinished) else original(peer, message)

        return as_event

    replace(words, "as_event", make)


@defect("driver.agents.words", BUDGET, LIVE, experiment="worker-crash", tried="processes", within_s=60)
def every_word_is_rank_0_s(words: Any) -> None:
    """whichever worker fails, it is booked to rank 0"""

    def make(original: Any) -> Any:
        def as_event(peer: Any, message: Any) -> Any:
            if isinstance(message, words.msg.WorkerFailed):
                return msgspec.structs.replace(message, rank=0)
            return original(peer, message)

        return as_event

    replace(words, "as_event", make)


# ---- placement on processes


@defect("driver.process_placement", LIVE, "grow-back", experiment="agent-sigkill", tried="processes", within_s=60)
def lost_place_not_probed(placement: Any) -> None:
    """no new agent is started where one was lost"""
    replace(placement.ProcessPlacement, "_probe", lambda original: lambda self, unit: None)


@defect("driver.process_placement", LIVE, "grow-back", experiment="node-added", tried="processes", within_s=60)
def new_nodes_not_looked_for(placement: Any) -> None:
    """nodes that join after the start are not seen"""

    def make(original: Any) -> Any:
        def look(self: Any, *, asked: bool = False) -> None:
            if not self._entries:
                original(self, asked=asked)

        return look

    replace(placement.ProcessPlacement, "_look_at_nodes", make)


# ---- what several have in common


def _forked(peers: Any, change: Any) -> None:
    """Agents get the order to fork with something in it changed."""

    def make(original: Any) -> Any:
        def send(self: Any, peer: Any, message: Any) -> None:
            if isinstance(message, peers.msg.Fork):
                message = msgspec.structs.replace(message, **change(message))
            original(self, peer, message)

        return send

    replace(peers.Peers, "send", make)
