"""docs/recipes/ and docs/project.md: they are YAML and TOML, and each `shaketable` command in them is run.

`pip install` is not; the cluster is the simulated one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from shaketable.suites.tools import project

DOCS = Path(__file__).resolve().parents[3] / "docs"
RECIPES = DOCS / "recipes"


def steps() -> list[dict[str, Any]]:
    workflow = yaml.safe_load((RECIPES / "github-actions.yaml").read_text())
    # YAML 1.1 reads `on` as true
    assert set(workflow) == {"name", True, "permissions", "jobs"}
    (job,) = workflow["jobs"].values()
    found: list[dict[str, Any]] = job["steps"]
    return found


def pod() -> dict[str, Any]:
    claim, job = yaml.safe_load_all((RECIPES / "kubernetes-job.yaml").read_text())
    template: dict[str, Any] = job["spec"]["template"]["spec"]
    assert (claim["kind"], job["kind"], job["spec"]["backoffLimit"]) == ("PersistentVolumeClaim", "Job", 0)
    named = [volume.get("persistentVolumeClaim", {}).get("claimName") for volume in template["volumes"]]
    assert claim["metadata"]["name"] in named
    return template


def shell(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """With our command, one experiment in virtual time in the gate's place, and nothing installed."""
    ours = f'shaketable() {{ {sys.executable} -m shaketable.suites.command.cli "$@"; }}\npip() {{ :; }}\n'
    script = script.replace("shaketable run", "shaketable run worker-crash --cluster simulated")
    script = script.replace("/results/", f"{cwd}/results/")
    return subprocess.run(["bash", "-ec", ours + script], cwd=cwd, capture_output=True, text=True, timeout=240)


def test_the_workflow_runs_the_gate_and_then_compares_it_with_the_main_branch(tmp_path: Path) -> None:
    scripts = {step["name"]: step["run"] for step in steps() if "run" in step}
    assert "shaketable" in scripts["Gate"]
    first = shell(scripts["Gate"] + scripts["Keep the figures"], tmp_path)
    assert first.returncode == 0, first.stdout + first.stderr
    (tmp_path / "shaketable-out").rename(tmp_path / "before")
    second = shell(scripts["Gate"], tmp_path)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "compare  2 figures: 0 worse, 0 better" in second.stdout
    assert (tmp_path / "shaketable-out" / "comparison.md").is_file()


def test_every_action_of_the_workflow_names_its_version_and_every_file_is_written_before_it_is_read() -> None:
    uses = [step["uses"] for step in steps() if "uses" in step]
    assert uses
    assert all(re.fullmatch(r"[\w./-]+@v\d+", one) for one in uses)
    paths = {step["with"]["path"] for step in steps() if "path" in step.get("with", {})}
    assert paths == {"main-results.json", "shaketable-out"}


def test_the_job_runs_the_gate_and_is_failed_when_it_is_red(tmp_path: Path) -> None:
    (container,) = pod()["containers"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod()["volumes"]}
    (script,) = container["args"]
    done = shell(script, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((tmp_path / "results").glob("*/results.json"))) == 1
    red = shell(script.replace("shaketable run", "shaketable run --var max_failures=0"), tmp_path)
    assert red.returncode != 0


def test_the_settings_on_the_page_can_be_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", (DOCS / "project.md").read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "pyproject.toml").write_text(text)
    made = project.read(tmp_path)
    assert all(getattr(made, key) for key in project.KEYS)


@pytest.mark.parametrize("page", ["comparing.md", "project.md"])
def test_every_option_that_a_page_names_is_there(page: str) -> None:
    from shaketable.suites.tests.rigs.calling import called

    helps = "".join(called(command, "--help").stdout for command in ("run", "compare", "schema", "list", "show"))
    named = set(re.findall(r"`(?:shaketable \w+ )?(--[a-z-]+)", (DOCS / page).read_text()))
    assert named
    assert {option for option in named if option not in helps} <= {"--install-completion"}
