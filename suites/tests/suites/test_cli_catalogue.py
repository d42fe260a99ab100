"""Selection, usage errors and the smaller commands, called as a user calls them."""

from __future__ import annotations

import importlib.util
import json
import os
import py_compile
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shaketable.suites.command import doctor
from shaketable.suites.gate import catalogue, environment, outputs
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.gate.validation import check_all
from shaketable.suites.tests.rigs import recorded
from shaketable.suites.tests.rigs.calling import called


def shaketable(
    *arguments: str, cwd: Path, within_s: float = 120, **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shaketable.suites.command.cli", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=within_s, check=False, env=env)


def test_nothing_named_is_the_gate_and_the_gate_needs_no_extra() -> None:
    gate = catalogue.select([])
    assert {"worker-crash", "node-sigkill", "driver-sigkill"} <= {entry.name for entry in gate}
    assert not any({"torch", "jax"} & set(entry.tags) for entry in gate)


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no experiment is called 'worker-crsh'; did you mean worker-crash"):
        catalogue.select(["worker-crsh"])
    with pytest.raises(UsageError, match=r"no experiment has the tag 'gates'; did you mean gate"):
        catalogue.select([], tags=["gates"])


@pytest.mark.parametrize(
    ("elsewhere", "skipped"),
    [
        ({"subject": "ray-train"}, {"worker-hung", "slice-host-sigkill"}),
        ({"cluster": "simulated"}, {"torch-ddp-worker-crash", "partition-worker"}),
    ],
)
def test_what_cannot_run_there_is_left_out_and_named(elsewhere: dict[str, str], skipped: set[str]) -> None:
    everything = catalogue.select([], everything=True)
    assert catalogue.suited(everything, {}) == (everything, [])
    suited, notes = catalogue.suited(everything, elsewhere)
    named = {name for note in notes for name in note.removeprefix("skipped ").partition(":")[0].split(", ")}
    assert skipped <= named
    assert "worker-crash" in {entry.name for entry in suited}
    assert {entry.name for entry in suited} | named == {entry.name for entry in everything}


def test_where_nothing_is_left_to_run_that_is_said(tmp_path: Path) -> None:
    done = called("run", "--tag", "tpu", "--subject", "ray-train", cwd=tmp_path)
    assert done.exit_code == 2
    of_slices = "jax-slice-host-sigkill, slice-host-by-host, slice-host-evicted, slice-host-sigkill, slice-lifecycle"
    assert f"skipped {of_slices}: they need the bundled" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_experiment_that_is_named_twice_runs_once() -> None:
    twice = ["worker-crash", str(catalogue.FOLDER / "worker-crash.yaml")]
    assert [entry.name for entry in catalogue.select(twice)] == ["worker-crash"]


def test_names_and_tags_together_are_refused() -> None:
    with pytest.raises(UsageError, match="only one of them"):
        catalogue.select(["worker-crash"], tags=["gate"])


def test_a_resolved_experiment_has_the_name_of_its_folder() -> None:
    assert catalogue.experiment_name(Path("results/driver-sigkill/experiment.yaml")) == "driver-sigkill"


@pytest.mark.parametrize(
    ("text", "message"),
    [("a: [", "is not YAML"), ("- a", "is not an experiment"), ("tags: gate", "tags must be a list")],
)
def test_a_file_that_is_no_experiment_is_named_with_its_fault(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"mine\.yaml.*{message}"):
        catalogue.read(path)


def test_every_extra_that_is_missing_is_named_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in ("torch", "orbax") else there(name))
    with pytest.raises(UsageError) as error:
        check_all(catalogue.select(["torch-ddp-worker-crash", "worker-crash", "jax-worker-crash"]), {})
    assert "torch is not installed: pip install 'shaketable[torch]'" in str(error.value)
    assert "orbax is not installed: pip install 'shaketable[jax]'" in str(error.value)


@pytest.mark.parametrize(
    ("version", "fine"), [("2.60.0", True), ("2.60.3", True), ("2.59.1", False), ("3.0.0", False), ("", False)]
)
def test_a_ray_outside_the_supported_range_says_what_to_install(version: str, fine: bool) -> None:
    problem = environment.ray_problem(version)
    assert (problem == "") is fine
    assert fine or "pip install 'ray>=2.60,<2.61'" in problem


def test_results_are_never_mixed_and_never_written_where_they_cannot_be(tmp_path: Path) -> None:
    recorded.write(tmp_path / "old" / "worker-crash", recorded.worker_crash())
    with pytest.raises(UsageError, match="is not empty"):
        outputs.ResultsFolder.create(tmp_path / "old")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write results to"):
        outputs.ResultsFolder.create(tmp_path / "file" / "below")


def test_two_runs_of_one_minute_have_two_folders_and_latest_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = outputs.ResultsFolder.create(None), outputs.ResultsFolder.create(None)
    assert first.path != second.path
    first.link()
    assert second.link() == tmp_path / "shaketable-results" / "latest"
    assert (tmp_path / "shaketable-results" / "latest").resolve() == second.path


def test_a_results_directory_of_ones_own_gets_no_link_beside_it(tmp_path: Path) -> None:
    folder = outputs.ResultsFolder.create(tmp_path / "mine")
    assert folder.link() == tmp_path / "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_live_line_tells_the_last_event_and_never_raises(tmp_path: Path) -> None:
    assert outputs.last_event(tmp_path) == "starting"
    (tmp_path / "witness").mkdir()
    (tmp_path / "witness" / "worker.jsonl").write_bytes(b'{"kind":"stepped","step":12,"rank":1}\n{"kind":"st')
    assert outputs.last_event(tmp_path) == "stepped step 12 rank 1"
    (tmp_path / "witness" / "worker.jsonl").write_bytes(b"\xff\n\xff")
    assert outputs.last_event(tmp_path) == ""


def test_doctor_says_what_to_do_about_everything_that_is_not_ok() -> None:
    checks = doctor.examine()
    assert {"python", "ray", "/dev/shm", "open files", "ports", "cores", "memory"} <= {check.name for check in checks}
    assert all(check.advice for check in checks if check.status != "ok")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "worker-crsh"], "did you mean worker-crash"),
        (["run", "worker-crash", "--var", "nodse=4"], "nodse"),
        (["run", "worker-crash", "--var", "nodes"], "write KEY=VALUE"),
        (["run", "worker-crash", "--subject", "bundeld"], "bundled"),
        (["run", "worker-crash", "--mutant", "nope"], "suites.mutants --list"),
        (
            ["run", "worker-crash", "--cluster", "simulated", "--mutant", "resume-from-scratch"],
            "use --cluster processes",
        ),
        (["run", "worker-crash", "--cluster", "processes", "--mutant", "lease-not-given-back"], "use --cluster local"),
        (["run", "worker-crash", "--cluster", "processes", "--subject", "ray-train"], "subject: ray-train needs Ray"),
        (["run", "slice-lifecycle", "--cluster", "processes", "--var", "slices=[sick]"], "a sick slice"),
        (["run", "worker-crash", "--results", "/proc/none"], "cannot write results to /proc/none"),
        (["run", "worker-crash", "--json", "no/such/folder/x.json"], "cannot write --json"),
        (["run", "worker-crash", "--jobs", "0"], "--jobs"),
        (["run", "nowhere/mine.yaml"], "no such experiment file"),
        (["judge", "nowhere"], "no such directory"),
        (["lits"], "lits"),
    ],
)
def test_a_usage_error_exits_2_names_the_thing_and_leaves_no_results(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = called(*arguments, cwd=tmp_path)
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_usage_error_of_the_command_itself_reads_the_same(tmp_path: Path) -> None:
    done = shaketable("run", "worker-crsh", cwd=tmp_path)
    assert done.returncode == 2
    assert (done.stdout, done.stderr) == ("", called("run", "worker-crsh", cwd=tmp_path).stderr)


def test_list_shows_titles_and_tags_and_writes_json(tmp_path: Path) -> None:
    done = shaketable("list", "--tag", "gate", "--json", "list.json", cwd=tmp_path)
    assert done.returncode == 0
    assert "worker-crash " in done.stdout
    written = json.loads((tmp_path / "list.json").read_text())
    assert written["schema"] == 1
    assert len(written["experiments"]) == len(done.stdout.splitlines())


COMMANDS = [
    *("run", "list", "show", "judge", "doctor", "compare", "report", "cost", "goodput", "preflight", "explore"),
    *("reproduce", "import-trace", "schema", "kubernetes-role", "image", "grace", "gke-cluster"),
]


def test_the_help_lists_every_command_with_a_summary_that_is_not_cut_off(tmp_path: Path) -> None:
    commands = shaketable("--help", cwd=tmp_path, COLUMNS="80").stdout.partition("Commands:")[2]
    assert sorted(re.findall(r"^  ([a-z-]+)  ", commands, re.MULTILINE)) == sorted(COMMANDS)
    assert "..." not in commands.partition("Exit codes")[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_for_every_command(command: str) -> None:
    done = called(command, "--help")
    assert done.exit_code == 0
    assert f"  shaketable {command}" in done.stdout.partition("Examples:")[2]


def test_the_version_is_that_of_the_package_and_help_needs_neither_ray_nor_what_explores(tmp_path: Path) -> None:
    version = environment.version_of("shaketable")
    assert shaketable("--version", cwd=tmp_path).stdout == f"shaketable {version}\n"
    code = "import sys; from shaketable.suites.command import cli; sys.argv = ['shaketable', '--help']\n"
    code += "try: cli.main()\nexcept SystemExit: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    heavy = {"ray", "torch", "hypothesis", "rich", "pytest", "chaoslib", "shaketable.chaos.simulation.player"}
    assert heavy & set(done.stdout.split()) == set()


@pytest.mark.parametrize(
    ("forbidden", "compiled", "slow"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_ray_that_each_process_would_compile_anew_is_named_with_the_remedy(
    forbidden: bool, compiled: bool, slow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that forbids Python to keep what it has compiled, after an installation by uv."""
    ray = tmp_path / "site/ray/__init__.py"
    ray.parent.mkdir(parents=True)
    ray.touch()
    if compiled:
        py_compile.compile(str(ray))
    spec = importlib.util.spec_from_file_location("ray", ray)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", forbidden)
    assert environment.not_compiled().endswith(f"-m compileall -q {tmp_path}/site") == slow
    assert [check.status for check in doctor._compiled()] == ["lacking"] * slow
