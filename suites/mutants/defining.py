"""What a mutant is, and the two tools that patches are made of: both keep what they replaced, so that a patch can be
taken back in the process that has it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

RUNTIME = "shaketable.runtime"
Patch = Callable[[Any], None]

# processes, local: a cluster of that kind, where the simulation cannot tell
Place = Literal["simulation", "processes", "local", "tests"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`patch` gets the runtime's `module` once that has been imported. It must be caught by one of `caught_by`, in
    simulation or by `experiment` of the catalogue on a real cluster (`tried` says where first); one that never ends is
    given `within_s` seconds there instead of what the experiment has. `on_slices`: the schedules are those on TPU
    slices. `tests`: the test of the project that fails with it, where neither of the two can tell."""

    name: str
    description: str
    module: str
    patch: Patch
    caught_by: tuple[str, ...]
    tried: Place = "simulation"
    experiment: str = ""
    within_s: float | None = None
    on_slices: bool = False
    tests: str = ""


MUTANTS: dict[str, Mutant] = {}


def defect(
    module: str,
    *caught_by: str,
    experiment: str = "",
    tried: Literal["simulation", "processes", "local"] = "simulation",
    within_s: float | None = None,
    on_slices: bool = False,
    tests: str = "",
) -> Callable[[Patch], Patch]:
    """Registers a patch of `shaketable.runtime.<module>` by its function's name; its docstring says what it breaks. A
    module whose name begins with `shaketable.` is of another floor."""

    def register(patch: Patch) -> Patch:
        name = patch.__name__.replace("_", "-")
        text = " ".join((patch.__doc__ or "").split())
        place = module if module.startswith("shaketable.") else f"{RUNTIME}.{module}"
        if name in MUTANTS:
            raise ValueError(f"two mutants are called {name}")
        where = "tests" if tests else tried
        MUTANTS[name] = Mutant(name, text, place, patch, caught_by, where, experiment, within_s, on_slices, tests)
        return patch

    return register


# ---- replacing, and taking it back

# how to take back what was replaced, in its order
_replaced: list[Callable[[], None]] = []


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Puts `make(original)` in the place of `owner.name`, which must exist."""
    original = inspect.getattr_static(owner, name)
    setattr(owner, name, make(original))
    _replaced.append(lambda: setattr(owner, name, original))


def replace_item(table: Any, key: Any, make: Callable[[Any], Any]) -> None:
    """The same for an entry of a table."""
    original = table[key]
    table[key] = make(original)
    _replaced.append(lambda: table.__setitem__(key, original))


def taken_back() -> AbstractContextManager[None]:
    """What is replaced inside is put back at the end."""

    @contextmanager
    def context() -> Any:
        mark = len(_replaced)
        try:
            yield
        finally:
            while len(_replaced) > mark:
                _replaced.pop()()

    return context()
