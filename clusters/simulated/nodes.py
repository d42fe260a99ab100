"""The nodes of a simulated cluster, what is leased of them, and how long things take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from shaketable.clusters.slice_states import SliceState

# seconds, from and to
Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How long things take a cluster, in seconds. Measured with Ray 2.60 (docs/simulation.md)."""

    # a change in Ray's own view -> whoever polls it
    view: Range = (0.05, 0.55)
    # a node's processes are gone -> dead in Ray's view
    killed_seen: Range = (10.0, 16.0)
    # a node says nothing any more -> dead in Ray's view
    frozen_seen: Range = (29.0, 62.0)
    drain_seen: Range = (0.02, 0.5)
    # a drained node that is idle -> gone
    exit: Range = (0.3, 1.0)
    # a SIGTERMed node that stays busy
    busy_exit_s: float = 30.0
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
    # Ray's view
    seen: Literal["alive", "dead"] = "alive"
    # by SIGKILL: it did not leave by itself
    killed: bool = False
    # how often it was told to go
    notices: int = 0
    draining: bool = False
    seen_draining: bool = False
    # Ray forgets the oldest of the dead
    listed: bool = True
    # of the drain, virtual time; 0: none was named
    deadline_s: float = 0.0
    # Ray has declared it dead while it was frozen: it ends when it thaws
    given_up: bool = False
    # its processes run, and nothing of it answers Ray
    raylet_frozen: bool = False
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
    # that its nodes have to be of; empty: of any
    tier: str = ""
    # ids of nodes on which it is not to be
    avoid: tuple[str, ...] = ()
    nodes: tuple[SimulatedNode, ...] = ()
    given_back: bool = False
    wanted: tuple[SimulatedNode, ...] = ()
