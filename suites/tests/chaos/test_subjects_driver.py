"""Starting a driver: what is written down for it, what it can import, and how it says that a job is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shaketable.chaos.history.witness import WitnessConfig
from shaketable.chaos.plan import Configuration
from shaketable.chaos.subjects import Launch, subject
from shaketable.chaos.subjects.jobs import JobError, framework_of, load_job
from shaketable.chaos.subjects.launching import import_paths, read_spec, start, write_spec
from shaketable.suites import mutants
from shaketable.suites.tests.rigs.subject_rig import pickled

WITNESS = WitnessConfig(directory="/tmp/w", host="127.0.0.1", port=9, secret="not-for-the-disk")
CONFIGURATION = Configuration(job="no.such.module:f", job_config={"steps": 3}, num_workers=(1, 2))


def launch(tmp_path: Path, **changed: object) -> Launch:
    return Launch(CONFIGURATION, "127.0.0.1:1", str(tmp_path), "run", WITNESS, 1, dict(changed))


def test_a_launch_survives_the_disk_without_its_secret(tmp_path: Path) -> None:
    write_spec(launch(tmp_path, max_failures=3), tmp_path / "spec.json")

    assert WITNESS.secret not in (tmp_path / "spec.json").read_text()
    assert read_spec(tmp_path / "spec.json").to_launch(WITNESS) == launch(tmp_path, max_failures=3)


def test_what_changed_in_a_launch_takes_the_place_of_the_configuration(tmp_path: Path) -> None:
    assert launch(tmp_path, max_failures=3).effective.max_failures == 3
    with pytest.raises(TypeError, match="max_failure"):
        _ = launch(tmp_path, max_failure=3).effective


def test_a_driver_leads_a_session_of_its_own_and_names_a_job_that_is_not_there(tmp_path: Path) -> None:
    driver = start(subject("bundled").driver(launch(tmp_path), tmp_path / "driver-1.log"))

    assert os.getsid(driver.pid) == driver.pid
    assert driver.wait(60) == 2
    assert "job 'no.such.module:f': no module named 'no'" in (tmp_path / "driver-1.log").read_text()


def test_the_driver_imports_from_where_the_harness_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))

    assert str(tmp_path) in import_paths()
    assert not any(path.endswith("site-packages") for path in import_paths())


def test_the_driver_has_the_mutants_path_where_shaketable_was_installed_from_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "lib" / "site-packages"
    site = installed / "shaketable" / "suites" / "mutants" / "site"
    vendored = installed / "setuptools" / "_vendor"
    for place in (site, vendored):
        place.mkdir(parents=True)
        monkeypatch.syspath_prepend(str(place))
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"purelib": str(installed)})
    monkeypatch.setattr(mutants, "SITE", site)

    with mutants.loaded("resume-from-scratch"):
        assert str(site) in import_paths()
    assert not {str(site), str(vendored)} & set(import_paths())


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("hash_chain", "write package.module:function"),
        ("shaketable.workloads:nothing", "has no 'nothing'"),
        ("shaketable.workloads:__name__", "not a function"),
        ("/no/such/job.pkl", "no such file"),
    ],
)
def test_a_job_that_cannot_be_loaded_is_named(job: str, message: str) -> None:
    with pytest.raises(JobError, match=message):
        load_job(job)


def test_a_job_can_be_a_function_that_was_pickled_into_a_file(tmp_path: Path) -> None:
    (tmp_path / "job.pkl").write_bytes(pickled(lambda: 7))

    assert load_job(str(tmp_path / "job.pkl"))() == 7


def test_the_workloads_have_their_short_names_and_cost_nothing_before_they_are_used() -> None:
    code = "import sys, shaketable.workloads; sys.exit('shaketable.chaos' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert load_job("shaketable.workloads:hash_chain").__name__ == "hash_chain"


def test_a_jobs_framework_is_what_it_says_or_what_its_module_holds() -> None:
    def says_so() -> None: ...

    assert framework_of(says_so) is None
    says_so.backend = "torch"  # type: ignore[attr-defined]
    assert framework_of(says_so) == "torch"
    says_so.backend = None  # type: ignore[attr-defined]
    assert framework_of(says_so) is None
    assert framework_of(load_job("shaketable.workloads:torch_ddp")) == "torch"
    assert framework_of(load_job("shaketable.workloads:jax_sharded")) == "jax"
    assert framework_of(load_job("shaketable.workloads:hash_chain")) is None


@pytest.mark.parametrize("package", ["torch", "jax"])
def test_a_jobs_framework_is_the_one_of_which_its_module_holds_anything(package: str) -> None:
    space: dict[str, Any] = {package: ModuleType(f"{package}.numpy")}
    exec("def train(config): ...", space)
    assert framework_of(space["train"]) == package


def test_an_unknown_subject_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="bundled, ray-train"):
        subject("ray")
