"""A run that was submitted as a RayJob: KubeRay makes its RayCluster, Ray starts its driver, and where that fails
KubeRay starts all over, on a new RayCluster, as often as `backoffLimit` says.

The driver runs in the driver's pod, where the harness sees it: that is a node with a resource which the job's
entrypoint asks for. All else is as a user's own RayJob has it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from shaketable.clusters.kuberay.entrypoint import ENDED, RUNS, WANTED, Ticket, whole
from shaketable.clusters.kuberay.kubernetes import Kubernetes
from shaketable.clusters.kuberay.manifests import job_directory
from shaketable.clusters.protocol import ClusterError, DriverCommand, DriverProcess

CLUSTER_WITHIN_S = 240.0
# a cluster that is there is not yet ready in KubeRay's eyes, and then the job is submitted
STARTED_WITHIN_S = 240.0
LOOK_S = 0.1
# what has ended writes that down
CODE_WITHIN_S = 5.0
KILLED = -9
SUSPENDED = "Suspended"


class RayJob:
    """`retries`: its backoffLimit."""

    def __init__(self, kubernetes: Kubernetes, name: str, retries: int) -> None:
        self._kubernetes, self.name, self._retries = kubernetes, name, retries
        self._directory = Path(job_directory(name))
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        self._wanted, self._failed, self._suspending = 0, 0, False

    # -- its cluster

    def cluster(self, is_new: Callable[[str], bool]) -> str:
        """The RayCluster that it has now, once that is new. Raises ClusterError where none comes."""
        deadline_s = time.monotonic() + CLUSTER_WITHIN_S
        while not (name := self._says("rayClusterName")) or not is_new(name):
            if time.monotonic() > deadline_s:
                raise ClusterError(
                    f"KubeRay made no new RayCluster for RayJob {self.name} within {CLUSTER_WITHIN_S:g} s:"
                    f" {self._says('jobDeploymentStatus') or 'it says nothing'} {self._says('message')}".rstrip()
                )
            time.sleep(LOOK_S)
        return name

    def _says(self, what: str) -> str:
        return str(self._kubernetes.ray_job(self.name).get(what) or "")

    # -- its drivers

    def start(self, driver: DriverCommand, begins_anew: Callable[[], None]) -> DriverProcess:
        """What its entrypoint is to be, once KubeRay has submitted it. `begins_anew`: called when it has failed, and
        KubeRay takes its cluster away."""
        place = self._directory / f"{self._wanted:04d}{WANTED}"
        self._wanted += 1
        environment = {**os.environ, **driver.environment}
        wanted = Ticket(list(driver.words), str(driver.log), environment, driver.cwd)
        whole(place, msgspec.json.encode(wanted).decode())
        runs, deadline_s = place.with_suffix(RUNS), time.monotonic() + STARTED_WITHIN_S
        while not runs.exists():
            if time.monotonic() > deadline_s:
                raise ClusterError(
                    f"RayJob {self.name} started no driver within {STARTED_WITHIN_S:g} s: it is"
                    f" {self._says('jobDeploymentStatus')} {self._says('jobStatus')} {self._says('message')}".rstrip()
                )
            time.sleep(LOOK_S)

        def ended(code: int) -> None:
            self._failed += code != 0 and not self._suspending
            if code != 0 and self._failed <= self._retries:
                begins_anew()

        return Submitted(int(runs.read_text()), place.with_suffix(ENDED), ended)

    # -- suspension

    def suspend(self) -> None:
        self._suspending = True
        self._kubernetes.change_ray_job(self.name, {"suspend": True})

    @property
    def is_suspended(self) -> bool:
        return self._says("jobDeploymentStatus") == SUSPENDED

    def resume(self) -> None:
        self._suspending = False
        self._kubernetes.change_ray_job(self.name, {"suspend": False})

    def close(self) -> None:
        self._kubernetes.end_ray_job(self.name)
        shutil.rmtree(self._directory, ignore_errors=True)


class Submitted:
    """A driver that Ray has started. `code`: the file that its exit code is written to; who is killed with its
    supervisor leaves none."""

    def __init__(self, pid: int, code: Path, ended: Callable[[int], None]) -> None:
        self.pid, self._code, self._ended = pid, code, ended

    def wait(self) -> int:
        while not self._code.exists() and Path(f"/proc/{self.pid}").exists():
            time.sleep(LOOK_S)
        deadline_s = time.monotonic() + CODE_WITHIN_S
        while not self._code.exists() and time.monotonic() < deadline_s:
            time.sleep(LOOK_S)
        code = KILLED
        with contextlib.suppress(FileNotFoundError):
            code = int(self._code.read_text())
        self._ended(code)
        return code
