"""What a fault can lay its hands on in virtual time (`docs/simulation.md`).

The simulated run behind this is `simulation/subject/scene.py`. A fault does here what it does to real processes, and
looks for its evidence in the simulated world, never at what it did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from shaketable.chaos.injection.scene import OtherRun

if TYPE_CHECKING:
    from shaketable.chaos.storage.rules import Struck
    from shaketable.clusters.simulated.cluster import SimulatedCluster
    from shaketable.clusters.simulated.nodes import SimulatedNode


class SimulatedWorker(Protocol):
    """A worker's process."""

    alive: bool
    frozen: bool
    # What it is asked to do at its next report, and whether it has.
    raises: bool
    raised: bool
    hangs: bool
    hung: bool
    # its steps take so many times as long
    factor: float

    @property
    def last_word_s(self) -> float:
        """When it last said something, in virtual time."""
        ...

    def kill(self) -> None: ...

    def kill_agent(self) -> None:
        """The process that holds the worker's lease dies, and the worker with it."""
        ...

    @property
    def agent_alive(self) -> bool: ...

    def ask_to_raise(self) -> None: ...
    def ask_to_hang(self) -> None: ...
    def slow_down(self, factor: float) -> None: ...

    def freeze(self) -> None: ...
    def thaw(self) -> None: ...


class SimulatedDriver(Protocol):
    """A driver's process."""

    @property
    def frozen(self) -> bool: ...

    def kill(self) -> None: ...
    def interrupt(self, signal: int) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...


class SimulatedScene(Protocol):
    """The simulated run and its cluster."""

    @property
    def now_s(self) -> float: ...

    @property
    def cluster(self) -> SimulatedCluster: ...

    def workers(self, pids: Iterable[int]) -> Sequence[SimulatedWorker]:
        """Those of these processes that are there."""
        ...

    def driver(self, pid: int) -> SimulatedDriver | None:
        """None: it is gone."""
        ...

    def exit_code(self, pid: int) -> int | None:
        """Of a driver; None: it runs."""
        ...

    def start_driver(self, changed: dict[str, Any]) -> int: ...

    def start_beside(self, changed: dict[str, Any]) -> OtherRun:
        """Another run of the same job on the cluster."""
        ...

    def joined(self, node: SimulatedNode) -> None:
        """Say that this node was added."""
        ...

    @property
    def struck(self) -> list[Struck]:
        """The rules that hurt the storage's requests."""
        ...

    @property
    def records(self) -> dict[int, bytes]:
        """The run log, by number."""
        ...

    @property
    def files(self) -> Mapping[str, dict[str, bytes]]:
        """The files of each checkpoint."""
        ...

    def commits(self) -> list[str]:
        """The checkpoints that are there to resume from, the latest last."""
        ...
