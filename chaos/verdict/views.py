"""What breaks in the harness itself: a view leaves a note and the verdict, a check one more reason for INVALID."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from shaketable.chaos.errors import ExperimentError

T = TypeVar("T")


def viewed(what: str, measure: Callable[[], T]) -> tuple[T | None, tuple[str, ...]]:
    """What `measure` gives, or None with a note why not: a view never takes a verdict with it."""
    try:
        return measure(), ()
    except Exception as error:  # noqa: BLE001  (the outermost boundary of a view)
        return None, (f"{what} was not computed: {broke(error)} (a bug in shaketable)",)


def heard(what: str, check: Callable[[], Iterator[str]]) -> Iterator[str]:
    """What a check says, to its end or to where it breaks, which is then its last reason: the others still speak."""
    try:
        yield from check()
    except ExperimentError:
        # a package that declares faults is broken: that is for its author to hear
        raise
    except Exception as error:  # noqa: BLE001  (a check that breaks must not take the verdict with it)
        yield f"{what} broke with {broke(error)} (a bug in shaketable)"


def broke(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
