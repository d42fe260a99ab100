"""How a driver is started: what it needs is written to a file beside its log, the witness's secret goes through the
environment, and the process leads a session of its own, so that a signal hits it and nothing of the harness.

A job that is a command is its own driver and is started as it is, in its own directory; all it gets is environment.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from shaketable.chaos.experiment.job_lookup import found_program, search_path
from shaketable.chaos.history.witness import WitnessConfig
from shaketable.chaos.plan import Configuration
from shaketable.chaos.subjects.protocol import Launch
from shaketable.clusters.protocol import DriverCommand


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
        import_paths(launch.configuration.cwd),
    )
    path.write_bytes(msgspec.json.format(msgspec.json.encode(spec)) + b"\n")


def read_spec(path: Path) -> Spec:
    return msgspec.json.decode(path.read_bytes(), type=Spec)


def import_paths(first: str = "") -> list[str]:
    """What this process can import from and a fresh interpreter of this environment cannot; `first` before it. What
    PYTHONPATH names is told again wherever it lies: the driver gets another one, and a mutant's `sitecustomize` is
    below site-packages where shaketable was installed from a wheel."""
    installed = [Path(path).resolve() for path in (*sysconfig.get_paths().values(), f"{sys.base_prefix}/lib")]
    named = {Path(entry).resolve() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    entries = [first, *sys.path] if first else sys.path
    found = dict.fromkeys(Path(entry).resolve() for entry in entries if Path(entry).is_dir())
    return [str(path) for path in found if path in named or not any(path.is_relative_to(place) for place in installed)]


def driver_of_job(launch: Launch, log: Path, environment: Mapping[str, str]) -> DriverCommand:
    """`python -m shaketable.chaos.subjects.driver` for this launch. `environment` is what the subject adds."""
    spec = log.with_suffix(".json")
    write_spec(launch, spec)
    paths = os.pathsep.join(import_paths(launch.configuration.cwd))
    env = {**environment, WitnessConfig.ENV: launch.witness.dump(), "PYTHONPATH": paths}
    return DriverCommand([sys.executable, "-m", "shaketable.chaos.subjects.driver", str(spec)], log, env)


def driver_of_command(launch: Launch, log: Path, environment: Mapping[str, str]) -> DriverCommand:
    """The job's own command line. `python` in it is the interpreter that shaketable runs in: the cluster's version of
    Ray and of Python have to be the driver's."""
    words = shlex.split(launch.effective.job)
    env = {
        **environment,
        WitnessConfig.ENV: launch.witness.dump(),
        "RAY_ADDRESS": launch.address,
        "PATH": search_path(),
        "PYTHONPATH": os.pathsep.join(_own_paths()),
        # what it printed last is in its log, however it ends
        "PYTHONUNBUFFERED": "1",
    }
    program = found_program(words[0], launch.effective.cwd) or words[0]
    command = [words[0] if "/" in words[0] else program, *words[1:]]
    return DriverCommand(command, log, env, launch.effective.cwd or None)


def _own_paths() -> list[str]:
    """The user's PYTHONPATH, and where shaketable itself lies if a fresh interpreter would not find it."""
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    # .../src or .../site-packages
    ours = Path(__file__).absolute().parents[3]
    return [*given, *(path for path in import_paths() if Path(path) == ours.resolve() and path not in given)]


def start(driver: DriverCommand) -> subprocess.Popen[bytes]:
    """In a session of its own."""
    with driver.log.open("ab") as output:
        return subprocess.Popen(
            driver.words,
            env={**os.environ, **driver.environment},
            cwd=driver.cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
