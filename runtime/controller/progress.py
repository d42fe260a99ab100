"""How far the ranks of an attempt are. Pure; whether all have passed a report is known without asking each of them."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from heapq import heappop, heappush


@dataclass(slots=True, eq=False)
class Progress:
    """How far each rank is, and how far the slowest of those that have not finished."""

    world_size: InitVar[int]
    index: InitVar[int]
    watermarks: list[int] = field(init=False)
    _finished: set[int] = field(default_factory=set)
    # watermark -> how many unfinished ranks are there
    _at: dict[int, int] = field(init=False)
    # a heap of the keys of `_at`; an empty one goes once it is on top
    _marks: list[int] = field(init=False)

    def __post_init__(self, world_size: int, index: int) -> None:
        self.watermarks, self._at, self._marks = [index] * world_size, {index: world_size}, [index]

    def reach(self, rank: int, index: int) -> None:
        before = self.watermarks[rank]
        if index <= before:
            return
        self.watermarks[rank] = index
        if rank in self._finished:
            return
        if index in self._at:
            self._at[index] += 1
        else:
            self._at[index] = 1
            heappush(self._marks, index)
        self._leave(before)

    def finish(self, rank: int) -> None:
        """A rank that finished has passed everything."""
        if rank not in self._finished:
            self._finished.add(rank)
            self._leave(self.watermarks[rank])

    @property
    def lowest(self) -> int | None:
        """How far the slowest is of those that have not finished; None if all have."""
        return self._marks[0] if self._marks else None

    def behind(self) -> list[int]:
        """The ranks that are there."""
        lowest = self.lowest
        marks = enumerate(self.watermarks)
        return [rank for rank, mark in marks if mark == lowest and rank not in self._finished]

    def _leave(self, mark: int) -> None:
        at, marks = self._at, self._marks
        at[mark] -= 1
        while marks and not at[marks[0]]:
            del at[heappop(marks)]

    def passed(self, rank: int, index: int) -> bool:
        return rank in self._finished or self.watermarks[rank] >= index

    def all_passed(self, index: int) -> bool:
        return not self._marks or self._marks[0] >= index
