"""A sequence that is only ever added to at its end, and is still a value: `appended` gives a new one and leaves the old
one as it was. Both share one list, so a step costs the same however long the sequence is. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, overload

T = TypeVar("T")


class Trail(Sequence[T]):
    """What lies in `items` from `start` up to `stop`.

    `tip` holds one token while nothing has been added behind this trail. Whoever takes it may add to the shared list;
    who comes second, or from another thread, makes a list of its own. Taking it is one atomic `pop`.
    """

    __slots__ = ("_items", "_start", "_stop", "_tip")

    def __init__(self, items: list[T] | None = None, start: int = 0) -> None:
        """Takes `items` over: nobody else may change it."""
        self._items: list[T] = [] if items is None else items
        self._start, self._stop, self._tip = start, len(self._items), [True]

    def appended(self, item: T) -> Trail[T]:
        items, start = self._items, self._start
        try:
            self._tip.pop()
        except IndexError:
            items, start = items[start : self._stop], 0
        items.append(item)
        return Trail(items, start)

    def without(self, place: int) -> Trail[T]:
        """Without the item at `place`. At the front, where it is nearly always, this costs nothing to speak of."""
        items, start = self._items, self._start
        if place == 0 and 2 * start < self._stop and self._take_tip():
            return Trail(items, start + 1)
        return Trail([*items[start : start + place], *items[start + place + 1 : self._stop]])

    def _take_tip(self) -> bool:
        try:
            return self._tip.pop()
        except IndexError:
            return False

    def __len__(self) -> int:
        return self._stop - self._start

    def __bool__(self) -> bool:
        return self._stop > self._start

    def __iter__(self) -> Iterator[T]:
        items = self._items
        return (items[place] for place in range(self._start, self._stop))

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[T, ...]: ...

    def __getitem__(self, place: int | slice) -> T | tuple[T, ...]:
        length = self._stop - self._start
        if isinstance(place, slice):
            items, start = self._items, self._start
            return tuple(items[start + k] for k in range(*place.indices(length)))
        if not -length <= place < length:
            raise IndexError(f"place {place} of {length}")
        return self._items[self._start + place if place >= 0 else self._stop + place]

    def __eq__(self, other: Any) -> bool:
        """Equal to any trail or tuple of equal items."""
        if not isinstance(other, Trail | tuple):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as of a list: its items need not have one

    def __repr__(self) -> str:
        return repr(tuple(self))
