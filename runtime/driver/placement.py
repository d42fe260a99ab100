"""Where the agents of a run are placed, and who shows its nodes: what the executor asks of Ray, or of local processes.

Two things have it: Ray (`ray_placement.py`), which is what a user runs on, and processes of this machine
(`process_placement.py`), on which the same driver, agents and workers are put through their faults in seconds. All that
is found out goes to the executor as events, so that nothing here is ever waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from shaketable.runtime.agent.loop import AgentSpec
from shaketable.runtime.controller import events as ev
from shaketable.runtime.tpu.labels import Selector
from shaketable.runtime.tpu.topology import SliceShape

# makes of work what may run on a thread: whatever ends it unforeseen ends the run
Guarded = Callable[[Callable[[], None]], Callable[[], None]]


def unguarded(work: Callable[[], None]) -> Callable[[], None]:
    return work


@dataclass(frozen=True, slots=True)
class Ask:
    """What one driver needs. `post` hands an event to the executor; `spec` is what every agent gets, `bundle` what one
    worker needs; `slices`: what a unit is on TPU; `run_key`: whose demand it is; `warn` is told what a user should
    know."""

    post: Callable[[ev.Event], None]
    spec: AgentSpec
    bundle: dict[str, float]
    slices: SliceShape | None
    run_key: str
    warn: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Silence:
    """For so long it has left a question unanswered. `unheard`: that is longer than a slow one takes, so that nobody
    knows what a node is lost for. `away`: what is lost now goes with it. `gone`: all nodes leave it, or are about to.
    `why` says so to a user."""

    seconds: float = 0.0
    unheard: bool = False
    away: bool = False
    gone: bool = False
    why: str = ""


class Placement(Protocol):
    """The units of one driver. Each call returns at once; they are carried out in order."""

    def start(self, guarded: Guarded = unguarded) -> None: ...

    def request(self, unit: ev.UnitId, selector: Selector, avoid: tuple[str, ...]) -> None:
        """A place for each worker of the unit, on nodes with these labels but not on those to `avoid`, all or nothing.
        `UnitPlaced` says that it is there; an agent is started in each place then."""
        ...

    def probe(self, unit: ev.UnitId) -> None:
        """Start a new agent in the place of each that was lost."""
        ...

    def lost(self, agent: ev.AgentId) -> None:
        """It was there, and is not any more."""
        ...

    def retry(self, agent: ev.AgentId) -> None:
        """Start a new agent in a moment: this one did not become ready."""
        ...

    def look_at_nodes(self) -> None:
        """`NodesChanged` answers, whether anything has changed or not."""
        ...

    def release(self, unit: ev.UnitId) -> None:
        """Its places go back, and its agents with them."""
        ...

    def silence(self) -> Silence:
        """Of whoever shows the nodes."""
        ...

    def excuse(self, seconds: float) -> None:
        """For so long this process stood still, and nobody could be heard."""
        ...

    def close(self, timeout_s: float) -> None:
        """Give everything back; returns when that is done, or after `timeout_s`."""
        ...


class Nodes(Protocol):
    """The nodes on which a run may be placed."""

    def join(self) -> None:
        """Raises ConfigurationError where they cannot be had."""
        ...

    def host(self) -> str:
        """The address of this machine at which agents reach it."""
        ...

    def placement(self, ask: Ask) -> Placement: ...
