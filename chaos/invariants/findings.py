"""The three answers an invariant may give. Reasons are one precise sentence, without the invariant's name."""

from __future__ import annotations

from collections.abc import Callable

from shaketable.chaos.invariants.view import History
from shaketable.chaos.plan import Finding

Invariant = Callable[[History], Finding]


def passed(name: str, reason: str) -> Finding:
    return Finding(name, "PASS", reason)


def failed(name: str, reason: str) -> Finding:
    return Finding(name, "FAIL", reason)


def not_applicable(name: str, reason: str) -> Finding:
    return Finding(name, "NOT APPLICABLE", reason)


def counted(number: int, noun: str) -> str:
    """`1 commit`, `2 commits`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
