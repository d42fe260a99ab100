"""The state diagram in docs/architecture.md is drawn from the controller's own tables.

`python -m shaketable.suites.tests.runtime.test_docs_state_diagram` writes it anew.
"""

from __future__ import annotations

from pathlib import Path

from shaketable.runtime.controller import EVENT_TRANSITIONS, STATE_TRANSITIONS, State

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "architecture.md"
BEGIN, END = "<!-- states: begin -->", "<!-- states: end -->"


# Reached from nearly everywhere: the text says so, and the diagram can be read.
ANYWHERE = {State.FAILED, State.INTERRUPTED, State.FENCED}


def diagram() -> str:
    """Every way from one state to another: by an event, whichever it is, else by the condition written at the arrow."""
    labels = {(a, b): f": {condition}" for a, rows in STATE_TRANSITIONS.items() for condition, b in rows}
    by_event = {(a, b) for a, row in EVENT_TRANSITIONS.items() for targets in row.values() for b in targets}
    labels |= dict.fromkeys((arrow for arrow in by_event if arrow[0] is not arrow[1]), "")
    order = list(State)
    arrows = sorted(
        (arrow for arrow in labels if arrow[1] not in ANYWHERE), key=lambda arrow: [order.index(s) for s in arrow]
    )
    lines = ["[*] --> NEW", *(f"{a} --> {b}{labels[a, b]}" for a, b in arrows), "FINISHED --> [*]"]
    body = "\n".join(f"    {line}" for line in lines)
    return f"\n```mermaid\nstateDiagram-v2\n{body}\n```\n"


def test_the_documented_state_diagram_is_the_one_of_the_transition_tables() -> None:
    text = DOCUMENT.read_text()
    assert text.split(BEGIN)[1].split(END)[0] == diagram(), f"write it anew: python -m {__spec__.name}"


if __name__ == "__main__":
    old = DOCUMENT.read_text()
    DOCUMENT.write_text(old.split(BEGIN)[0] + BEGIN + diagram() + END + old.split(END)[1])
