"""The errors of the harness: all derive from `ChaosError`, and those of one module alone stand there.

What the author of an experiment got wrong is an `ExperimentError`, said so that it can be put right. It is usage (exit
code 2), never a verdict, and raised before anything is started.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ChaosError(Exception):
    """What every error of chaos, reports and suites derives from."""


class ExperimentError(ChaosError, ValueError):
    """The experiment as written cannot be run; the message names the place, what was seen, and what to write."""


def nearest(name: object, known: Iterable[str]) -> str:
    """`did you mean 'x'?`, or the list of what there is."""
    choices = sorted(known)
    near = difflib.get_close_matches(str(name), choices, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(choices)}"


def shown(mapping: object) -> str:
    """A small mapping as it stands in an experiment file: `{step: 12}`."""
    if not isinstance(mapping, dict):
        return repr(mapping)
    return (
        "{"
        + ", ".join(f"{key}: {shown(value) if isinstance(value, dict) else value}" for key, value in mapping.items())
        + "}"
    )
