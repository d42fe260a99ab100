"""`shaketable doctor`: what this machine has and lacks, and what to do about it, before an experiment finds out.

Every check looks at one thing and answers with one line; nothing is started and nothing is changed.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from shaketable.suites.gate import environment
from shaketable.suites.gate.catalogue import FOLDER, UsageError, catalogue

GIB = 1024**3
MIN_CORES, MIN_MEMORY_GIB, MIN_DISK_GIB, MIN_SHM_GIB, MIN_OPEN_FILES = 2, 4.0, 2.0, 1.0, 4096
# a head and four nodes on one machine, with ports of their own
PORTS_NEEDED = 60


@dataclass(frozen=True, slots=True)
class Check:
    """`wrong`: experiments will not run; `lacking`: some will not, or slowly. `advice`: what to do."""

    name: str
    status: Literal["ok", "lacking", "wrong"]
    seen: str
    advice: str = ""


def examine() -> list[Check]:
    checks: list[Callable[[], Iterator[Check]]] = [
        _python,
        _ray,
        _compiled,
        _system,
        _cores,
        _memory,
        _disk,
        _shm,
        _open_files,
        _ports,
        _extras,
        _catalogue,
    ]
    return [check for examined in checks for check in examined()]


def _python() -> Iterator[Check]:
    good = sys.version_info >= (3, 11)
    yield Check(
        "python",
        "ok" if good else "wrong",
        platform.python_version(),
        "" if good else "shaketable needs Python 3.11 or later",
    )


def _ray() -> Iterator[Check]:
    version = environment.version_of("ray")
    problem = environment.ray_problem(version)
    seen = f"{version or 'not installed'} (supported: {environment.RAY_RANGE})"
    yield Check("ray", "wrong" if problem else "ok", seen, problem and environment.RAY_PIP)


def _compiled() -> Iterator[Check]:
    if why := environment.not_compiled():
        yield Check("bytecode", "lacking", "Ray is not compiled", why)


def _system() -> Iterator[Check]:
    good = sys.platform == "linux" and hasattr(os, "pidfd_open")
    advice = "" if good else "use Linux 5.3 or later: clusters of processes and local ones need its signals"
    yield Check("system", "ok" if good else "wrong", f"{platform.system()} {platform.release()}", advice)


def _cores() -> Iterator[Check]:
    cores = len(os.sched_getaffinity(0))
    yield _enough(
        "cores",
        cores,
        MIN_CORES,
        f"{cores}",
        "use a machine with two cores or more: experiments are slow and may time out",
    )


def _memory() -> Iterator[Check]:
    free = _available_memory() / GIB
    yield _enough(
        "memory",
        free,
        MIN_MEMORY_GIB,
        f"{free:.1f} GiB available",
        "free some memory, or use fewer nodes: four nodes take about 3 GiB",
    )


def _disk() -> Iterator[Check]:
    for name, path in {"disk (temporary)": Path(tempfile.gettempdir()), "disk (results)": Path.cwd()}.items():
        free = shutil.disk_usage(path).free / GIB
        seen = f"{free:.1f} GiB free in {path}"
        yield _enough(
            name, free, MIN_DISK_GIB, seen, "free some space, or set TMPDIR or --results to another disk", "wrong"
        )
        if not os.access(path, os.W_OK):
            yield Check(name, "wrong", f"{path} is not writable", "set TMPDIR or --results to a writable folder")


def _shm() -> Iterator[Check]:
    path = Path("/dev/shm")
    if not path.is_dir():
        yield Check(
            "/dev/shm", "lacking", "missing", "mount a tmpfs there: without it Ray's object store uses slow files"
        )
        return
    free = shutil.disk_usage(path).free / GIB
    yield _enough("/dev/shm", free, MIN_SHM_GIB, f"{free:.1f} GiB free", "in a container: --shm-size=2g")


def _open_files() -> Iterator[Check]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    seen = f"{soft} (hard limit {hard})"
    yield _enough("open files", soft, MIN_OPEN_FILES, seen, f"ulimit -n {max(MIN_OPEN_FILES, 65536)}")


def _ports() -> Iterator[Check]:
    """Binds as many as a cluster needs, at once, where the system hands them out."""
    with ExitStack() as stack:
        try:
            for _ in range(PORTS_NEEDED):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", 0))
        except OSError as error:
            yield Check("ports", "wrong", f"127.0.0.1: {error}", "free some ports, or widen ip_local_port_range")
            return
    yield Check("ports", "ok", f"{PORTS_NEEDED} free on 127.0.0.1")


def _extras() -> Iterator[Check]:
    """All that the installed package says it has."""
    for extra in metadata.metadata("shaketable").get_all("Provides-Extra") or ():
        missing = sorted({name for name in _brought("shaketable", extra) if not environment.version_of(name)})
        if not missing:
            yield Check(f"extra {extra}", "ok", "installed")
            continue
        status: Literal["lacking", "wrong"] = "wrong" if extra == "chaos" else "lacking"
        yield Check(f"extra {extra}", status, f"without {', '.join(missing)}", f"pip install 'shaketable[{extra}]'")


def _brought(distribution: str, extra: str) -> Iterator[str]:
    """The distributions that an extra of another brings here, those of their extras included."""
    for line in metadata.requires(distribution) or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            continue
        if requirement.marker.evaluate({"extra": extra}):
            yield requirement.name
            if environment.version_of(requirement.name):
                for inner in requirement.extras:
                    yield from _brought(requirement.name, inner)


def _catalogue() -> Iterator[Check]:
    try:
        count = len(catalogue())
    except UsageError as error:
        yield Check("catalogue", "wrong", str(error), "install shaketable again")
        return
    advice = "" if count else f"{FOLDER} is empty: install shaketable again"
    yield Check("catalogue", "ok" if count else "wrong", f"{count} experiments", advice)


def _enough(
    name: str, have: float, need: float, seen: str, advice: str, otherwise: Literal["lacking", "wrong"] = "lacking"
) -> Check:
    return Check(name, "ok", seen) if have >= need else Check(name, otherwise, seen, advice)


def _available_memory() -> float:
    """MemAvailable, or what the cgroup leaves of it."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.is_file() and used.is_file() and limit.read_text().strip().isdecimal():
        return min(available, float(limit.read_text()) - float(used.read_text()))
    return available
