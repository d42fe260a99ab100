"""A real API server of Kubernetes, with etcd and the two controllers that delete what others own: enough for documents,
rights and deletion. Without kubelets no pod ever starts.

The programs are those of a folder that the environment names: `bin/etcd`, `bin/kube-apiserver`,
`bin/kube-controller-manager`, and KubeRay's `crd/`.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from lightkube.operators import exists
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Namespace, Pod, ServiceAccount
from lightkube.resources.rbac_authorization_v1 import Role, RoleBinding

from shaketable.clusters.kuberay.kubernetes import Kubernetes, RayCluster
from shaketable.clusters.kuberay.manifests import RUN_LABEL
from shaketable.clusters.local.ports import free_port
from shaketable.clusters.protocol import ClusterError

WHERE = "SHAKETABLE_KUBERNETES_PROGRAMS"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")
UP_WITHIN_S = 90.0
LOOK_S = 0.1
ADMIN, USER, NOBODY = "admin", "user", "nobody"
RBAC = "rbac.authorization.k8s.io"


def why_not() -> str:
    """What is lacking; empty: nothing."""
    folder = Path(os.environ.get(WHERE, ""))
    lacking = [name for name in PROGRAMS if not os.access(folder / "bin" / name, os.X_OK)]
    return f"{WHERE} names no folder with bin/{lacking[0]}" if lacking else ""


@dataclass(frozen=True, slots=True)
class ApiServer:
    directory: Path
    port: int

    def config(self, who: str) -> Path:
        """A kubeconfig: ADMIN may do anything, USER what it was granted, NOBODY nothing."""
        path = self.directory / f"{who}.yaml"
        there = {"server": f"https://127.0.0.1:{self.port}", "insecure-skip-tls-verify": True}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "here", "cluster": there}],
            "users": [{"name": who, "user": {"token": f"token-of-{who}"}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": who}}],
        }
        path.write_text(json.dumps(document))
        return path

    def connected(self, who: str, namespace: str = "default") -> Kubernetes:
        return Kubernetes.connected(namespace, config=self.config(who))

    def grant(self, role: dict[str, Any]) -> None:
        """To USER, and nothing more than that."""
        metadata = role["metadata"]
        admin = self.connected(ADMIN, metadata.get("namespace", "default"))
        admin.create(role)
        admin.create(
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": f"{role['kind']}Binding",
                "metadata": metadata,
                "roleRef": {"apiGroup": RBAC, "kind": role["kind"], "name": metadata["name"]},
                "subjects": [{"kind": "User", "name": USER, "apiGroup": RBAC}],
            }
        )


@contextmanager
def api_server(directory: Path) -> Iterator[ApiServer]:
    folder, made = Path(os.environ[WHERE]), ApiServer(directory, free_port())
    clients, peers = free_port(), free_port()
    key = directory / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    users = ((ADMIN, "1,system:masters"), (USER, "2"), (NOBODY, "3"))
    (directory / "tokens").write_text("".join(f"token-of-{name},{name},{rest}\n" for name, rest in users))
    store = f"http://127.0.0.1:{clients}"
    peer = f"http://127.0.0.1:{peers}"
    etcd = [
        *(f"--data-dir={directory / 'etcd'}", f"--listen-client-urls={store}", f"--advertise-client-urls={store}"),
        *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"),
    ]
    server = [
        *(f"--etcd-servers={store}", f"--secure-port={made.port}", "--bind-address=127.0.0.1"),
        *(f"--cert-dir={directory}", "--authorization-mode=RBAC", f"--token-auth-file={directory / 'tokens'}"),
        *("--service-account-issuer=https://here", f"--service-account-key-file={key}"),
        *(f"--service-account-signing-key-file={key}", "--service-cluster-ip-range=10.0.0.0/24"),
    ]
    controllers = [
        *("--controllers=garbage-collector-controller,namespace-controller", "--leader-elect=false"),
        *(f"--kubeconfig={made.config(ADMIN)}", f"--secure-port={free_port()}", "--bind-address=127.0.0.1"),
        *(f"--cert-dir={directory}", f"--authentication-kubeconfig={made.config(ADMIN)}"),
        f"--authorization-kubeconfig={made.config(ADMIN)}",
    ]
    commands = ((PROGRAMS[0], etcd), (PROGRAMS[1], server), (PROGRAMS[2], controllers))
    with _running(folder / "bin", directory, commands[:2]):
        _wait(made, lambda kubernetes: kubernetes.pods({}))
        for kind in ("rayclusters", "rayjobs"):
            made.connected(ADMIN).create(yaml.safe_load((folder / "crd" / f"ray.io_{kind}.yaml").read_text()))
        _wait(made, lambda kubernetes: kubernetes.check_kuberay())
        with _running(folder / "bin", directory, commands[2:]):
            yield made


@contextmanager
def _running(programs: Path, directory: Path, commands: Sequence[tuple[str, Sequence[str]]]) -> Iterator[None]:
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, arguments in commands:
            with (directory / f"{name}.log").open("wb") as log:
                started.append(subprocess.Popen([programs / name, *arguments], stdout=log, stderr=subprocess.STDOUT))
        yield
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def _wait(made: ApiServer, ask: Callable[[Kubernetes], object]) -> None:
    """Until it answers that."""
    deadline_s = time.monotonic() + UP_WITHIN_S
    while True:
        try:
            ask(made.connected(ADMIN))
            return
        except ClusterError as error:
            if time.monotonic() > deadline_s:
                log = (made.directory / "kube-apiserver.log").read_text()[-2000:]
                raise AssertionError(f"no API server within {UP_WITHIN_S:g} s: {error}\n{log}") from error
        time.sleep(LOOK_S)


def labelled(server: ApiServer) -> dict[str, str]:
    """Everything of any run, with its version."""
    client = server.connected(ADMIN).client
    ours: dict[str, Any] = {RUN_LABEL: exists()}
    found: list[Any] = [*client.list(Namespace, labels=ours)]
    for kind in (Lease, ServiceAccount, Role, RoleBinding, Pod, RayCluster):
        found += client.list(kind, namespace="*", labels=ours)
    return {f"{each.kind or type(each).__name__} {each.metadata.name}": each.metadata.resourceVersion for each in found}
