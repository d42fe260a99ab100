"""The nodes of a simulated cluster, what is leased of them, and how long things take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from shaketable.clusters.slice_states import SliceState

Range = tuple[float, float]  # seconds, from and to


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How long things take a cluster, in seconds. Measured with Ray 2.60 (docs/simulation.md)."""

    view: Range = (0.05, 0.55)  # a change in Ray's own view -> whoever polls it
    killed_seen: Range = (10.0, 16.0)  # a node's processes are gone -> dead in Ray's view
    frozen_seen: Range = (29.0, 62.0)  # a node says nothing any more -> dead in Ray's view
    drain_seen: Range = (0.02, 0.5)
    exit: Range = (0.3, 1.0)  # a drained node that is idle -> gone
    busy_exit_s: float = 30.0  # a SIGTERMed node that stays busy
    join: Range = (1.5, 4.0)
    place: Range = (0.02, 0.3)


State = Literal["up", "frozen", "gone"]


@dataclass(frozen=True, slots=True)
class SliceKind:
    """What the labels of TPU hosts say. `states`: of the slices that are there from the beginning; later ones are
    whole."""

    topology: str
    pod_type: str
    chips_per_host: float
    states: Sequence[SliceState] = ()


@dataclass(slots=True)
class SimulatedNode:
    """`number` as the harness counts, `group` the slice it is a host of (its own where there are none), `place` in it.
    Of a TPU host: its labels as they stand, `chips`, how many of them others hold (`taken`), whether its slice is
    `odd`, and whether it is the `sick` host of it."""

    number: int
    node_id: str
    group: int
    place: int
    state: State = "up"
    seen: Literal["alive", "dead"] = "alive"  # Ray's view
    draining: bool = False
    seen_draining: bool = False
    deadline_s: float = 0.0  # of the drain, virtual time; 0: none was named
    given_up: bool = False  # Ray has declared it dead while it was frozen: it ends when it thaws
    tier: str = ""
    lease: Lease | None = None
    frozen_count: int = 0
    on_change: list[Callable[[SimulatedNode], None]] = field(default_factory=list)
    slice: str = ""
    worker: str = ""
    topology: str = ""
    pod_type: str = ""
    chips: float = 0.0
    taken: float = 0.0
    odd: bool = False
    sick: bool = False

    @property
    def usable_slice(self) -> str:
        """Its slice, if a run could use that."""
        return "" if self.odd else self.slice


@dataclass(slots=True)
class Lease:
    """A placement group: one whole group of nodes, or a wish for one. `placed` is called whenever it gets its place,
    `unplaced` when Ray has declared a node of it dead and looks for another. `wanted`: on these very nodes, from which
    Ray cannot move it."""

    placed: Callable[[tuple[SimulatedNode, ...]], None]
    unplaced: Callable[[], None]
    tier: str = ""  # that its nodes have to be of; empty: of any
    avoid: tuple[str, ...] = ()  # ids of nodes on which it is not to be
    nodes: tuple[SimulatedNode, ...] = ()
    given_back: bool = False
    wanted: tuple[SimulatedNode, ...] = ()
