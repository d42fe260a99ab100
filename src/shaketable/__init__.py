"""Shaketable: put elastic training through an earthquake before anyone lives in it.

What a test in your own repository needs is here: `shake`, the faults, the targets and the triggers. The runtime is
`shaketable.runtime`. Everything loads lazily: importing this package imports neither ray nor any extra.

The names and signatures of the faults come from their declarations; `__init__.pyi` has them for type checkers, written
by `python -m shaketable.suites.tests.chaos.test_vocabulary_written`.
"""

from __future__ import annotations

import importlib
from typing import Any

SHAKING = ("ShakeFailed", "ShakeInvalid", "Shaken", "shake")
# the only thing here that needs Ray Train
RECORDER = "Recorder"


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return _all()
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == RECORDER:
        return importlib.import_module("shaketable.chaos.subjects.ray_train.recorder_entry").recorder()
    if name in SHAKING:
        return getattr(importlib.import_module("shaketable.suites.gate.shake"), name)
    vocabulary = importlib.import_module("shaketable.chaos.experiment.vocabulary")
    if name not in vocabulary.names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(vocabulary, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_all()})


def _all() -> list[str]:
    return sorted([RECORDER, *SHAKING, *importlib.import_module("shaketable.chaos.experiment.vocabulary").names()])
