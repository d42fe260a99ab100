"""A kind cluster as long as one run of the command takes, with KubeRay and the run's image on it.

One of that name that is there already is used, and left as it was. Whatever is made is deleted in the end, by the
harness or, when that was killed, by a watchdog.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from shaketable.clusters import marked
from shaketable.clusters.kind.ending import end_for_good, last_line, names
from shaketable.clusters.kuberay.rights import BESIDE, beside
from shaketable.clusters.protocol import ClusterError
from shaketable.clusters.watchdog import Watchdog

# the user's or CI's say
NODE_IMAGE, KUBERAY = "SHAKETABLE_KIND_NODE_IMAGE", "SHAKETABLE_KUBERAY_MANIFEST"
WORKERS = 3
CREATED_WITHIN_S, NODES_READY_WITHIN_S = 300.0, 180.0
LOADED_WITHIN_S, KUBERAY_WITHIN_S = 420.0, 180.0
ANSWERED_WITHIN_S = 30.0
# kind speaks the one or the other to kubeadm; a patch that is not of its version is left out
SEEN_LOST_AFTER = "node-monitor-grace-period"
PATCHES = (
    {
        "apiVersion": "kubeadm.k8s.io/v1beta3",
        "kind": "ClusterConfiguration",
        "controllerManager": {"extraArgs": {SEEN_LOST_AFTER: "12s"}},
    },
    {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "controllerManager": {"extraArgs": [{"name": SEEN_LOST_AFTER, "value": "12s"}]},
    },
)


def document() -> str:
    """What `kind create cluster --config` is given. A lost node is seen after 12 s, not 50 s."""
    nodes = [{"role": "control-plane"}, *({"role": "worker"} for _ in range(WORKERS))]
    made = {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": nodes}
    patches = [yaml.safe_dump(patch) for patch in PATCHES]
    return str(yaml.safe_dump({**made, "kubeadmConfigPatches": patches}))


def workers(nodes: list[str]) -> list[str]:
    """Those that pods are placed on: of several, all but the control plane's."""
    return [name for name in nodes if not name.endswith(("-control-plane", "-load-balancer"))] or nodes


def images_in(manifest: str) -> list[str]:
    """Which images its pods are started from."""
    found: list[str] = []
    waiting = [each for each in yaml.safe_load_all(manifest) if each and each.get("kind") != "CustomResourceDefinition"]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            found += [each["image"]] if isinstance(each.get("image"), str) else []
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return sorted(set(found))


class KindCluster:
    """`with KindCluster(name, image, say):` KUBECONFIG names it meanwhile. Raises ClusterError."""

    def __init__(self, name: str, image: str, say: Callable[[str], None]) -> None:
        self.name, self._image, self._say = name, image, say
        self._mark = f"kind-{uuid.uuid4().hex[:10]}:"
        self._watchdog: Watchdog | None = None

    def __enter__(self) -> Self:
        for program in ("kind", "kubectl", "docker"):
            if shutil.which(program) is None:
                raise ClusterError(f"--cluster kind needs `{program}` on PATH (docs/kubernetes.md: kind, from nothing)")
        self._manifest = "" if self.name in names() else _manifest()
        self._folder = Path(tempfile.mkdtemp(prefix="shaketable-kind-"))
        self._before = os.environ.get("KUBECONFIG")
        os.environ["KUBECONFIG"] = str(self._folder / "kubeconfig")
        try:
            if self._manifest:
                self._create()
            else:
                self._take()
        except BaseException:
            self.close()
            raise
        return self

    # -- the making

    def _create(self) -> None:
        """Nothing is made unguarded."""
        last_act = [sys.executable, "-m", "shaketable.clusters.kind.ending", self.name]
        self._watchdog = Watchdog(self._mark, self._folder, last_act)
        self._say(f"creating kind cluster {self.name}: a control plane and {WORKERS} workers")
        config = self._folder / "kind.yaml"
        config.write_text(document())
        node_image = os.environ.get(NODE_IMAGE)
        of_image = ["--image", node_image] if node_image else []
        create = ("kind", "create", "cluster", "--name", self.name, "--config", str(config), *of_image)
        self._run(CREATED_WITHIN_S, *create)
        # kind's own --wait looks at the control plane only
        self._wait(NODES_READY_WITHIN_S, "condition=Ready", "node", "--all")
        self._load(self._image)
        self._install()
        self._wait_for_system()

    def _take(self) -> None:
        self._say(f"kind cluster {self.name} is there: it is used, and stays")
        kubeconfig = self._run(ANSWERED_WITHIN_S, "kind", "get", "kubeconfig", "--name", self.name)
        (self._folder / "kubeconfig").write_text(kubeconfig)
        self._load(self._image)

    def _load(self, image: str) -> None:
        """From the engine. What that has not, nodes pull."""
        if not self._has(image):
            return
        self._say(f"loading {image}")
        nodes = workers(self._run(ANSWERED_WITHIN_S, "kind", "get", "nodes", "-q", "--name", self.name).split())
        load = ("kind", "load", "docker-image", image, "--name", self.name, "--nodes", ",".join(nodes))
        self._run(LOADED_WITHIN_S, *load)

    def _has(self, image: str) -> bool:
        asked = ["docker", "image", "inspect", image]
        return not subprocess.run(asked, capture_output=True, timeout=ANSWERED_WITHIN_S, check=False).returncode

    def _install(self) -> None:
        self._say("installing KubeRay")
        for image in images_in(Path(self._manifest).read_text()):
            self._load(image)
        # server-side: the CRDs are too large for an annotation
        self._run(KUBERAY_WITHIN_S, "kubectl", "apply", "--server-side", "--filename", self._manifest)
        rights = self._folder / "rights.yaml"
        rights.write_text(yaml.safe_dump_all(each for what in BESIDE for each in beside(what, "")))
        self._run(KUBERAY_WITHIN_S, "kubectl", "apply", "--server-side", "--filename", str(rights))
        self._wait(KUBERAY_WITHIN_S, "condition=Established", "crd", "--all")
        self._wait(KUBERAY_WITHIN_S, "condition=Available", "deployment", "--all", "--all-namespaces")

    def _wait_for_system(self) -> None:
        """Where a kube-proxy does not run, services go astray, the API server's first."""
        try:
            self._wait(NODES_READY_WITHIN_S, "condition=Ready", "pod", "--all", "--namespace=kube-system")
        except ClusterError as error:
            raise ClusterError(
                f"pods of kube-system do not run: {error}. With several clusters on a machine,"
                " fs.inotify.max_user_instances may be too small (sysctl): 1024 is enough"
            ) from error

    def _wait(self, within_s: float, condition: str, *what: str) -> None:
        self._run(
            within_s + ANSWERED_WITHIN_S, "kubectl", "wait", f"--for={condition}", *what, f"--timeout={within_s:g}s"
        )

    def _run(self, within_s: float, *command: str) -> str:
        """What it printed. Its processes carry our mark, so that none of them goes on when this is over."""
        shown = " ".join(command[:3])
        given = {**os.environ, marked.MARK: f"{self._mark}1"}
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            started = subprocess.Popen(
                command, env=given, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
            try:
                code = started.wait(within_s)
            except subprocess.TimeoutExpired:
                raise ClusterError(f"`{shown}` was not done within {within_s:g} s") from None
            finally:
                if started.poll() is None:
                    marked.kill_all(self._mark)
                    started.wait()
            out.seek(0)
            err.seek(0)
            if code:
                raise ClusterError(f"`{shown}` ended with {code}: {_said(err.read())}")
            return out.read()

    # -- the end

    def close(self) -> None:
        """Back when all is gone that was made. Idempotent."""
        if self._before is None:
            os.environ.pop("KUBECONFIG", None)
        else:
            os.environ["KUBECONFIG"] = self._before
        try:
            if self._watchdog is not None:
                self._say(f"deleting kind cluster {self.name}")
                end_for_good(self.name)
        finally:
            if self._watchdog is not None:
                self._watchdog.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _manifest() -> str:
    """Of KubeRay. Raises ClusterError before anything is made."""
    named = os.environ.get(KUBERAY, "")
    if not Path(named).is_file():
        seen = f"{named} is no file" if named else "it is not set"
        raise ClusterError(
            f"{KUBERAY} is to name a manifest of KubeRay for `kubectl apply`, and {seen}: `helm template` of its chart"
            " prints one, with --include-crds (docs/kubernetes.md: kind, from nothing)"
        )
    return named


def _said(text: str) -> str:
    """kind ends with a stack of itself; what went wrong stands in the line that says so."""
    errors = [line for line in text.splitlines() if line.startswith(("ERROR", "error"))]
    return errors[0] if errors else last_line(text)
