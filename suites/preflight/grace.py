"""How long a pod of a worker group is given to end, written into a KubeRay file: its grace period, and Ray's drain
below it. Comments and order stay as they are.

`ray start --block`, the first process of such a pod, answers SIGTERM with a drain of 30 s unless the variable DRAIN
says otherwise, whatever the grace period is. Where that is shorter, the announced end never comes (docs/kubernetes.md).
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.util import load_yaml_guess_indent

from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.preflight.cluster_files import GRACE_AT, KUBERAY_KINDS

DRAIN = "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"
# between the end of the drain and the kill
BELOW_S = 5
MARGIN_S = 5
# nobody gains from less than Kubernetes' own
LEAST_S = 30
WIDE = 4096


def grace_s(checkpoint_s: float, replacement_s: float) -> int:
    """From the notice to the kill: time for a checkpoint and for the start of another pod, and a margin."""
    return max(LEAST_S, math.ceil(checkpoint_s + replacement_s) + MARGIN_S + BELOW_S)


def with_grace(path: Path, grace_s: int) -> tuple[str, str]:
    """The file's text as it is, and with that grace period and a drain that ends in time, in every worker group. Raises
    UsageError that names the file and what is wrong with it."""
    try:
        before = path.read_text()
        yaml = _written_like(before)
        documents = list(yaml.load_all(before))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    groups = [group for document in documents for group in _worker_groups(document, path)]
    if not groups:
        raise UsageError(f"{path}: no worker groups of a RayCluster, RayJob or RayService; the grace period is theirs")
    for group in groups:
        _set(group, grace_s, path)
    after = io.StringIO()
    yaml.dump_all(documents, after)
    return before, after.getvalue()


def _written_like(text: str) -> YAML:
    # the one with the pods
    longest = max(re.split(r"^---.*$", text, flags=re.MULTILINE), key=len)
    _, _, offset = load_yaml_guess_indent(longest)
    steps = re.findall(r"^( +)[^\s#-]", longest, flags=re.MULTILINE)
    yaml = YAML()
    yaml.preserve_quotes, yaml.width, yaml.explicit_start = True, WIDE, text.startswith("---")
    yaml.indent(mapping=min(map(len, steps), default=2), sequence=2 + (offset or 0), offset=offset or 0)
    return yaml


def _worker_groups(document: Any, path: Path) -> Iterable[Any]:
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind not in KUBERAY_KINDS:
        return ()
    spec = document
    for key in KUBERAY_KINDS[kind]:
        spec = spec.get(key) or {}
    return spec.get("workerGroupSpecs") or ()


def _set(group: Any, grace_s: int, path: Path) -> None:
    *way, key = GRACE_AT
    pod = group
    for step in way:
        pod = pod.get(step) if isinstance(pod, dict) else None
    containers = pod.get("containers") if isinstance(pod, dict) else None
    if not isinstance(pod, dict) or not containers:
        name = group.get("groupName", "a worker group") if isinstance(group, dict) else "a worker group"
        raise UsageError(f"{path}: {name} has no pod template with containers")
    pod[str(key)] = grace_s
    # Ray's is the first, as KubeRay has it
    variables = containers[0].setdefault("env", [])
    value = str(grace_s - BELOW_S)
    for variable in variables:
        if variable.get("name") == DRAIN:
            variable.pop("valueFrom", None)
            variable["value"] = _quoted(value)
            return
    variables.append({"name": DRAIN, "value": _quoted(value)})


def _quoted(value: str) -> Any:
    """A number would not be taken for the value of a variable."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    return DoubleQuotedScalarString(value)
