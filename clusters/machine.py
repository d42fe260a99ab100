"""What this machine gives to the nodes of a local cluster: an address, a directory, open files."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from pathlib import Path

from shaketable.clusters.protocol import ClusterError

FREE_BYTES_NEEDED = 500_000_000
OPEN_FILES_NEEDED = 1024
# + /12/session_<date>_<time>_<pid>/sockets/plasma_store: at most 107 characters
LONGEST_DIRECTORY = 38


def own_ip() -> str:
    """The address that Ray gives to nodes of this machine (it never takes the loopback)."""
    import ray.util

    found: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return found


def prepare(directory: Path | None) -> Path:
    """A short, empty directory on a disk with room. Raises ClusterError that says what is wrong with it."""
    if directory is None:
        base = Path(tempfile.gettempdir())
        fits = len(str(base)) + len("/shk-12345678") <= LONGEST_DIRECTORY and not _in_virtualenv(base)
        directory = Path(tempfile.mkdtemp(prefix="shk-", dir=base if fits else Path("/tmp")))
    directory = directory.resolve()
    if len(str(directory)) > LONGEST_DIRECTORY:
        raise ClusterError(
            f"{directory} is too long for Ray's Unix sockets: "
            f"give a directory of at most {LONGEST_DIRECTORY} characters"
        )
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise ClusterError(f"{directory} is not empty: give a new directory, because the cluster removes it in the end")
    if (free := shutil.disk_usage(directory).free) < FREE_BYTES_NEEDED:
        directory.rmdir()
        raise ClusterError(
            f"{directory} has {free / 1e6:.0f} MB free, a cluster needs {FREE_BYTES_NEEDED / 1e6:.0f} MB: "
            "free some space, or set TMPDIR"
        )
    return directory


def _in_virtualenv(directory: Path) -> bool:
    """There Ray refuses to have its own directory (`ray/_private/parameter.py`)."""
    root = os.environ.get("VIRTUAL_ENV")
    return root is not None and directory.resolve().is_relative_to(Path(root).resolve())


def check_open_files() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES_NEEDED:
        raise ClusterError(
            f"only {soft} open files are allowed, Ray needs {OPEN_FILES_NEEDED}: run `ulimit -n 65536` first"
        )
