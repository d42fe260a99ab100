"""What this machine has: versions, and whether Ray is one that shaketable was tested with. Imports no ray."""

from __future__ import annotations

from importlib import metadata

from shaketable.suites.catalogue import UsageError

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


def require_ray() -> str:
    """Ray's version; raises UsageError unless it is in the supported range."""
    version = version_of("ray")
    if problem := ray_problem(version):
        raise UsageError(problem)
    return version
