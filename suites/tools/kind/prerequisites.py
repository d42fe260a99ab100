"""Why kind cannot be brought up here, in one sentence with the line that changes it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

# the program -> Debian's package of it
NEEDED = {
    "docker": "docker.io",
    "dockerd": "docker.io",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "debootstrap": "debootstrap",
    "iptables": "iptables",
    "jq": "jq",
    "gcc": "gcc libc6-dev",
    "tar": "tar",
}
GO = (1, 26)


def why_not() -> str:
    """Empty: it can."""
    if not sys.platform.startswith("linux") or os.uname().machine != "x86_64":
        return f"kind is built on Linux on x86_64 only, and this is {sys.platform} on {os.uname().machine}"
    if os.geteuid():
        return "building kind takes root (debootstrap, a container engine of its own): run it as root"
    missing = [name for name in NEEDED if shutil.which(name) is None]
    wanted = sorted({package for name in missing for package in NEEDED[name].split()})
    said = []
    if missing:
        said.append(f"{', '.join(missing)} missing: apt-get install -y --no-install-recommends {' '.join(wanted)}")
    version = go_version()
    if version < GO:
        seen = f"Go {'.'.join(map(str, version))} is too old" if version else "Go is missing"
        said.append(f"{seen}: Go {'.'.join(map(str, GO))} or later is needed, Debian's golang-go is older")
    return "; ".join(said)


def go_version() -> tuple[int, ...]:
    """Empty: there is none."""
    if shutil.which("go") is None:
        return ()
    said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, cwd="/").stdout
    found = re.match(r"go(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else ()
