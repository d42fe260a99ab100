"""What people get wrong, in one table: each row names the thing, says what to do, has the right exit code, and is said
before anything is started."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shaketable import rank, shake, sigkill_worker, step
from shaketable.chaos.errors import ExperimentError
from shaketable.suites.exploring import simulated
from shaketable.suites.gate import runner
from shaketable.suites.gate.catalogue import FOLDER
from shaketable.suites.tests.rigs.calling import called

BODY = (FOLDER / "worker-crash.yaml").read_text()
TARGET, AT = "target: {rank: 1}", "at: {step: 12}"
ARGUMENTS = f"{{{TARGET}, {AT}}}"
CONFIGURATION = "  max_failures: 1\nmethod"
VERDICT = "{outcome: finished, charged: {max_failures: 1}, within_s: 300}"
OWN = "--subject ray-train --train"
PYTHON = Path(sys.executable).name


@dataclass(frozen=True)
class Row:
    """`edit`: what is written in worker-crash.yaml instead of what, as e.yaml; `says`: the thing and the remedy."""

    says: tuple[str, ...]
    command: tuple[str, ...] = ("run", "e.yaml")
    edit: tuple[str, str] = ("", "")
    files: dict[str, str] = field(default_factory=dict)
    code: int = 2


def edited(old: str, new: str, *says: str) -> Row:
    return Row(says, edit=(old, new))


def method(arguments: str, *says: str) -> Row:
    return edited(f"arguments: {ARGUMENTS}", f"arguments: {arguments}", *says)


def fault(name: str, arguments: str, *says: str) -> Row:
    old = f"func: sigkill_worker\n    arguments: {ARGUMENTS}"
    return edited(old, f"func: {name}\n    arguments: {arguments}", *says)


def key(line: str, *says: str) -> Row:
    """One more line in the configuration, in the place of one of the same key."""
    name = line.partition(":")[0]
    kept = [each for each in BODY.splitlines() if not each.startswith(f"  {name}:")]
    return Row(says, edit=(BODY, "\n".join(kept).replace("\nmethod:", f"\n  {line}\nmethod:")))


def verdict(arguments: str, *says: str) -> Row:
    return edited(f"arguments: {VERDICT}", f"arguments: {arguments}", *says)


def asked(command: str, *says: str, code: int = 2, files: dict[str, str] | None = None) -> Row:
    return Row(says, tuple(command.split()), files=files or {}, code=code)


TABLE = {
    # ---- the file
    "no file": asked("run none.yaml", "no such experiment file: none.yaml"),
    "no YAML": edited(BODY, "title: [", "e.yaml is not YAML", "line 1"),
    "no mapping": edited(BODY, "- title", "e.yaml is not an experiment", "expected a mapping with title"),
    "a megabyte": edited(BODY, "#" * (1 << 20) + "##", "e.yaml is larger than 1 MiB, which is no experiment"),
    "tags no list": edited(
        "tags: [gate, worker]", "tags: gate", "tags must be a list such as [gate, node], not 'gate'"
    ),
    "no title": edited("title: A worker is killed at step 12", "titel: A", "title: is missing"),
    "no control": edited("controls:", "control:", "shaketable.chaos.toolkit is missing", "Add {'name': 'shaketable'"),
    "no method": edited("method:", "methods:", "method: must be a list of at most 100 actions"),
    "another probe": edited("func: verdict", "func: verdikt", "its one probe must be `verdict`, not 'verdikt'"),
    "a process": edited("module: shaketable.chaos.toolkit\n    func: sig", "module: os\n    func: sig", "method[0]"),
    # ---- the faults
    "fault": fault("sigkil_worker", ARGUMENTS, "no fault is called 'sigkil_worker'; did you mean 'sigkill_worker'?"),
    "argument": method(f"{{targt: {{rank: 1}}, {AT}}}", "takes no argument 'targt'; did you mean 'target'?"),
    "no target": method(f"{{{AT}}}", "method[0]: sigkill_worker has no `target`", "write target: {rank: 1}"),
    "no at": method(f"{{{TARGET}}}", "method[0]: sigkill_worker has no `at`", "write at: {step: 12}"),
    "until": method(f"{{{TARGET}, {AT}, until: {{step: 14}}}}", "sigkill_worker takes no argument 'until'"),
    "changed": fault("relaunch_driver", f"{{{AT}, changed: {{max_failurs: 1}}}}", "did you mean 'max_failures'?"),
    # ---- their targets
    "target key": method(f"{{target: {{rnk: 1}}, {AT}}}", "no target is called 'rnk'; did you mean 'rank'?"),
    "target value": method(f"{{target: {{rank: one}}, {AT}}}", "rank must be a whole number from 0, not 'one'"),
    "target below": method(f"{{target: {{rank: -1}}, {AT}}}", "rank must be a whole number from 0, not -1"),
    "target no mapping": method(f"{{target: 1, {AT}}}", "a target is written like {rank: 1}, not 1"),
    "two targets": method(f"{{target: {{rank: 1, node: 1}}, {AT}}}", "a target is written like {rank: 1}"),
    "slice": method(f"{{target: {{slice: 0, host: 0}}, {AT}}}", "no TPU slices without topology; use {node: 1}"),
    "rank 7 of 3": method(f"{{target: {{rank: 7}}, {AT}}}", "target {rank: 7}: there are ranks 0 to 2"),
    "node 9 of 3": method(f"{{target: {{node: 9}}, {AT}}}", "target {node: 9}: there are nodes 1 to 3"),
    # ---- their triggers
    "trigger key": method(f"{{{TARGET}, at: {{stp: 12}}}}", "'stp' is no trigger, did you mean 'step'?"),
    "trigger value": method(f"{{{TARGET}, at: {{step: twelve}}}}", "step must be a whole number from 0, not 'twelve'"),
    "event": method(f"{{{TARGET}, at: {{event: upload_strted}}}}", "did you mean 'upload_started'?"),
    "state": method(f"{{{TARGET}, at: {{state: runing}}}}", "no state is called 'runing'; did you mean 'RUNNING'?"),
    "beside": method(
        f"{{{TARGET}, at: {{step: 12, nth: 2}}}}", "'nth' cannot stand beside 'step' in {step: 12, nth: 2}"
    ),
    "two triggers": method(f"{{{TARGET}, at: {{step: 12, event: committed}}}}", "use exactly one of them"),
    "trigger no mapping": method(f"{{{TARGET}, at: 12}}", "a trigger is written like {step: 12}, not 12"),
    # ---- the configuration
    "key": key("num_worker: 3", "no key is called 'num_worker'; did you mean 'num_workers'?"),
    "nodes": key("nodes: 0", "nodes: must be a whole number from 1 to 2048, not 0"),
    "bounds": key("num_workers: [3, 1]", "min 3 is above max 1; write [1, 3]?"),
    "bounds of three": key("num_workers: [1, 2, 3]", "num_workers: must be a number or [min, max], not [1, 2, 3]"),
    "nodes below min": key("num_workers: [4, 5]", "nodes: 3 cannot hold the 4 workers", "use nodes: 4"),
    "subject": key("subject: rai-train", "subject: 'rai-train' is not known; did you mean 'ray-train'?"),
    "cluster": key("cluster: mars", "cluster: 'mars' is not known; there are: containers, local, processes, simulated"),
    "processes without Ray": asked(
        "run worker-crash --cluster processes --train job:train",
        "subject: ray-train needs Ray, and cluster: processes has none; use cluster: local, or subject: bundled",
        files={"job.py": "def train(config): ...\n"},
    ),
    "address": key("cluster: attach:10.0.0.1", "for example attach:10.0.0.1:6379"),
    "budget": key("max_failures: -2", "max_failures: must be 0, a count, or -1 for unlimited, not -2"),
    "storage": key("storage: gcs", "storage: 'gcs' is not known; there are: directory, disk, s3"),
    "seconds": key("heartbeat_timeout_s: soon", "must be seconds above 0 and at most 86400, not 'soon'"),
    "job without colon": key("job: my_job", "job must be written package.module:function", "no program 'my_job'"),
    "job's module": key("job: no_such_package.job:train", "there is no module 'no_such_package.job' to import"),
    "job's steps": key("job_config: {steps: 0}", "job_config steps is 0, must be at least 1"),
    "job's key": key("job_config: {stepz: 4}", "no key is called 'stepz'; did you mean 'steps'?"),
    "job_config": key("job_config: [4]", "job_config: must be a mapping such as {steps: 40}, not [4]"),
    "tier": key("tiers: [{name: spot}]", "tiers[0]: nodes is missing; write a mapping such as {name: spot, nodes: 2"),
    "quarantine": key("node_quarantine: {failure: 2}", "no key is called 'failure'; did you mean 'failures'?"),
    "step key": key("step_key: epoch", "step_key 'epoch' is for a job of one's own"),
    # ---- the verdict
    "outcome": verdict("{outcome: finishd}", "outcome: 'finishd' is not known; did you mean 'finished'?"),
    "account": verdict(
        "{charged: {max_failure: 1}}", "charged: 'max_failure' is not known; did you mean 'max_failures'?"
    ),
    "charged": verdict("{charged: 1}", "charged: must be a mapping such as {max_failures: 1}, not 1"),
    "recovery limit": verdict(
        "{recovery_within_s: 0}",
        "recovery_within_s: must be seconds above 0 and at most 86400, or null for none, not 0",
    ),
    "steps lost": verdict("{steps_lost: -1}", "steps_lost: must be a whole number from 0, or null for any, not -1"),
    "within": verdict("{within_s: 0}", "within_s: must be seconds above 0 and at most 86400, not 0"),
    # ---- the command line
    "experiment": asked("run worker-crsh", "no experiment is called 'worker-crsh'", "did you mean worker-crash"),
    "tag": asked("run --tag nod", "no experiment has the tag 'nod'", "did you mean node"),
    "name and tag": asked("run worker-crash --tag node", "only one of them"),
    "var": asked("run worker-crash --var nodes", "--var nodes: write KEY=VALUE, such as --var nodes=4"),
    "var's key": asked("run worker-crash --var sed=7", "--var sed: no key is called so; did you mean 'seed'?"),
    "var's value": asked(
        "run worker-crash --var storage=gcs", "--var storage: 'gcs' is not known; there are: directory"
    ),
    "var not in the file": asked("run worker-crash --var storage=s3", "write `storage: s3` into its configuration"),
    "mutant": asked(
        "run worker-crash --mutant budget-off",
        "no mutant is called 'budget-off'; did you mean budget-off-by-one",
        "All ",
        "--list",
    ),
    "mutant of nothing": asked(
        "run worker-crash --mutant workers-not-killed --cluster simulated",
        "workers-not-killed breaks a part of the runtime that the simulation does not run",
        "--cluster processes",
    ),
    "results": asked(
        "run worker-crash --results full",
        "full is not empty",
        "choose another folder with --results",
        files={"full/x": ""},
    ),
    "results no directory": asked(
        "run worker-crash --results /proc/version/x",
        "cannot write results to /proc/version/x: Not a directory",
        "--results",
    ),
    "json": asked(
        "run worker-crash --json no/where.json", "cannot write --json no/where.json: No such file or directory"
    ),
    "nothing behind --": asked("run worker-crash --", "no command after `--`", "-- python train.py"),
    "command and function": asked("run worker-crash --train a:b -- python x.py", "not both"),
    "config": asked(
        f"run worker-crash {OWN} job:train --config none.yaml",
        "--config none.yaml: cannot be read",
        files={"job.py": "def train(config): ...\n"},
    ),
    "config for nobody": asked("run worker-crash --config c.yaml", "is for --train", "-- python train.py"),
    # ---- a job of one's own
    "program": asked("run worker-crash -- pyton train.py", "no program 'pyton' is on PATH"),
    "script": asked(
        f"run worker-crash -- {PYTHON} trian.py",
        "there is no script",
        "trian.py; did you mean 'train.py'?",
        files={"train.py": "import ray.train\n"},
    ),
    "script's import": asked(
        f"run worker-crash -- {PYTHON} train.py",
        "train.py:1 imports 'tensorflo_w', which is not installed",
        files={"train.py": "import tensorflo_w\n"},
    ),
    "script does not parse": asked(
        f"run worker-crash -- {PYTHON} train.py",
        "train.py:2 cannot be imported: ",
        files={"train.py": "import os\ndef train(:\n"},
    ),
    "module to run": asked(
        f"run worker-crash -- {PYTHON} -m no_such_thing", "there is no module 'no_such_thing' to run"
    ),
    "command on bundled": asked(
        f"run worker-crash --subject bundled -- {PYTHON} train.py",
        "cannot run on subject bundled",
        "Use --subject ray-train",
        files={"train.py": ""},
    ),
    "module": asked(
        f"run worker-crash {OWN} jop:train",
        "there is no module 'jop' to import",
        files={"job.py": "def train(config): ...\n"},
    ),
    "function": asked(
        f"run worker-crash {OWN} job:trian",
        "job.py has no 'trian'; did you mean 'train'?",
        files={"job.py": "def train(config): ...\n"},
    ),
    "module does not parse": asked(
        f"run worker-crash {OWN} job:train", "job.py:1 cannot be imported", files={"job.py": "def train(:\n"}
    ),
    "module's import": asked(
        f"run worker-crash {OWN} job:train",
        "job.py:2 imports 'tensorflo_w', which is not installed",
        files={"job.py": "import os\nimport tensorflo_w\ndef train(config): ...\n"},
    ),
    # ---- other commands
    "judge nowhere": asked("judge nowhere", "nowhere: no such directory; give a result folder"),
    "judge nothing": asked("judge full", "full holds no history.jsonl and no recording", files={"full/x": ""}),
    "judge a cut history": asked(
        "judge cut",
        "history.jsonl is cut off in the middle of line 1",
        "copy it again",
        code=3,
        files={"cut/history.jsonl": '{"kind": "experim'},
    ),
    "judge an empty history": asked(
        "judge cut", "history.jsonl is empty", "copy it again", code=3, files={"cut/history.jsonl": ""}
    ),
    "explore's limits": asked("explore --schedules 5 --minutes 1", "--schedules and --minutes: give only one"),
    "explore's mutant": asked("explore --mutant zzz", "no mutant is called 'zzz'; did you mean", "--list"),
}


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        pytest.fail("something was started")

    monkeypatch.setattr(pytest, "main", started)
    monkeypatch.setattr(simulated, "explore", started)


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_what_is_wrong_is_named_with_its_remedy_before_anything_is_started(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert row.edit[0] in BODY
    (tmp_path / "e.yaml").write_text(BODY.replace(*row.edit) if row.edit[0] else BODY)
    for name, text in row.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = called(*row.command)
    said = " ".join((done.stderr + done.stdout).split())
    assert done.exit_code == row.code, said
    assert [words for words in row.says if words not in said] == [], said
    assert "bug in shaketable" not in said and "Traceback" not in said
    assert not (tmp_path / "shaketable-results").exists()


def test_the_table_is_as_long_as_it_was_promised_to_be() -> None:
    assert len(TABLE) >= 60


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"faults": sigkill_worker(rank(1), at=step(12))},
            "faults is a list such as [sigkill_worker(rank(1), at=step(",
        ),
        ({"faults": ["sigkill_worker"]}, "faults is a list such as"),
        ({"faults": [sigkill_worker(rank(7), at=step(12))]}, "target {rank: 7}: there are ranks 0 to 2"),
        ({"job_config": [1]}, "job_config: must be a mapping such as {steps: 40}, not [1]"),
        ({"charged": 3}, "charged: must be a mapping such as {max_failures: 1}, not 3"),
        ({"outcome": "finishd"}, "did you mean 'finished'?"),
        ({"max_failure": 1}, "no key is called 'max_failure'; did you mean 'max_failures'?"),
        ({"nodes": 2, "num_workers": (3, 4)}, "use nodes: 3, or a smaller minimum"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_wrong_in_python_is_named_too(given: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ExperimentError) as error:
        shake("shaketable.workloads:hash_chain", storage_path=tmp_path, **given)
    assert says in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize(
    ("command", "module", "says"),
    [
        (("run", "torch-ddp-worker-crash"), "torch", "torch is not installed: pip install 'shaketable[torch]'"),
        (("run", "jax-worker-crash"), "orbax", "orbax is not installed: pip install 'shaketable[jax]'"),
        (("run", "worker-crash", "--subject", "ray-train"), "pyarrow", "pip install 'shaketable[ray-train]'"),
        (("run", "storage-throttled"), "moto", "moto is not installed: pip install 'shaketable[storage]'"),
    ],
)
def test_a_missing_extra_is_named_before_anything_is_started(
    command: tuple[str, ...], module: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == module else there(name, *more))
    done = called(*command)
    assert (done.exit_code, list(tmp_path.iterdir())) == (2, []), done.stderr
    assert says in done.stderr


def test_a_full_disk_is_no_bug_in_shaketable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "results.json")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "write_reports", full)
    done = called("run", "worker-crash", "--cluster", "simulated")
    assert done.exit_code == 2
    assert "No space left on device: results.json; free some, or set TMPDIR and --results" in done.stderr
    assert "bug in shaketable" not in done.stderr


def test_a_full_disk_in_an_experiment_makes_it_invalid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if path.name == "judgement.json":
            raise OSError(28, "No space left on device", str(path))
        return write(path, content)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", full)
    done = called("run", "worker-crash", "--cluster", "simulated")
    assert done.exit_code == 3, done.stdout
    assert "INVALID  worker-crash" in done.stdout
    assert "judgement.json; free some" in done.stdout and "bug in shaketable" not in done.stdout
