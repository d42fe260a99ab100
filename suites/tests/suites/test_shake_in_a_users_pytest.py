"""`shake()` in somebody else's repository: as the README has it, with results attached and nothing left behind."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from shaketable.chaos.history.events import NodeJoined, read_events
from shaketable.clusters.protocol import PROCESSES
from shaketable.suites.tests.suites.test_plugin_in_a_users_pytest import pytest_in

pytestmark = pytest.mark.xdist_group("users-pytest")

README = Path(__file__).resolve().parents[3] / "README.md"
MY_JOB = '''
import json, tempfile, time
from pathlib import Path
import ray.train


def train_func(config):
    """Three short epochs, of which each step is reported with a checkpoint."""
    done = 0
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            done = json.loads((Path(folder) / "state.json").read_text())["done"]
    for step in range(done, config["epochs"] * 8):
        time.sleep(0.05)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "state.json").write_text(json.dumps({"done": step + 1}))
            ray.train.report({"epoch": step // 8}, checkpoint=ray.train.Checkpoint.from_directory(folder))
'''
TWO_TESTS = """
from shaketable import rank, shake, sigkill_worker, step

WORLD = {"cluster": "processes", "num_workers": (1, 2), "nodes": 2, "max_failures": 1}
JOB = "shaketable.workloads:hash_chain"


def test_passes(tmp_path):
    kill = sigkill_worker(rank(1), at=step(3))
    shake(JOB, {"steps": 8}, faults=[kill], charged={"max_failures": 1}, storage_path=tmp_path, **WORLD)


def test_fails(tmp_path):
    shake(JOB, {"steps": 8}, charged={"max_failures": 1}, storage_path=tmp_path, **WORLD)
"""


def python_block(containing: str) -> str:
    blocks: list[str] = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    found = [block for block in blocks if containing in block]
    assert len(found) == 1, f"the README has {len(found)} python blocks with {containing!r}"
    return found[0]


def results_of(junit: Path) -> list[dict[str, str]]:
    properties = ET.parse(junit).findall(".//testcase/properties/property[@name='shaketable']")
    return [json.loads(one.get("value") or "") for one in properties]


def nodes_of(result: dict[str, str]) -> set[str]:
    events = read_events(Path(result["folder"]) / "history.jsonl")
    return {event.node_id for event in events if isinstance(event, NodeJoined)}


def test_the_readmes_test_has_ten_lines_and_its_noxfile_six() -> None:
    assert len(python_block("import train_func").splitlines()) <= 10
    assert len([line for line in python_block("@nox.session").splitlines() if line]) == 6
    compile(python_block("@nox.session"), "noxfile.py", "exec")


@pytest.mark.on_demand
def test_the_readmes_test_runs_as_written_in_two_workers_that_share_nothing(tmp_path: Path) -> None:
    (tmp_path / "my_job.py").write_text(MY_JOB)
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(python_block("import train_func"))
    done = pytest_in(
        tmp_path, "-v", "-n", "2", "--dist", "loadfile", "--junitxml=j.xml", f"--basetemp={tmp_path}/t", within_s=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {f"[gw{number}]" for number in (0, 1)} <= set(re.findall(r"\[gw\d\]", done.stdout))
    one, two = results_of(tmp_path / "j.xml")
    assert one["verdict"] == two["verdict"] == "PASS"
    assert not nodes_of(one) & nodes_of(two)
    assert Path(one["folder"]) not in {Path(two["folder"]), *Path(two["folder"]).parents}
    assert done.stdout.count("\nPASS     shake(train_func)") == 2
    assert not listens(Path(one["folder"])) and not listens(Path(two["folder"]))


def test_one_process_uses_its_cluster_again_and_a_failure_reads_like_the_gates_output(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text(TWO_TESTS)
    done = pytest_in(tmp_path, "--junitxml=j.xml", f"--basetemp={tmp_path}/t")
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    passed, failed = results_of(tmp_path / "j.xml")
    assert nodes_of(passed) == nodes_of(failed)
    line = "FAIL     shake(shaketable.workloads:hash_chain)"
    assert re.search(rf"^E +shaketable\.ShakeFailed: {re.escape(line)} .*expected 1 charged", done.stdout, re.MULTILINE)
    folder = Path(failed["folder"]).relative_to(tmp_path)
    assert f"reproduce  shaketable run {folder}/experiment.yaml" in done.stdout
    # their line, and none of ours
    assert "> " in done.stdout and "suites/gate/shake.py" not in done.stdout
    assert f"\n{line}" in done.stdout.partition("short test summary")[0]
    assert not Path(address_of(Path(failed["folder"])).removeprefix(PROCESSES)).exists()


def address_of(folder: Path) -> str:
    """Where the cluster is, or was, that the experiment ran on."""
    address: str = json.loads((folder / "driver-0.json").read_text())["address"]
    return address


def listens(folder: Path) -> bool:
    """Whether the cluster that the experiment ran on is still there."""
    host, _, port = address_of(folder).partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_a_test_run_that_shakes_nothing_has_no_section_of_ours(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text("from shaketable import shake\n\ndef test_it():\n    pass\n")
    done = subprocess.run([sys.executable, "-m", "pytest"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and " shaketable " not in done.stdout.partition("collected")[2]
