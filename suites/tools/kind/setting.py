"""What is built, in which versions, where it lies, and what the scripts beside this file are told of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[2]
# kind says that cgroup v1 goes away in a later release
VERSIONS = {"KIND": "v0.33.0", "KUBERNETES": "v1.34.4", "KUBERAY": "v1.6.2", "ETCD": "v3.6.8", "COREDNS": "v1.14.6"}
# of shaketable, in the pods' image; jax is what one experiment of the gate takes
EXTRAS = "chaos,storage,kubernetes,explore,jax,ray-train,rayjob"
# on an image: from what it was made
KEY_LABEL = "shaketable.kind.key"
NETWORK, BRIDGE = "shaketable-kind", "br-shaketable"
HOME = "SHAKETABLE_KIND_HOME"
RAY_IMAGE, OPERATOR_IMAGE = "shaketable/ray:dev", f"shaketable/kuberay-operator:{VERSIONS['KUBERAY']}"
NODE_IMAGE = f"shaketable/kind-node:{VERSIONS['KUBERNETES']}"


@dataclass(frozen=True, slots=True)
class Setting:
    """`home`: the cache. `engine`: the DOCKER_HOST of an engine that is there already; empty: one of our own."""

    home: Path
    engine: str

    @property
    def bin(self) -> Path:
        return self.home / "bin"

    @property
    def manifest(self) -> Path:
        """Of KubeRay, with our image of it."""
        return self.home / f"kuberay-{VERSIONS['KUBERAY']}.yaml"

    @property
    def for_users(self) -> dict[str, str]:
        """With which `--cluster kind` finds all of it, and so do `kind`, `kubectl` and `docker`."""
        path = os.environ.get("PATH", os.defpath)
        return {
            "DOCKER_HOST": self.engine or f"unix://{self.home}/docker.sock",
            "KIND_EXPERIMENTAL_DOCKER_NETWORK": NETWORK,
            "SHAKETABLE_KIND_NODE_IMAGE": NODE_IMAGE,
            "SHAKETABLE_KUBERAY_MANIFEST": str(self.manifest),
            "PATH": path if str(self.bin) in path.split(":") else f"{self.bin}:{path}",
        }

    @property
    def for_scripts(self) -> dict[str, str]:
        """Without the caller's own settings of kind, Python and Kubernetes."""
        ours = {
            "HERE": HERE,
            "CHECKOUT": CHECKOUT,
            "KIND_HOME": self.home,
            "BIN": self.bin,
            "NODE_ROOT": self.home / "node-root",
            "KUBERAY_MANIFEST": self.manifest,
            "PYTHON": sys.executable,
        }
        names = {
            "SUITE": suite(),
            "EXTRAS": EXTRAS,
            "KEY_LABEL": KEY_LABEL,
            "NETWORK": NETWORK,
            "BRIDGE": BRIDGE,
            "NODE_IMAGE": NODE_IMAGE,
            "OPERATOR_IMAGE": OPERATOR_IMAGE,
            "RAY_IMAGE": RAY_IMAGE,
            "RAY_BASE": "shaketable/ray-base:dev",
            "OWN_ENGINE": "0" if self.engine else "1",
        }
        given = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        return {**given, **VERSIONS, **self.for_users, **names, **{name: str(path) for name, path in ours.items()}}


# Python would keep nothing of what it compiles; kubectl and kind would write to the user's own file.
FOREIGN = frozenset({"PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "VIRTUAL_ENV", "KUBECONFIG", "GOFLAGS"})


def setting(environ: Mapping[str, str]) -> Setting:
    home = environ.get(HOME) or str(Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "shaketable" / "kind")
    named = environ.get("DOCKER_HOST", "")
    own = f"unix://{Path(home).expanduser().absolute()}/docker.sock"
    return Setting(Path(home).expanduser().absolute(), "" if named == own else named)


def suite() -> str:
    """The release of Debian that this machine has: Python, which is copied, wants the libraries it was built with."""
    lines = Path("/etc/os-release").read_text().splitlines() if Path("/etc/os-release").exists() else []
    said = dict(line.split("=", 1) for line in lines if "=" in line)
    return said.get("VERSION_CODENAME", "").strip('"')


def uv(home: Path) -> Path:
    """uv, installed into the cache where there is none."""
    for found in (shutil.which("uv"), str(home / "uv" / "bin" / "uv")):
        if found and Path(found).exists() and not subprocess.run([found, "--version"], capture_output=True).returncode:
            return Path(found)
    subprocess.run([sys.executable, "-m", "venv", str(home / "uv")], check=True)
    subprocess.run([str(home / "uv" / "bin" / "pip"), "install", "--quiet", "uv"], check=True)
    return home / "uv" / "bin" / "uv"
