"""Which Ray this package was tested with. Outside that range Ray's own view is read wrongly, so nothing starts."""

from __future__ import annotations

import importlib.metadata

from shaketable.clusters.protocol import ClusterError

OLDEST, TOO_NEW = (2, 60), (2, 61)
SUPPORTED = f">={OLDEST[0]}.{OLDEST[1]},<{TOO_NEW[0]}.{TOO_NEW[1]}"


def installed_ray() -> str | None:
    try:
        return importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        return None


def supports(version: str) -> bool:
    major, minor = version.split(".")[:2]
    return OLDEST <= (int(major), int(minor)) < TOO_NEW


def check_ray() -> str:
    """The installed Ray's version. Raises ClusterError when there is none, or one that was never tested."""
    version = installed_ray()
    if version is None:
        raise ClusterError(f'Ray is not installed in this environment: run pip install "ray{SUPPORTED}"')
    if not supports(version):
        raise ClusterError(f'Ray {version} is outside the supported range: run pip install "ray{SUPPORTED}"')
    return version
