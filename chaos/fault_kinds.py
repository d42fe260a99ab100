"""What the judge knows of a fault by its name: what it takes away, how, and which account it may be charged to. Pure.

The answers are those of the fault's own class (`faults/`), which the judge must not import: a fault does things, and a
judge only reads. So the classes are looked up by name when the first history is judged.
"""

from __future__ import annotations

import functools
import importlib
from typing import Literal, Protocol

from shaketable.chaos.constraints import Account

FAILURES = "max_failures"
PREEMPTIONS = "max_preemption_failures"
STARTS = "max_start_failures"

# agent: the worker, and the lease of its place with it. The node is still there.
Loss = Literal["worker", "agent", "node", "driver", "checkpoint", "storage", "everything", "nothing"]
# killed: gone at once. announced: goes after a notice. frozen: neither dies nor answers, and may go on later.
# interrupted: asked to go by a signal. raises: the training function ends with an error. hangs: it never goes on.
# hurt: it is there and does not work.
Manner = Literal["killed", "announced", "frozen", "interrupted", "raises", "hangs", "hurt", "none"]


Cause = Literal["worker_death", "worker_error", "hung", "node_lost"]


class FaultKind(Protocol):
    """The part of a fault's declaration that a verdict depends on. A class of a fault is one."""

    name: str
    loss: Loss
    manner: Manner
    charged_to: Account | None
    causes: tuple[Cause, ...]
    makes_good: Loss
    ends_with: tuple[int, ...]


class Unknown:
    """A fault of a package that is not installed here."""

    loss: Loss = "nothing"
    manner: Manner = "none"
    charged_to: Account | None = None
    causes: tuple[Cause, ...] = ()
    makes_good: Loss = "nothing"
    ends_with: tuple[int, ...] = ()

    def __init__(self, name: str) -> None:
        self.name = name


@functools.cache
def kind_of(name: str) -> FaultKind:
    """Raises ExperimentError where a package that declares faults is broken."""
    declared: FaultKind | None = importlib.import_module("shaketable.chaos.faults").declared(name)
    return declared or Unknown(name)


def is_known(name: str) -> bool:
    return not isinstance(kind_of(name), Unknown)


def takes_node(name: str) -> bool:
    return kind_of(name).loss == "node"


def takes_place(name: str) -> bool:
    """A place that the run held is to be had anew, on this node or another."""
    return kind_of(name).loss in ("agent", "node")


def takes_driver(name: str) -> bool:
    return kind_of(name).loss == "driver"


def is_announced(name: str) -> bool:
    return kind_of(name).manner == "announced"


def is_frozen(name: str) -> bool:
    return kind_of(name).manner == "frozen"


def may_pass(name: str) -> bool:
    """A worker that is stopped for a while may go on as if nothing had been."""
    return is_frozen(name) and kind_of(name).loss == "worker"
