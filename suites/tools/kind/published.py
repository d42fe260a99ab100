"""Where images can be pulled, an engine runs and `kind` is there: then only the pods' image is made here, with the
checkout in it. SHAKETABLE_KUBERAY_MANIFEST names the manifest of KubeRay, such as `helm template` prints it.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping

from shaketable.suites.tools.kind.setting import CHECKOUT, EXTRAS, RAY_IMAGE

ANSWERS_S, PULLED_S = 10.0, 300.0
DOCKERFILE = """
FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends procps iproute2 redis-server \\
    && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/checkout
COPY pyproject.toml constraints.txt README.md LICENSE ./
{copies}
RUN python -m pip install --no-cache-dir -c constraints.txt '.[{extras}]' \\
    && (python -m compileall -q /usr/local/lib || true)
WORKDIR /
"""
FOLDERS = ("src", "chaos", "clusters", "reports", "runtime", "suites")


def base() -> str:
    return f"python:{platform.python_version()}-slim"


def usable(environ: Mapping[str, str]) -> bool:
    """Tried out, but only where the rest has been said: a pull that nobody answers takes long."""
    said = environ.get("SHAKETABLE_KUBERAY_MANIFEST") and not environ.get("SHAKETABLE_KIND_NODE_IMAGE")
    if not said or not all(shutil.which(name) for name in ("kind", "kubectl", "docker")):
        return False
    return _works("docker", "version", within_s=ANSWERS_S) and _works("docker", "pull", base(), within_s=PULLED_S)


def _works(*command: str, within_s: float) -> bool:
    try:
        return not subprocess.run(command, capture_output=True, timeout=within_s).returncode
    except subprocess.TimeoutExpired:
        return False


def main(what: str, arguments: list[str]) -> int:
    """There is nothing to be started or stopped."""
    copies = "\n".join(f"COPY {folder} {folder}" for folder in FOLDERS)
    text = DOCKERFILE.format(base=base(), extras=EXTRAS, copies=copies)
    made = ["docker", "build", "--quiet", "--tag", RAY_IMAGE, "--file", "-", str(CHECKOUT)]
    if code := subprocess.run(made, input=text, text=True).returncode:
        return code
    if what != "run":
        return 0
    command = [sys.executable, "-m", "shaketable.suites.command.cli", "run"]
    return subprocess.run([*command, "--cluster", "kind", "--image", RAY_IMAGE, *arguments]).returncode
