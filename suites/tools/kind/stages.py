"""What is built one after the other, each from what its key names: versions, scripts, files of the checkout. A stage
that was built with the same key is skipped."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shaketable.chaos.errors import ChaosError
from shaketable.suites.tools.kind.setting import (
    CHECKOUT,
    EXTRAS,
    HERE,
    KEY_LABEL,
    NODE_IMAGE,
    OPERATOR_IMAGE,
    RAY_IMAGE,
    VERSIONS,
    Setting,
    suite,
    uv,
)

# what the wheel is made from
SOURCES = ("pyproject.toml", "src", "chaos", "clusters", "reports", "runtime", "suites")


class BuildFailed(ChaosError):
    """Says which stage, and where it has written why."""


@dataclass(frozen=True, slots=True)
class Stage:
    """`made_from`: what its key is a digest of. `image` has the key as a label; empty: a file of the cache has it."""

    name: str
    script: str
    made_from: tuple[str, ...]
    image: str = ""
    file: Path | None = None

    @property
    def key(self) -> str:
        return hashlib.sha256("\n".join((self.name, *self.made_from)).encode()).hexdigest()[:16]


def stages(setting: Setting) -> list[Stage]:
    """Each with the key of what it is built upon."""
    versions = tuple(f"{name}={version}" for name, version in VERSIONS.items())
    programs = Stage("programs", "programs.sh", (*versions, *_files("programs.sh", "modules/*")))
    node_files = ("node_*.sh", "podnet.*", "storage.yaml")
    node = Stage("node image", "node_image.sh", (programs.key, suite(), *_files(*node_files)), NODE_IMAGE)
    operator_from = (programs.key, *_files("operator_image.sh"))
    operator = Stage("operator", "operator_image.sh", operator_from, OPERATOR_IMAGE, setting.manifest)
    wanted = [(CHECKOUT / name).read_text() for name in ("pyproject.toml", "constraints.txt")]
    base_from = (platform.python_version(), suite(), EXTRAS, *wanted, *_files("ray_base.sh"))
    base = Stage("Ray", "ray_base.sh", base_from, "shaketable/ray-base:dev")
    ray = Stage("checkout", "ray_image.sh", (base.key, checkout(), *_files("ray_image.sh")), RAY_IMAGE)
    return [programs, node, operator, base, ray]


def _files(*patterns: str) -> tuple[str, ...]:
    return tuple(path.read_text() for pattern in patterns for path in sorted(HERE.glob(pattern)))


@functools.cache
def checkout() -> str:
    """A digest of what goes into the pods' image."""
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(f"{path.relative_to(CHECKOUT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _sources() -> Iterator[Path]:
    apart = CHECKOUT / "suites" / "tests"
    for top in SOURCES:
        found = [CHECKOUT / top] if (CHECKOUT / top).is_file() else sorted((CHECKOUT / top).rglob("*"))
        yield from (p for p in found if p.is_file() and "__pycache__" not in p.parts and not p.is_relative_to(apart))


@contextmanager
def alone(setting: Setting) -> Iterator[None]:
    """As long as another process builds into the same cache, this one waits."""
    for folder in (setting.home, setting.home / "log", setting.home / "keys", setting.bin):
        folder.mkdir(parents=True, exist_ok=True)
    with (setting.home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(setting: Setting, stage: Stage, environment: dict[str, str], say: Callable[[str], None]) -> None:
    """Raises BuildFailed."""
    if built(setting, stage, environment):
        say(f"{stage.name:<12} built before")
        return
    before = _image_id(stage, environment)
    began_s, log = time.monotonic(), setting.home / "log" / f"{Path(stage.script).stem}.log"
    say(f"{stage.name:<12} ...")
    with log.open("w") as out:
        script = ["nice", "bash", str(HERE / stage.script)]
        code = subprocess.run(
            script, env={**environment, "KEY": stage.key}, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False
        ).returncode
    if code:
        last = "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-8:])
        raise BuildFailed(f"{stage.name}: {stage.script} ended with {code}; {log} has all of it:\n{last}")
    _key_file(setting, stage).write_text(stage.key)
    if before and before != _image_id(stage, environment):
        # nobody can name it any more; what still runs from it, or was made of it, keeps it
        subprocess.run(["docker", "rmi", before], env=environment, capture_output=True, check=False)
    say(f"{stage.name:<12} {time.monotonic() - began_s:.0f} s")


def built(setting: Setting, stage: Stage, environment: dict[str, str]) -> bool:
    """By the label of its image, where it makes one: engines differ in what they have."""
    if stage.file is not None and not stage.file.exists():
        return False
    if not stage.image:
        file = _key_file(setting, stage)
        return file.exists() and file.read_text() == stage.key
    labelled = ["docker", "image", "inspect", "--format", f'{{{{index .Config.Labels "{KEY_LABEL}"}}}}', stage.image]
    return subprocess.run(labelled, env=environment, capture_output=True, text=True).stdout.strip() == stage.key


def _image_id(stage: Stage, environment: dict[str, str]) -> str:
    """Empty: there is none."""
    asked = ["docker", "image", "inspect", "--format", "{{.Id}}", stage.image]
    return subprocess.run(asked, env=environment, capture_output=True, text=True).stdout.strip() if stage.image else ""


def _key_file(setting: Setting, stage: Stage) -> Path:
    return setting.home / "keys" / Path(stage.script).stem


def to_stderr(line: str) -> None:
    print(f"kind: {line}", file=sys.stderr, flush=True)


def environment(setting: Setting) -> dict[str, str]:
    return {**setting.for_scripts, "UV": str(uv(setting.home))}
