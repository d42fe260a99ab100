"""`run_plan`: what comes of an experiment is the same whoever asked for it, and it is always written down."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from shaketable import ShakeFailed, rank, shake, sigkill_worker, step
from shaketable.chaos.experiment import file
from shaketable.reports.results import KnownDeviation, exit_code
from shaketable.suites.gate import catalogue, deviations, execution, runner
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.mutants import MUTANTS

CRASH = catalogue.FOLDER / "worker-crash.yaml"
BUDGET = deviations.Deviation("worker-crash", "charged", "the run charged 1", "It counts a worker's death so.")


def shaken(folder: Path, **more: Any) -> Any:
    """worker-crash as it ships, from Python."""
    plan = file.load(CRASH).plan
    world = {"num_workers": (1, 3), "nodes": 3, "max_failures": 1, "charged": {"max_failures": 1}}
    return shake(
        plan.configuration.job,
        plan.configuration.job_config,
        title=plan.title,
        cluster="simulated",
        faults=[sigkill_worker(rank(1), at=step(12))],
        storage_path=folder,
        **{**world, **more},
    )


def test_shake_leaves_the_result_that_run_leaves(tmp_path: Path) -> None:
    said = shaken(tmp_path / "shaken").result
    request = runner.Request(("worker-crash",), variables={"cluster": "simulated"}, seed=0, results=tmp_path / "r")
    (ran,) = runner.run(request, io.StringIO()).results
    assert execution.load((tmp_path / "shaken" / "result.json").read_bytes()) == said
    assert execution.load((tmp_path / "r" / "worker-crash" / "result.json").read_bytes()) == ran
    for name in ("verdict", "reason", "findings", "landed", "goodput", "seed", "nodes", "cluster", "title"):
        assert getattr(said, name) == getattr(ran, name), name
    assert (tmp_path / "shaken" / "history.jsonl").read_bytes() == (
        tmp_path / "r" / "worker-crash" / "history.jsonl"
    ).read_bytes()


def test_a_failure_of_shake_is_written_down_too(tmp_path: Path) -> None:
    with pytest.raises(ShakeFailed) as failed:
        shaken(tmp_path, charged={})
    assert execution.load((tmp_path / "result.json").read_bytes()) == failed.value.result


def test_what_is_known_under_run_is_known_under_shake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deviations, "recorded", lambda subject, version: (BUDGET,))
    monkeypatch.setattr(deviations, "experiment_of", lambda told, names: "worker-crash")
    result = shaken(tmp_path, charged={}).result
    assert (result.verdict, result.judged) == ("KNOWN", "FAIL")
    assert result.deviations == (
        KnownDeviation(
            "charged", "expected 0 charged to max_failures, the run charged 1", "It counts a worker's death so."
        ),
    )


def test_a_mutant_is_there_in_simulation_too_and_gone_afterwards(tmp_path: Path) -> None:
    for mutant, verdict in (("resume-not-passed-on", "FAIL"), ("", "PASS")):
        request = runner.Request(
            ("worker-crash",), variables={"cluster": "simulated"}, mutant=mutant, results=tmp_path / (mutant or "none")
        )
        (result,) = runner.run(request, io.StringIO()).results
        assert result.verdict == verdict, result.reason
    assert (
        "resume-from-checkpoint"
        in execution.load((tmp_path / "resume-not-passed-on" / "worker-crash" / "result.json").read_bytes()).reason
    )


def test_a_mutant_that_simulation_cannot_have_is_refused(tmp_path: Path) -> None:
    request = runner.Request(("worker-crash",), variables={"cluster": "simulated"}, mutant="workers-not-killed")
    with pytest.raises(UsageError, match=r"workers-not-killed .* --cluster processes"):
        runner.run(request, io.StringIO())


def test_the_gate_catches_its_canary_in_simulation_too(tmp_path: Path) -> None:
    request = runner.Request(variables={"cluster": "simulated"}, results=tmp_path / "r")
    run = runner.run(request, io.StringIO())
    assert run.canary is not None
    assert run.canary.caught_by == MUTANTS[run.canary.mutant].caught_by[0], run.canary
    assert exit_code(run) == 0


def test_an_experiment_that_is_repeated_is_another_run_each_time(tmp_path: Path) -> None:
    """Its faults are armed for one run: those of the second had landed before it began."""
    request = runner.Request(("worker-crash",), variables={"cluster": "simulated"}, repeat=3, jobs=1, results=tmp_path)
    results = runner.run(request, io.StringIO()).results
    assert [result.verdict for result in results] == ["PASS"] * 3
