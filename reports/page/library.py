"""The chart library that a page carries within itself: uPlot, of the package uplot-python.

uPlot draws what the page needs (lines over time, shaded stretches, a shared axis) in 120 KB, where Plotly, Bokeh and
Vega bring one megabyte or more each. Only its two files are read: nothing of the package's Python is imported, so that
no page needs IPython to be written. Their licence (MIT) stands in the first lines of the script.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

PACKAGE, SCRIPT, STYLE = "uplot", "static/uPlot.iife.js", "static/uPlot.min.css"


@functools.cache
def script() -> str:
    """Raises ImportError, with what to install."""
    return _read(SCRIPT)


@functools.cache
def style() -> str:
    return _read(STYLE)


def _read(name: str) -> str:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ImportError(f"the report needs {PACKAGE}: pip install 'shaketable[chaos]'")
    return (Path(found.submodule_search_locations[0]) / name).read_text(encoding="utf-8")
