"""The chart library that a page carries within itself: uPlot 1.6.32, as its npm package `uplot` has it.

uPlot draws what the page needs (lines over time, shaded stretches, a shared axis) in 51 KB, where Plotly, Bokeh and
Vega bring one megabyte or more each. No Python package carries it without a notebook's worth of others, so its two
files and its licence (MIT) lie beside the templates, unchanged.
"""

from __future__ import annotations

import functools
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "templates" / "uplot"


@functools.cache
def script() -> str:
    return (FOLDER / "uPlot.iife.min.js").read_text(encoding="utf-8")


@functools.cache
def style() -> str:
    return (FOLDER / "uPlot.min.css").read_text(encoding="utf-8")
