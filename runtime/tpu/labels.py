"""Labels of nodes, and what is asked of them, as Ray means it: a value, `!value`, `in(a, b)` or `!in(a, b)`. Pure.

Ray applies a selector itself where it looks for a place. On TPU a slice is chosen before Ray is asked.
"""

from __future__ import annotations

from collections.abc import Mapping

# labels of nodes
Selector = tuple[tuple[str, str], ...]


def lacking(labels: Mapping[str, str], selector: Selector) -> str:
    """The first condition that a node with these labels does not fulfil, as "key=condition"; empty: it has them all."""
    return next((f"{key}={wanted}" for key, wanted in selector if not _fulfilled(labels.get(key), wanted)), "")


def _fulfilled(value: str | None, wanted: str) -> bool:
    """A node without the label has none of the values."""
    if wanted.startswith("!"):
        return not _fulfilled(value, wanted[1:])
    if wanted.startswith("in(") and wanted.endswith(")"):
        return value in [each.strip() for each in wanted[3:-1].split(",")]
    return value == wanted
