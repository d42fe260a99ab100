"""A process in virtual time that can be stopped and goes on later (SIGSTOP, SIGCONT)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

Call = tuple[Callable[..., None], tuple[Any, ...]]


@dataclass(slots=True)
class Process:
    """`put_off`: what it will do when it goes on, in this order."""

    frozen: bool = False
    put_off: list[Call] = field(default_factory=list)


class PartOfProcess(Protocol):
    process: Process


_Own = TypeVar("_Own", bound=Callable[..., None])


def own(method: _Own) -> _Own:
    """What the process itself does: not while it is stopped, but as soon as it goes on."""

    @functools.wraps(method)
    def when_it_runs(self: PartOfProcess, *arguments: Any) -> None:
        if self.process.frozen:
            self.process.put_off.append((method, (self, *arguments)))
        else:
            method(self, *arguments)

    return when_it_runs  # type: ignore[return-value]
