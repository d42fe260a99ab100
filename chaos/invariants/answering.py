"""What an invariant answers, whatever happens in it. One that crashes is one INVALID finding, so that the others are
still heard."""

from __future__ import annotations

from shaketable.chaos.history.view import History
from shaketable.chaos.invariants import OWN
from shaketable.chaos.invariants.findings import Invariant
from shaketable.chaos.plan import Finding


def answer(invariant: Invariant, history: History) -> Finding:
    """Its finding. If it raises: INVALID, with the error and with whose bug that is."""
    try:
        return invariant(history)
    except Exception as error:  # noqa: BLE001  (a check that breaks must not take the verdict with it)
        whose = "shaketable" if invariant.name in OWN else "the package that declares it"
        return Finding(invariant.name, "INVALID", f"broke with {type(error).__name__}: {error} (a bug in {whose})")
