"""What this machine has: versions, and whether Ray is one that shaketable was tested with. Imports no ray."""

from __future__ import annotations

import errno
import importlib.util
import sys
from importlib import metadata
from pathlib import Path

from shaketable.suites.gate.catalogue import UsageError

REMEDIES = {
    errno.ENOSPC: "free some, or set TMPDIR and --results to another disk (shaketable doctor)",
    errno.EDQUOT: "free some of the quota, or set TMPDIR and --results to another disk (shaketable doctor)",
    errno.EROFS: "set TMPDIR and --results to a place that can be written",
    errno.EACCES: "set TMPDIR and --results to a place that can be written",
    errno.EMFILE: "allow more open files: ulimit -n 65536 (shaketable doctor)",
    errno.ENFILE: "close some programs, or allow more open files on this machine",
    errno.ENOMEM: "close some programs, or use fewer nodes (shaketable doctor)",
}
RAY_SERIES = (2, 60)
RAY_RANGE = "2.60.x"
RAY_PIP = "pip install 'ray>=2.60,<2.61'"


def version_of(distribution: str) -> str:
    """Its version, or nothing when it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def ray_problem(version: str) -> str:
    """Why this Ray will not do, and what to do; nothing when it will."""
    if not version:
        return f"Ray is not installed: {RAY_PIP}"
    if tuple(version.split(".")[:2]) != tuple(map(str, RAY_SERIES)):
        return f"Ray {version} is outside the supported range {RAY_RANGE}: {RAY_PIP}"
    return ""


def not_compiled() -> str:
    """Why each process of a cluster takes longer to start than it need, and what to do; empty: it does not."""
    ray = importlib.util.find_spec("ray")
    if not sys.dont_write_bytecode or ray is None or ray.origin is None:
        return ""
    if Path(importlib.util.cache_from_source(ray.origin)).exists():
        return ""
    return (
        "PYTHONDONTWRITEBYTECODE is set and Ray is not compiled: each of its processes compiles it anew, so that a run"
        f" takes two or three times as long; once run: {sys.executable} -m compileall -q {Path(ray.origin).parents[1]}"
    )


def machine_problem(error: BaseException | None) -> str:
    """What the machine lacks, if that is what stands behind an error; empty: it is something else."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in REMEDIES:
            where = f": {error.filename}" if error.filename else ""
            return f"{error.strerror}{where}; {REMEDIES[error.errno]}"
        error = error.__cause__ or error.__context__
    return ""


def require_ray() -> str:
    """Ray's version; raises UsageError unless it is in the supported range."""
    version = version_of("ray")
    if problem := ray_problem(version):
        raise UsageError(problem)
    return version
