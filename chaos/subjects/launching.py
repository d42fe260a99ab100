"""How a driver is started: what it needs is written to a file beside its log, the witness's secret goes through the
environment, and the process leads a session of its own, so that a signal hits it and nothing of the harness.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from shaketable.chaos.plan import Configuration
from shaketable.chaos.subjects.protocol import Launch
from shaketable.chaos.witness import WitnessConfig


@dataclass(frozen=True, slots=True)
class Spec:
    """A `Launch` on disk, without its witness. `paths`: where jobs are imported from, besides what is installed."""

    configuration: Configuration
    address: str
    storage_path: str
    name: str
    launch: int
    changed: dict[str, Any]
    paths: list[str]

    def to_launch(self, witness: WitnessConfig) -> Launch:
        return Launch(
            self.configuration, self.address, self.storage_path, self.name, witness, self.launch, self.changed
        )


def write_spec(launch: Launch, path: Path) -> None:
    spec = Spec(
        launch.configuration,
        launch.address,
        launch.storage_path,
        launch.name,
        launch.launch,
        launch.changed,
        import_paths(),
    )
    path.write_bytes(msgspec.json.format(msgspec.json.encode(spec)) + b"\n")


def read_spec(path: Path) -> Spec:
    return msgspec.json.decode(path.read_bytes(), type=Spec)


def import_paths() -> list[str]:
    """What this process can import from and a fresh interpreter of this environment cannot."""
    installed = [Path(path).resolve() for path in (*sysconfig.get_paths().values(), f"{sys.base_prefix}/lib")]
    found = dict.fromkeys(Path(entry).resolve() for entry in sys.path if Path(entry).is_dir())
    return [str(path) for path in found if not any(path.is_relative_to(place) for place in installed)]


def start_driver(launch: Launch, log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """`python -m shaketable.chaos.subjects.driver` for this launch. `environment` is what the subject adds."""
    spec = log.with_suffix(".json")
    write_spec(launch, spec)
    paths = os.pathsep.join(import_paths())
    env = {**os.environ, **environment, WitnessConfig.ENV: launch.witness.dump(), "PYTHONPATH": paths}
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "shaketable.chaos.subjects.driver", str(spec)],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
