"""Which experiments there are: the YAML files that ship in `experiments/`, and any file a user names.

A catalogue name is a file's name without its suffix. Selection happens here, so that a misspelt name or key is
answered with what was probably meant, before anything is started.
"""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from shaketable.chaos.plan import ATTACH

FOLDER = Path(__file__).parent / "experiments"
SUFFIXES = (".yaml", ".yml")
# A tag of experiments that not everything can run -> the key that decides, what they need it to be, and why.
NEEDS = {
    "bundled": ("subject", "bundled", "only the bundled runtime has what they need"),
    "processes": ("cluster", "local", "they need real processes, which nothing simulates"),
}
MODULES = {
    "torch": "torch",
    "jax": "orbax",
}  # tag, which is also the extra's name -> the module that it needs


class UsageError(Exception):
    """The user asked for something that cannot be; the message says what, and what to do. Exit code 2."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One experiment file, read but not judged: its own validation is the toolkit's."""

    name: str
    path: Path
    title: str
    tags: tuple[str, ...]
    configuration: Mapping[str, Any]

    def value(self, key: str, variables: Mapping[str, str], default: str = "") -> str:
        """A configuration key as this invocation has it."""
        return str(variables.get(key, self.configuration.get(key, default)))

    def attached(self, variables: Mapping[str, str]) -> bool:
        """Whether it runs on a cluster that is there already, on which there is never more than one."""
        return self.value("cluster", variables).partition(":")[0] == ATTACH

    def missing_extra(self, variables: Mapping[str, str]) -> str:
        """The extra of ours that this experiment needs and that is not installed, or nothing."""
        needed = {
            **{tag: module for tag, module in MODULES.items() if tag in self.tags},
            **({"ray-train": "pyarrow"} if self.value("subject", variables) == "ray-train" else {}),
        }
        return next(
            (extra for extra, module in needed.items() if importlib.util.find_spec(module) is None), ""
        )


def experiment_name(path: Path) -> str:
    """`worker-crash` for a catalogue file; a result's `worker-crash/experiment.yaml` is `worker-crash` again."""
    resolved = path.absolute()
    return resolved.parent.name if resolved.stem == "experiment" else resolved.stem


def read(path: Path) -> Entry:
    """Raises UsageError that names the file, and the line where YAML gave up."""
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise UsageError(f"no such experiment file: {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read experiment file {path}: {error}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    return _entry(path, content)


def _entry(path: Path, content: object) -> Entry:
    if not isinstance(content, dict) or not isinstance(content.get("configuration", {}), dict):
        raise UsageError(
            f"{path} is not an experiment: expected a mapping with title, configuration, method ..."
        )
    tags = content.get("tags") or ()
    if not isinstance(tags, list | tuple):
        raise UsageError(f"{path}: tags must be a list such as [gate, node], not {tags!r}")
    return Entry(
        experiment_name(path),
        path,
        str(content.get("title", "")),
        tuple(map(str, tags)),
        content.get("configuration") or {},
    )


def catalogue() -> list[Entry]:
    """Everything that ships, by name."""
    return [read(path) for path in _files()]


def _files() -> list[Path]:
    return [path for path in sorted(FOLDER.iterdir()) if path.suffix in SUFFIXES] if FOLDER.is_dir() else []


def select(names: Sequence[str], *, tags: Sequence[str] = (), everything: bool = False) -> list[Entry]:
    """What `shaketable run` runs: names and files, or --all, or --tag, or else the gate."""
    if sum(map(bool, (names, tags, everything))) > 1:
        raise UsageError("name experiments, or give --tag, or give --all: not several of them")
    if names:
        return _once(_named(name) for name in names)
    if everything:
        return catalogue()
    return tagged(tags or ("gate",))


def suited(entries: Sequence[Entry], variables: Mapping[str, str]) -> tuple[list[Entry], list[str]]:
    """Those that can say something on this subject and cluster, and a line about those that cannot, by their tag."""
    notes = []
    for tag, (key, needed, why) in NEEDS.items():
        others = [e for e in entries if tag in e.tags and e.value(key, variables) not in ("", needed)]
        if others:
            notes.append(f"left out {', '.join(entry.name for entry in others)}: {why}")
        entries = [entry for entry in entries if entry not in others]
    return list(entries), notes


def tagged(tags: Sequence[str]) -> list[Entry]:
    """Experiments that have any of `tags`; a tag that nothing has is an error."""
    entries = catalogue()
    known = {tag for entry in entries for tag in entry.tags}
    for tag in tags:
        if tag not in known:
            raise UsageError(f"no experiment has the tag {tag!r}{nearest(tag, known)}")
    return [entry for entry in entries if set(tags) & set(entry.tags)]


def _named(name: str) -> Entry:
    if name.endswith(SUFFIXES) or "/" in name:
        return read(Path(name))
    files = {path.stem: path for path in _files()}
    if name not in files:
        raise UsageError(f"no experiment is called {name!r}{nearest(name, files)}")
    return read(files[name])


def _once(entries: Iterable[Entry]) -> list[Entry]:
    return list({entry.path.resolve(): entry for entry in entries}.values())


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean a, b?` or what there is, when nothing is near."""
    choices = sorted(known)
    near = difflib.get_close_matches(name, choices, n=3, cutoff=0.5)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f"; there are: {', '.join(choices)}" if choices else ""
