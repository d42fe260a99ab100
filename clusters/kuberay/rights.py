"""Every right that is needed on Kubernetes, as a literal table: what `shaketable kubernetes-role` prints, what the
tests run with, and what the driver's pod is given of it. Nothing here is asked for that is not used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

RBAC = "rbac.authorization.k8s.io"
NAME = "shaketable"


@dataclass(frozen=True, slots=True)
class Right:
    """`pod`: the driver's pod needs it too, in the namespace of the run."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    pod: tuple[str, ...] = ()


IN_NAMESPACE = (
    # exec is a GET by the letter of its protocol, and is asked for as "create" by newer servers
    Right("", "pods", ("create", "get", "list", "patch", "delete"), pod=("create", "get", "list", "patch", "delete")),
    Right("", "pods/eviction", ("create",), pod=("create",)),
    Right("", "services", ("create", "delete"), pod=("create", "delete")),
    Right("", "resourcequotas", ("create", "delete"), pod=("create", "delete")),
    Right("", "events", ("list",), pod=("list",)),
    Right("", "pods/exec", ("create", "get"), pod=("create", "get")),
    Right("", "serviceaccounts", ("create",)),
    Right(RBAC, "roles", ("create",)),
    Right(RBAC, "rolebindings", ("create",)),
    Right("coordination.k8s.io", "leases", ("create", "get", "patch", "delete"), pod=("get", "delete")),
    Right(
        "ray.io", "rayclusters", ("create", "get", "list", "patch", "delete"), pod=("create", "get", "patch", "delete")
    ),
    Right("ray.io", "rayjobs", ("create", "get", "patch", "delete"), pod=("create", "get", "patch", "delete")),
)
# where no namespace is named, and the run has one of its own
OWN_NAMESPACE = Right("", "namespaces", ("create", "get", "delete"), pod=("get", "delete"))
# what some faults touch that is no single namespace's: asked for by name, and given by somebody else
BESIDE = {
    "machines": (Right("", "nodes", (), pod=("get", "patch")),),
    "operator": (
        Right("apps", "deployments", (), pod=("get",)),
        Right("apps", "deployments/scale", (), pod=("patch",)),
    ),
}


def _rules(rights: Iterable[tuple[Right, tuple[str, ...]]]) -> list[dict[str, Any]]:
    return [
        {"apiGroups": [right.group], "resources": [right.resource], "verbs": list(verbs)}
        for right, verbs in rights
        if verbs
    ]


def rules_of_pod(own_namespace: bool) -> list[dict[str, Any]]:
    """A Role may speak of the namespace that it is in, and then of no other."""
    rights = (*IN_NAMESPACE, OWN_NAMESPACE) if own_namespace else IN_NAMESPACE
    return _rules((right, right.pod) for right in rights)


def beside(what: str, namespace: str) -> list[dict[str, Any]]:
    """A ClusterRole for that, and its binding to whatever runs in that namespace, as driver's pods do; empty: in any,
    which is for Kubernetes of one's own."""
    metadata = {"name": "-".join(filter(None, (NAME, what, namespace)))}
    rules = _rules((right, right.pod) for right in BESIDE[what])
    group = {"kind": "Group", "name": ":".join(filter(None, ("system:serviceaccounts", namespace))), "apiGroup": RBAC}
    reference = {"kind": "ClusterRole", "name": metadata["name"], "apiGroup": RBAC}
    api = {"apiVersion": f"{RBAC}/v1", "metadata": metadata}
    return [
        {**api, "kind": "ClusterRole", "rules": rules},
        {**api, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [group]},
    ]


def role(namespace: str) -> dict[str, Any]:
    """What whoever starts the command needs: in that namespace, or, where none is named, in those that it makes."""
    if namespace:
        rules = _rules((right, right.verbs) for right in IN_NAMESPACE)
        metadata = {"name": NAME, "namespace": namespace}
        return {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules}
    rules = _rules((right, right.verbs) for right in (*IN_NAMESPACE, OWN_NAMESPACE))
    return {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": rules}
