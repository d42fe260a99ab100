"""Python imports this at start-up wherever this directory is on the path: it watches for modules of the runtime, and
lets `shaketable.suites.mutants.patches` break those that the mutants in SHAKETABLE_MUTANT are of, right after
their import.

It imports nothing of shaketable itself, so that unrelated processes start as fast as ever.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
# the runtime, and what figures are made by
WATCHED = ("shaketable.runtime.", "shaketable.chaos.verdict.", "shaketable.reports.")


class Watcher:
    """A finder that finds nothing by itself: it hooks itself into what the others find."""

    def __init__(self) -> None:
        self._busy = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if self._busy or not (name == "ray" or name.startswith(WATCHED)):
            return None
        # the search below comes by here again
        self._busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy = False
        return self._hooked(spec) if spec and spec.loader else None

    def _hooked(self, spec: ModuleSpec) -> ModuleSpec:
        loader = spec.loader
        assert loader is not None
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            from shaketable.suites.mutants import patches

            patches.apply(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _next_sitecustomize() -> None:
    """The one that we stand in front of, where the system has one."""
    others = [entry for entry in sys.path if Path(entry).resolve() != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_next_sitecustomize()
if os.environ.get("SHAKETABLE_MUTANT"):
    sys.meta_path.insert(0, Watcher())
