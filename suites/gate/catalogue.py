"""Which experiments there are: the YAML files that ship in `experiments/` and `incidents/`, and any file a user names.

A catalogue name is a file's name without its suffix. Selection happens here, so that a misspelt name or key is
answered with what was probably meant, before anything is started. Incidents are run by name or all together; no tag
and no `--all` brings them in.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shaketable.chaos.errors import ChaosError, ExperimentError
from shaketable.chaos.experiment import documents
from shaketable.chaos.plan import KIND, KUBERAY
from shaketable.clusters.processes import networks

FOLDER = Path(__file__).parents[1] / "experiments"
INCIDENTS = Path(__file__).parents[1] / "incidents"
SUFFIXES = (".yaml", ".yml")
# A tag of experiments that not everything can run -> the key that decides, what it may be for them, and why.
NEEDS = {
    "bundled": ("subject", ("bundled",), "they need the bundled runtime"),
    "processes": ("cluster", ("local", "processes", "containers"), "they need real processes"),
    "raylet": ("cluster", ("local", "simulated", "containers"), "they need a raylet"),
    "apart": ("cluster", ("containers",), "they need nodes that are machines of their own"),
    "network": ("cluster", ("containers", "processes"), "they need nodes with a network of their own"),
    "pods": ("cluster", ("kuberay", "kind"), "they need nodes that are pods"),
    "rayhead": ("cluster", ("kuberay", "kind"), "they need KubeRay"),
    "rayjob": ("cluster", ("kuberay", "kind"), "they need KubeRay"),
    "autoscaler": ("cluster", ("kuberay", "kind"), "they need KubeRay"),
}


class UsageError(ChaosError):
    """The user asked for something that cannot be; the message says what, and what to do. Exit code 2."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One experiment file as it was read, once. What it means is for the toolkit to say (`execution.trials`)."""

    name: str
    path: Path
    title: str
    tags: tuple[str, ...]
    document: Mapping[str, Any]

    @property
    def configuration(self) -> Mapping[str, Any]:
        return self.document.get("configuration") or {}

    def value(self, key: str, variables: Mapping[str, str], default: str = "") -> str:
        """A configuration key as this invocation has it."""
        return str(variables.get(key, self.configuration.get(key, default)))


def experiment_name(path: Path) -> str:
    """`worker-crash` for a catalogue file; a result's `worker-crash/experiment.yaml` is `worker-crash` again."""
    resolved = path.absolute()
    return resolved.parent.name if resolved.stem == "experiment" else resolved.stem


def read(path: Path) -> Entry:
    """Raises UsageError that names the file, and the line where YAML gave up."""
    try:
        return _entry(path, documents.read(path))
    except ExperimentError as error:
        raise UsageError(str(error)) from None


def _entry(path: Path, content: dict[str, Any]) -> Entry:
    if not isinstance(content.get("configuration", {}), dict):
        raise UsageError(f"{path}: configuration must be a mapping such as {{nodes: 3}}")
    tags = content.get("tags") or ()
    if not isinstance(tags, list | tuple):
        raise UsageError(f"{path}: tags must be a list such as [gate, node], not {tags!r}")
    return Entry(experiment_name(path), path, str(content.get("title", "")), tuple(map(str, tags)), content)


def catalogue() -> list[Entry]:
    """Every experiment that ships, by name, without the incidents."""
    return [read(path) for path in _files(FOLDER)]


def incidents() -> list[Entry]:
    """Every incident that ships, by name."""
    return [read(path) for path in _files(INCIDENTS)]


def shipped() -> list[Entry]:
    """Experiments, then incidents: whatever can be run by its name."""
    return [*catalogue(), *incidents()]


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES] if folder.is_dir() else []


def select(
    names: Sequence[str], *, tags: Sequence[str] = (), everything: bool = False, all_incidents: bool = False
) -> list[Entry]:
    """What `shaketable run` runs: names and files, or --all, or --incidents, or --tag, or else the gate."""
    if sum(map(bool, (names, tags, everything, all_incidents))) > 1:
        raise UsageError("give experiment names, --tag, --all or --incidents: only one of them")
    if names:
        return _once(_named(name) for name in names)
    if all_incidents:
        return incidents()
    if everything:
        return catalogue()
    return tagged(tags or ("gate",))


def suited(entries: Sequence[Entry], variables: Mapping[str, str]) -> tuple[list[Entry], list[str]]:
    """Those that can say something on this subject and cluster, and a line about those that cannot, by their tag."""
    notes = []
    for tag, (key, needed, why) in NEEDS.items():
        # a kind of cluster, whatever more its name says
        kinds = {entry.name: entry.value(key, variables).partition(":")[0] for entry in entries if tag in entry.tags}
        others = [entry for entry in entries if kinds.get(entry.name, "") not in ("", *needed)]
        if others:
            notes.append(f"skipped {', '.join(entry.name for entry in others)}: {why}")
        entries = [entry for entry in entries if entry not in others]
    alone = [e for e in entries if "network" in e.tags and e.value("cluster", variables) == "processes"]
    if alone and (lacking := networks.why_not()):
        notes.append(f"skipped {', '.join(entry.name for entry in alone)}: {lacking}")
        entries = [entry for entry in entries if entry not in alone]
    pods = [e for e in entries if e.value("cluster", variables).partition(":")[0] in (KUBERAY, KIND)]
    if halves := [entry for entry in pods if "half" in entry.value("slices", variables)]:
        why = "they begin with half a slice, and KubeRay makes slices as a whole"
        notes.append(f"skipped {', '.join(entry.name for entry in halves)}: {why}")
        entries = [entry for entry in entries if entry not in halves]
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
        # `latest` in it will soon be another folder
        return read(Path(name).resolve() if Path(name).exists() else Path(name))
    files = {path.stem: path for path in (*_files(FOLDER), *_files(INCIDENTS))}
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
    return f"; choose from: {', '.join(choices)}" if choices else ""
