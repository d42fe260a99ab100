"""The state diagram in docs/architecture.md is drawn from the controller's own table.

`python -m shaketable.suites.tests.test_docs_state_diagram` writes it anew.
"""

from __future__ import annotations

from pathlib import Path

from shaketable.runtime.controller import END as ENDINGS
from shaketable.runtime.controller import TRANSITIONS, State

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
BEGIN, END = "<!-- states: begin -->", "<!-- states: end -->"


# Reached from nearly everywhere: the text says so, and the diagram can be read.
ANYWHERE = {State.FAILED, State.INTERRUPTED, State.FENCED}


def diagram() -> str:
    """Every way from one state to another, whatever the event. An attempt's end is drawn through STOPPING only,
    although with nobody left to be stopped the controller is through it in the same turn."""
    arrows = {
        (a, b)
        for a, row in TRANSITIONS.items()
        for ways in row.values()
        for b in _drawn(a, ways)
        if a is not b
    }
    order = list(State)
    ordered = sorted(arrows, key=lambda arrow: (order.index(arrow[0]), order.index(arrow[1])))
    lines = ["[*] --> NEW", *(f"{a} --> {b}" for a, b in ordered), "FINISHED --> [*]"]
    body = "\n".join(f"    {line}" for line in lines)
    return f"\n```mermaid\nstateDiagram-v2\n{body}\n```\n"


def _drawn(state: State, ways: tuple[State, ...]) -> set[State]:
    through = (
        set(ENDINGS) - {State.STOPPING}
        if state is not State.STOPPING and set(ENDINGS) <= set(ways)
        else set()
    )
    return set(ways) - through - ANYWHERE


def test_the_documented_state_diagram_is_the_one_of_the_transition_table() -> None:
    text = DOCUMENT.read_text()
    assert text.split(BEGIN)[1].split(END)[0] == diagram(), f"write it anew: python -m {__spec__.name}"


if __name__ == "__main__":
    old = DOCUMENT.read_text()
    DOCUMENT.write_text(old.split(BEGIN)[0] + BEGIN + diagram() + END + old.split(END)[1])
