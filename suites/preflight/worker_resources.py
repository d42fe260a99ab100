"""What a worker asks for, in Ray's names: read from the command line, or told by what the nodes of a file have."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.preflight.cluster_files import ClusterFile

# in the order in which a worker's main resource is told from a file
CHIPS = ("TPU", "GPU")
OF_RAY = (*CHIPS, "CPU", "memory", "object_store_memory")
# how Kubernetes, torch and people call them
ALIASES = {"nvidia.com/gpu": "GPU", "amd.com/gpu": "GPU", "gpus": "GPU", "cuda": "GPU", "google.com/tpu": "TPU"} | {
    "tpus": "TPU",
    "chips": "TPU",
    "cpus": "CPU",
    "cores": "CPU",
}
OPTION = "--resources-per-worker"


def given(text: str) -> dict[str, float]:
    """`GPU=1,CPU=8`. Raises UsageError where it cannot be read."""
    named: dict[str, float] = {}
    for pair in text.split(","):
        found = re.fullmatch(r"\s*([^=\s]+)=(\d+(?:\.\d+)?)\s*", pair)
        if found is None:
            raise UsageError(f"{OPTION} {text}: give NAME=N, such as GPU=1 or CPU=8,GPU=1")
        if found[1] in named:
            raise UsageError(f"{OPTION} {text}: names {found[1]} twice; name each resource once")
        named[found[1]] = float(found[2])
    if not any(named.values()):
        raise UsageError(f"{OPTION} {text}: a worker must need something; give its GPU, TPU or CPU")
    return named


def check_names(asked: Mapping[str, float], file: ClusterFile) -> None:
    """Raises UsageError for a name that is nearly one of Ray's, or nearly one that a node has."""
    for name in asked:
        if meant := _meant(name, file):
            raise UsageError(f"{OPTION} {name}={asked[name]:g}: no node has {name!r}; did you mean {meant}?")


def told_by(file: ClusterFile) -> dict[str, float]:
    """All TPU chips of a host, else one GPU, else one CPU: what a training on these nodes usually asks for."""
    chips = {name: amounts for name in CHIPS if (amounts := _amounts(file, name))}
    if len(chips) > 1:
        raise UsageError(f"{file.path} has nodes with TPUs and nodes with GPUs: say which with {OPTION}, such as GPU=1")
    if "TPU" in chips:
        return {"TPU": min(chips["TPU"])}
    return {"GPU": 1.0} if chips else {"CPU": 1.0}


def _amounts(file: ClusterFile, name: str) -> list[float]:
    return [group.resources[name] for group in file.groups if group.resources and group.resources.get(name, 0.0) > 0]


def _meant(name: str, file: ClusterFile) -> str:
    """The name that is nearly this one; empty where it is known, or like none."""
    known = {*OF_RAY, *(each for group in file.groups for each in group.resources or ())}
    if name in known:
        return ""
    spelled: Mapping[str, str] = ALIASES | {each.lower(): each for each in sorted(known)}
    if name.lower() in spelled:
        return spelled[name.lower()]
    near = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.7)
    return spelled[near[0]] if near else ""
