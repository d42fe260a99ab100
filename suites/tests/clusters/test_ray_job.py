"""A driver that is started by a RayJob's entrypoint: real processes, below one that stands for Ray's supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from shaketable.clusters.conformance import eventually
from shaketable.clusters.kuberay import entrypoint, ray_job
from shaketable.clusters.kuberay.ray_job import RayJob
from shaketable.clusters.protocol import ClusterError, DriverCommand

GONE_WITHIN_S = 20.0


class Said:
    """What KubeRay says of the job, and what it was told."""

    def __init__(self, **status: str) -> None:
        self.status: dict[str, Any] = dict(status)
        self.told: list[dict[str, Any]] = []

    def ray_job(self, name: str) -> dict[str, Any]:
        return self.status

    def change_ray_job(self, name: str, spec: dict[str, Any]) -> None:
        self.told.append(spec)

    def end_ray_job(self, name: str) -> None:
        self.told.append({"deleted": name})


class There:
    """A job with its entrypoints. `anew`: how often its cluster was said to begin anew."""

    def __init__(self, directory: Path, retries: int) -> None:
        self.said, self.anew, self.directory = Said(rayClusterName="one"), 0, directory
        self.job = RayJob(cast(Any, self.said), "job", retries)
        self.submitted: list[subprocess.Popen[bytes]] = []

    def submit(self, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", entrypoint.__name__, str(self.directory), str(os.getpid())]
        made = subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True)
        self.submitted.append(made)
        return made

    def start(self, script: str, log: Path) -> Any:
        driver = DriverCommand([sys.executable, "-c", script], log, {"OF_THE_DRIVER": "yes"})
        return self.job.start(driver, self.begins_anew)

    def begins_anew(self) -> None:
        self.anew += 1


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[There]:
    monkeypatch.setattr(ray_job, "job_directory", lambda name: str(tmp_path / name))
    made = There(tmp_path / "job", retries=1)
    yield made
    for process in made.submitted:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_a_driver_has_the_harness_s_environment_and_what_ray_tells_its_jobs(there: There, tmp_path: Path) -> None:
    job = there.submit(RAY_ADDRESS="10.0.0.1:6379", OF_THE_JOB="no")
    script = "import os; print([os.environ.get(k) for k in ('RAY_ADDRESS', 'OF_THE_DRIVER', 'OF_THE_JOB')])"
    driver = there.start(script, tmp_path / "log")
    assert (driver.wait(), job.wait(GONE_WITHIN_S)) == (0, 0)
    assert (tmp_path / "log").read_text() == "['10.0.0.1:6379', 'yes', None]\n"
    assert there.anew == 0


def test_the_job_ends_as_its_driver_does_and_its_cluster_is_gone_while_it_is_tried_again(
    there: There, tmp_path: Path
) -> None:
    codes = []
    for _ in range(2):
        job = there.submit()
        driver = there.start("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", tmp_path / "log")
        codes.append((driver.wait(), job.wait(GONE_WITHIN_S)))
    # the second time nobody tries again
    assert (codes, there.anew) == ([(-9, 137), (-9, 137)], 1)


def test_who_stops_the_job_stops_its_driver_and_both_say_so(there: There, tmp_path: Path) -> None:
    job = there.submit()
    driver = there.start("import time; print('up', flush=True); time.sleep(600)", tmp_path / "log")
    eventually((tmp_path / "log").read_text, lambda text: text == "up\n", GONE_WITHIN_S, "the driver is up")
    os.killpg(job.pid, signal.SIGTERM)
    assert (driver.wait(), job.wait(GONE_WITHIN_S)) == (-15, 143)


def test_a_driver_that_is_killed_with_its_supervisor_leaves_no_code_and_counts_as_killed(
    there: There, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_job, "CODE_WITHIN_S", 0.2)
    job = there.submit()
    driver = there.start("import time; time.sleep(600)", tmp_path / "log")
    os.killpg(job.pid, signal.SIGKILL)
    assert (driver.wait(), there.anew) == (-9, 1)


def test_what_a_suspended_job_loses_is_no_try(there: There, tmp_path: Path) -> None:
    there.job.suspend()
    there.submit()
    assert there.start("raise SystemExit(1)", tmp_path / "log").wait() == 1
    assert (there.anew, there.said.told) == (1, [{"suspend": True}])
    there.said.status["jobDeploymentStatus"] = "Suspended"
    assert there.job.is_suspended
    there.job.resume()
    for _ in range(2):
        there.submit()
        there.start("raise SystemExit(1)", tmp_path / "log").wait()
    assert (there.anew, there.said.told[1:]) == (2, [{"suspend": False}])


def test_a_job_that_gets_no_other_cluster_says_what_kuberay_says(there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_job, "CLUSTER_WITHIN_S", 0.2)
    assert there.job.cluster(lambda name: name == "one") == "one"
    there.said.status |= {"jobDeploymentStatus": "Failed", "message": "no more tries"}
    with pytest.raises(ClusterError, match=r"no new RayCluster for RayJob job within 0.2 s: Failed no more tries"):
        there.job.cluster(lambda name: name != "one")


def test_a_job_that_is_never_submitted_is_an_error_that_says_what_it_is(
    there: There, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_job, "STARTED_WITHIN_S", 0.2)
    there.said.status["jobDeploymentStatus"] = "Initializing"
    with pytest.raises(ClusterError, match=r"RayJob job started no driver within 0.2 s: it is Initializing"):
        there.start("", tmp_path / "log")


def test_an_entrypoint_whose_supervisor_is_gone_waits_no_longer(there: There) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    command = [sys.executable, "-m", entrypoint.__name__, str(there.directory), str(gone.pid)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GONE_WITHIN_S)
    assert (done.returncode, done.stderr) == (1, f"the supervisor of the job (process {gone.pid}) is gone\n")
