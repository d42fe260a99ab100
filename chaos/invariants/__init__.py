"""The invariants: pure functions from a history to a finding, one file each. All that apply are always
judged."""

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

# In this order a verdict names the first that failed: causes before their consequences.
INVARIANTS: dict[str, Invariant] = {
    "resume-from-checkpoint": resume_from_checkpoint,
    "world-size-bounds": world_size_bounds,
    "slice-atomicity": slice_atomicity,
    "single-writer": single_writer,
    "durability": durability,
    "failure-budget": failure_budget,
    "sample-accounting": sample_accounting,
    "liveness": liveness,
    "grow-back": grow_back,
    "no-leaks": no_leaks,
    "truthful-ending": truthful_ending,
    "metrics-match": metrics_match,
}
