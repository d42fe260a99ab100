"""What is declared here and by other packages: ours, and what the entry points of a group name.

Entry points are read when somebody first asks, so importing costs nothing and a broken package breaks no import.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, ItemsView, Iterable, Iterator, MutableMapping, ValuesView
from importlib.metadata import EntryPoint
from typing import Generic, TypeVar

from shaketable.chaos.errors import ExperimentError

T = TypeVar("T")


class Declarations(MutableMapping[str, T], Generic[T]):
    """By name, in the order of declaration, or by `order`. `check` returns what is wrong with an object that a package
    declares, or an empty string. Asking for anything raises ExperimentError, naming the package, where one is broken.
    """

    def __init__(
        self,
        group: str,
        ours: Iterable[tuple[str, T]],
        check: Callable[[str, object], str],
        order: Callable[[T], int] = lambda declared: 0,
    ) -> None:
        self.group, self._check, self._order = group, check, order
        self._ours = dict(ours)
        self._all: dict[str, T] | None = None

    def __getitem__(self, name: str) -> T:
        return self._declared()[name]

    def __setitem__(self, name: str, declared: T) -> None:
        self._declared()[name] = declared

    def __delitem__(self, name: str) -> None:
        del self._declared()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared())

    def __len__(self) -> int:
        return len(self._declared())

    # the mapping's own ask for one name after the other, which takes several times as long
    def values(self) -> ValuesView[T]:
        return self._declared().values()

    def items(self) -> ItemsView[str, T]:
        return self._declared().items()

    def forget(self) -> None:
        """Read the entry points again at the next question."""
        self._all = None

    def _declared(self) -> dict[str, T]:
        if self._all is None:
            found = dict(self._ours)
            for entry in importlib.metadata.entry_points(group=self.group):
                if entry.name in found:
                    raise _broken(entry, "there is one of this name already")
                found[entry.name] = self._loaded(entry)
            self._all = dict(sorted(found.items(), key=lambda item: self._order(item[1])))
        return self._all

    def _loaded(self, entry: EntryPoint) -> T:
        try:
            declared: T = entry.load()
        except Exception as error:
            raise _broken(entry, f"it cannot be loaded: {type(error).__name__}: {error}") from error
        if wrong := self._check(entry.name, declared):
            raise _broken(entry, wrong)
        return declared


def _broken(entry: EntryPoint, why: str) -> ExperimentError:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "a package"
    return ExperimentError(
        f"{package} declares {entry.name!r} of {entry.group} as {entry.value}: {why}; fix or uninstall that package"
    )
