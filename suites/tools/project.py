"""`[tool.shaketable]` of the nearest pyproject.toml: what `shaketable run` does in this project unless told
otherwise."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec

from shaketable.suites.gate.catalogue import UsageError, nearest

FILE = "pyproject.toml"


@dataclass(frozen=True, slots=True)
class Project:
    """Each key is the option of the same name. `results` is the directory that result folders are made in, and
    `compare_with` an earlier run; both are relative to the file. `tags` are run where no experiment is named."""

    subject: str | None = None
    cluster: str | None = None
    tags: tuple[str, ...] = ()
    jobs: int | None = None
    results: str | None = None
    compare_with: str | None = None
    max_slower: str | None = None
    path: str = ""

    def __str__(self) -> str:
        said = [f"{name}={value}" for name in KEYS if (value := getattr(self, name))]
        return f"settings of {self.path}: {', '.join(said)}"

    @property
    def says_something(self) -> bool:
        return any(getattr(self, name) for name in KEYS)

    def below(self, value: str | None) -> Path | None:
        """A path of the file, from the working directory."""
        return None if value is None else Path(self.path).parent / value


KEYS = tuple(each.name for each in fields(Project) if each.name != "path")


def read(start: Path) -> Project:
    """From `start` upwards. Nothing where there is no such table. Raises UsageError that names file and key."""
    for folder in (start, *start.parents):
        if (folder / FILE).is_file():
            table = _table(folder / FILE)
            return Project() if table is None else _project(table, folder / FILE)
    return Project()


def _table(path: Path) -> Mapping[str, Any] | None:
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    table = content.get("tool", {}).get("shaketable")
    if table is not None and not isinstance(table, Mapping):
        raise UsageError(f"{path}: [tool.shaketable] must be a table")
    return table


def _project(table: Mapping[str, Any], path: Path) -> Project:
    named = {key.replace("-", "_"): value for key, value in table.items()}
    for key in named:
        if key not in KEYS:
            raise UsageError(f"{path}: [tool.shaketable] has no key {key!r}{nearest(key, KEYS)}")
    try:
        return msgspec.convert({**named, "path": str(path)}, Project)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: [tool.shaketable]: {error}") from None
