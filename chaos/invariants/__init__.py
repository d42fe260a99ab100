"""The invariants: pure functions from a history to a finding, one file each. All that apply are always judged.

Ours are those imported below, one line each; their order is what they declare. Other packages declare theirs with an
entry point of the group `shaketable.invariants` (docs/writing-invariants.md).
"""
# ruff: noqa: F401  (to import an invariant is to declare it)

from __future__ import annotations

from shaketable.chaos.invariants.durability import durability
from shaketable.chaos.invariants.failure_budget import failure_budget
from shaketable.chaos.invariants.findings import Invariant
from shaketable.chaos.invariants.grow_back import grow_back
from shaketable.chaos.invariants.liveness import liveness
from shaketable.chaos.invariants.metrics_match import metrics_match
from shaketable.chaos.invariants.no_leaks import no_leaks
from shaketable.chaos.invariants.resume_from_checkpoint import resume_from_checkpoint
from shaketable.chaos.invariants.sample_accounting import sample_accounting
from shaketable.chaos.invariants.single_writer import single_writer
from shaketable.chaos.invariants.slice_atomicity import slice_atomicity
from shaketable.chaos.invariants.truthful_ending import truthful_ending
from shaketable.chaos.invariants.world_size_bounds import world_size_bounds
from shaketable.chaos.plugins import Declarations

__all__ = ["GROUP", "INVARIANTS", "OWN", "Invariant"]

GROUP = "shaketable.invariants"


def _wrong(name: str, declared: object) -> str:
    """What is wrong with what another package declares; empty: nothing."""
    if not isinstance(declared, Invariant):
        return f"{declared!r} is no function under @{Invariant.__module__}.invariant"
    return "" if declared.name == name else f"it is named {declared.name!r}"


_OURS = [(value.name, value) for value in tuple(globals().values()) if isinstance(value, Invariant)]
OWN = frozenset(name for name, _ in _OURS)
# In this order a verdict names the first that failed.
INVARIANTS: Declarations[Invariant] = Declarations(GROUP, _OURS, _wrong, order=lambda invariant: invariant.order)
