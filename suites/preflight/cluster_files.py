"""What a cluster's file says about its size: a KubeRay RayCluster, RayJob or RayService, or a Ray cluster YAML, read
into one form, with the line of every field.

Fields and their defaults are those of Ray 2.60's own autoscaler (in `ray/autoscaler`, `_private/util.py`,
`aws/defaults.yaml`, `_private/kuberay/autoscaling_config.py`) and of the KubeRay operator.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from shaketable.suites.gate.catalogue import UsageError

KUBERAY_KINDS = {
    "RayCluster": ("spec",),
    "RayJob": ("spec", "rayClusterSpec"),
    "RayService": ("spec", "rayClusterConfig"),
}
# of a Ray cluster YAML without `max_workers`
DEFAULT_MAX_WORKERS = 2
# KubeRay's default of maxReplicas
NO_LIMIT = 2**31 - 1
SUFFIXES = {"m": 1e-3, "": 1.0, "k": 1e3, "Ki": 2**10, "M": 1e6, "Mi": 2**20, "G": 1e9, "Gi": 2**30}
# and whatever ends in "gpu"
LOGICAL = {"cpu": "CPU", "google.com/tpu": "TPU"}
# Kubernetes' default of terminationGracePeriodSeconds
DEFAULT_GRACE_S = 30
# node labels with which a pod asks GKE for nodes that may be reclaimed
RECLAIMED_BY_GKE = ("cloud.google.com/gke-spot", "cloud.google.com/gke-preemptible")
Path_ = tuple[str | int, ...]
# below a worker group
GRACE_AT: Path_ = ("template", "spec", "terminationGracePeriodSeconds")


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A kind of node that can be had in numbers. A replica is `hosts` nodes that come and go together, each with
    `resources` in Ray's names (None: the file does not say). Bounds are in replicas; `wanted` is what the file asks for
    to begin with. `place` is the path of its fields in the file. `grace_s`: how long Kubernetes lets a pod end. `spot`:
    the pod asks for nodes of GKE that may be reclaimed."""

    name: str
    place: Path_
    least: int
    most: int
    wanted: int
    hosts: int = 1
    resources: Mapping[str, float] | None = None
    suspended: bool = False
    grace_s: int = DEFAULT_GRACE_S
    spot: bool = False


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """`autoscaled`: nodes are added on demand. `most_nodes`: of all groups together, None without such a limit.
    `lines`: where each field stands, by its path."""

    path: Path
    kuberay: bool
    place: Path_
    autoscaled: bool
    groups: tuple[NodeGroup, ...]
    most_nodes: int | None = None
    lines: Mapping[Path_, int] = field(default_factory=dict)

    @property
    def fields(self) -> tuple[str, str]:
        """What this kind of file calls a group's bounds."""
        return ("minReplicas", "maxReplicas") if self.kuberay else ("min_workers", "max_workers")

    def line(self, place: Path_) -> int:
        """Of a field; where the file does not have it, of what it belongs below."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


def read(path: Path) -> ClusterFile:
    """Raises UsageError that names the file and the line, for what is no such file or has a number that is none."""
    for node in _documents(path):
        document: Any = yaml.SafeLoader("").construct_document(node)
        if not isinstance(document, dict):
            continue
        lines = dict(_lines(node, ()))
        if document.get("kind") in KUBERAY_KINDS:
            return _Reader(path, lines).kuberay(document, KUBERAY_KINDS[document["kind"]])
        if "available_node_types" in document:
            return _Reader(path, lines).ray(document)
    raise UsageError(
        f"{path}: neither a RayCluster, RayJob or RayService nor a Ray cluster YAML with available_node_types"
    )


def _documents(path: Path) -> list[yaml.Node]:
    try:
        return [node for node in yaml.compose_all(path.read_text(), yaml.SafeLoader) if node is not None]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark is not None else ""
        raise UsageError(f"{path}{where}: not YAML: {getattr(error, 'problem', error)}") from None


def _lines(node: yaml.Node, place: Path_) -> Iterator[tuple[Path_, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*place, str(key.value)), key.start_mark.line + 1
            yield from _lines(value, (*place, str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield (*place, number), value.start_mark.line + 1
            yield from _lines(value, (*place, number))


class _Reader:
    def __init__(self, path: Path, lines: Mapping[Path_, int]) -> None:
        self._path, self._lines = path, lines

    def kuberay(self, document: dict[str, Any], place: Path_) -> ClusterFile:
        spec: Any = document
        for key in place:
            spec = self._mapping(spec, str(key), ())
        groups = spec.get("workerGroupSpecs") or []
        if not isinstance(groups, list):
            raise self._wrong((*place, "workerGroupSpecs"), "is not a list of worker groups")
        read_ = (self._worker_group(group, (*place, "workerGroupSpecs", n)) for n, group in enumerate(groups))
        autoscaled = spec.get("enableInTreeAutoscaling") is True
        return ClusterFile(self._path, True, place, autoscaled, tuple(read_), None, self._lines)

    def _worker_group(self, group: Any, place: Path_) -> NodeGroup:
        if not isinstance(group, dict):
            raise self._wrong(place, "is not a worker group")
        least = self._number(group, "minReplicas", place, 0)
        pod = self._mapping(self._mapping(group, "template", place), "spec", place)
        selected = self._mapping(pod, "nodeSelector", place)
        return NodeGroup(
            name=str(group.get("groupName", f"workerGroupSpecs[{place[-1]}]")),
            place=place,
            least=least,
            most=self._number(group, "maxReplicas", place, NO_LIMIT),
            wanted=self._number(group, "replicas", place, least),
            hosts=max(1, self._number(group, "numOfHosts", place, 1)),
            resources=self._pod(group, place),
            suspended=group.get("suspend") is True,
            grace_s=self._number(pod, "terminationGracePeriodSeconds", (*place, *GRACE_AT[:-1]), DEFAULT_GRACE_S),
            spot=any(str(selected.get(label)).lower() == "true" for label in RECLAIMED_BY_GKE),
        )

    def _pod(self, group: dict[str, Any], place: Path_) -> dict[str, float] | None:
        """As Ray's autoscaler sees it: the group's own `resources`, else rayStartParams, else those of the first
        container, limits before requests. None where it cannot tell the CPUs, and then does not scale at all."""
        own = self._mapping(group, "resources", place)
        params = self._mapping(group, "rayStartParams", place)
        template = self._mapping(self._mapping(group, "template", place), "spec", place)
        containers = template.get("containers") or [{}]
        ours = self._mapping(containers[0], "resources", place) if isinstance(containers, list) else {}
        found: dict[str, float] = {}
        for kind in ("requests", "limits"):
            for name, amount in self._mapping(ours, kind, place).items():
                logical = "GPU" if str(name).endswith("gpu") else LOGICAL.get(str(name))
                if logical is not None:
                    found[logical] = self._quantity(amount, place)
        found |= self._custom(params.get("resources"), place)
        for param, logical in (("num-cpus", "CPU"), ("num-gpus", "GPU")):
            if param in params:
                found[logical] = self._quantity(params[param], place)
        found |= {str(name): self._quantity(amount, place) for name, amount in own.items()}
        return found if "CPU" in found else None

    def _custom(self, text: Any, place: Path_) -> dict[str, float]:
        """`resources: '"{\\"TPU\\": 4}"'`, quoted twice."""
        if text is None:
            return {}
        try:
            values = json.loads(str(text)[1:-1].replace("\\", ""))
            return {str(name): float(amount) for name, amount in values.items()}
        except (ValueError, AttributeError, TypeError):
            raise self._wrong((*place, "rayStartParams", "resources"), f"is not JSON in quotes: {text}") from None

    def ray(self, document: dict[str, Any]) -> ClusterFile:
        most = self._number(document, "max_workers", (), DEFAULT_MAX_WORKERS)
        types = self._mapping(document, "available_node_types", ())
        read_ = (self._node_type(document, str(name)) for name in types)
        # whose `max_workers` counts further nodes like it
        head = document.get("head_node_type")
        groups = [group for group in read_ if group.name != head or group.most > 0]
        return ClusterFile(self._path, False, (), True, tuple(groups), most, self._lines)

    def _node_type(self, document: dict[str, Any], name: str) -> NodeGroup:
        place: Path_ = ("available_node_types", name)
        values = self._mapping(self._mapping(document, "available_node_types", ()), name, place)
        resources = self._mapping(values, "resources", place)
        # that of the whole cluster
        default = 0 if name == document.get("head_node_type") else NO_LIMIT
        least = self._number(values, "min_workers", place, 0)
        return NodeGroup(
            name=name,
            place=place,
            least=least,
            most=self._number(values, "max_workers", place, default),
            wanted=least,
            resources={str(key): self._quantity(value, place) for key, value in resources.items()} or None,
        )

    # ---- values

    def _mapping(self, parent: Any, key: str, place: Path_) -> dict[str, Any]:
        value = parent.get(key) if isinstance(parent, dict) else None
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._wrong((*place, key), "is not a mapping")
        return value

    def _number(self, parent: dict[str, Any], key: str, place: Path_, default: int) -> int:
        value = parent.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._wrong((*place, key), f"is {value!r}: give a whole number, 0 or more")
        return value

    def _quantity(self, value: Any, place: Path_) -> float:
        """A Kubernetes quantity, rounded up as Ray does: `500m` of a CPU is one."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", str(value).strip())
        if found is None or found[2] not in SUFFIXES:
            raise self._wrong(place, f"has {value!r} where a quantity belongs, such as 4, 500m or 16Gi")
        return math.ceil(float(found[1]) * SUFFIXES[found[2]])

    def _wrong(self, place: Path_, what: str) -> UsageError:
        known = place
        while known and known not in self._lines:
            known = known[:-1]
        where = ".".join(map(str, place))
        return UsageError(f"{self._path}:{self._lines.get(known, 1)}: {where} {what}")
