"""What an invariant is, and the three answers that it may give. Reasons are one precise sentence, without the
invariant's name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shaketable.chaos.history.view import History
from shaketable.chaos.plan import Finding

Check = Callable[[History], Finding]


@dataclass(frozen=True, slots=True)
class Invariant:
    """Call it with a history. A verdict names the first invariant that failed, in the order of `order`: causes before
    their consequences. `unrecorded` says why a recording of a production run cannot answer it; empty: it can.
    `parameters` are its stated figures, for the docs."""

    name: str
    check: Check
    order: int
    unrecorded: str
    parameters: Mapping[str, object]

    def __call__(self, history: History) -> Finding:
        return self.check(history)

    @property
    def says(self) -> str:
        """What it demands: the first paragraph of its docstring, or of its module's."""
        text = inspect.getdoc(self.check) or inspect.getdoc(inspect.getmodule(self.check)) or ""
        return " ".join(text.split("\n\n")[0].split()).removeprefix(f"{self.name}: ")


def invariant(name: str, *, order: int, unrecorded: str = "", **parameters: object) -> Callable[[Check], Invariant]:
    """Declares a function as an invariant."""
    return lambda check: Invariant(name, check, order, unrecorded, parameters)


def passed(name: str, reason: str) -> Finding:
    return Finding(name, "PASS", reason)


def failed(name: str, reason: str) -> Finding:
    return Finding(name, "FAIL", reason)


def not_applicable(name: str, reason: str) -> Finding:
    return Finding(name, "NOT APPLICABLE", reason)


def counted(number: int, noun: str) -> str:
    """`1 commit`, `2 commits`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
