"""Chaos Toolkit's own command line, in process: its exit code is ours to keep honest. What is executed is replaced
here by a judgement; `test_engine_execute.py` executes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from chaostoolkit.commands import cli
from click.testing import CliRunner

from shaketable.chaos import toolkit
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.history.view import History
from shaketable.chaos.plan import Judgement
from shaketable.chaos.run.engine import Executed
from shaketable.chaos.toolkit.armed_experiment import ArmedExperiment

WORKER_CRASH = Path(__file__).parents[2] / "experiments" / "worker-crash.yaml"
PASS = Judgement("PASS", "all is well")


@pytest.fixture
def chaos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`chaos run [options]` on worker-crash, with parts of the file replaced; its exit code."""
    monkeypatch.chdir(tmp_path)

    def run(*options: str, **parts: Any) -> int:
        document = yaml.safe_load(WORKER_CRASH.read_text()) | parts
        path = tmp_path / "worker-crash.yaml"
        path.write_text(yaml.safe_dump({key: value for key, value in document.items() if value is not None}))
        return CliRunner().invoke(cli, ["--log-file", "chaos.log", "run", *options, str(path)]).exit_code

    return run


def judged(monkeypatch: pytest.MonkeyPatch, judgement: Judgement) -> list[ArmedExperiment]:
    sessions: list[ArmedExperiment] = []

    def judge(self: ArmedExperiment) -> Executed:
        sessions.append(self)
        return Executed(judgement, History(()))

    monkeypatch.setattr(ArmedExperiment, "_execute", judge)
    return sessions


def test_a_pass_exits_0_and_is_in_the_journal(chaos: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = judged(monkeypatch, PASS)
    assert chaos() == 0 and len(sessions) == 1
    journal = yaml.safe_load(Path("journal.json").read_text())
    assert journal["status"] == "completed" and not journal["deviated"]
    assert journal["shaketable"]["judgement"]["verdict"] == "PASS"


@pytest.mark.parametrize("verdict", ["FAIL", "INVALID"])
def test_any_other_verdict_exits_1(verdict: Any, chaos: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    judged(monkeypatch, Judgement(verdict, "no"))
    assert chaos() == 1


def test_a_limit_of_speed_exits_1_and_the_verdict_stays(
    chaos: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(monkeypatch, Judgement("PASS", "all is well", exceeded=("back in 3.00 s",)))
    assert chaos() == 1
    journal = yaml.safe_load(Path("journal.json").read_text())
    assert (journal["status"], journal["deviated"]) == ("completed", True)
    assert journal["shaketable"]["judgement"]["verdict"] == "PASS"


def test_a_verdict_cannot_be_talked_into_a_pass_by_its_tolerance(
    chaos: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(monkeypatch, Judgement("FAIL", "no"))
    hypothesis = yaml.safe_load(WORKER_CRASH.read_text())["steady-state-hypothesis"]
    hypothesis["probes"][0]["tolerance"] = {"type": "regex", "pattern": ""}
    assert chaos(**{"steady-state-hypothesis": hypothesis}) == 1


def test_a_misspelt_control_exits_1(chaos: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = judged(monkeypatch, PASS)
    provider = {"type": "python", "module": "shaketable.chaos.tolkit"}
    assert chaos(controls=[{"name": "shaketable", "provider": provider}]) == 1 and not sessions


def test_a_removed_control_exits_1(chaos: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = judged(monkeypatch, PASS)
    assert chaos(controls=None) == 1 and not sessions


def test_a_removed_control_exits_1_with_probes_that_are_not_called(chaos: Callable[..., int]) -> None:
    assert chaos("--dry", "probes", controls=None) == 1
    assert chaos("--hypothesis-strategy", "before-method-only", controls=None) == 1


def test_a_judge_that_raises_exits_1(chaos: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: ArmedExperiment) -> Executed:
        raise ZeroDivisionError("the judge")

    monkeypatch.setattr(ArmedExperiment, "_execute", broken)
    assert chaos() == 1
    with pytest.raises(ZeroDivisionError):
        toolkit.run_file(WORKER_CRASH, variables={}, folder=Path("result"), pool=None)


@pytest.mark.parametrize("dry", ["probes", "actions", "activities", "pause"])
def test_a_dry_run_exits_1(dry: str, chaos: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = judged(monkeypatch, PASS)
    assert chaos("--dry", dry) == 1 and not sessions


@pytest.mark.parametrize("strategy", ["before-method-only", "default"])
def test_a_hypothesis_before_the_method_exits_1(
    strategy: str, chaos: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = judged(monkeypatch, PASS)
    assert chaos("--hypothesis-strategy", strategy) == 1 and not sessions


def test_an_undeclared_variable_exits_1(chaos: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = judged(monkeypatch, PASS)
    assert chaos("--var", "sed=3") == 1 and not sessions


def test_a_declared_variable_reaches_the_plan(chaos: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = judged(monkeypatch, PASS)
    assert chaos("--var", "seed=3", "--var", "num_workers=[2, 3]") == 0
    configuration = sessions[0].plan.configuration
    assert (configuration.seed, configuration.num_workers) == (3, (2, 3))


def test_the_result_of_a_plain_chaos_run_is_named_after_its_file(
    chaos: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = judged(monkeypatch, PASS)
    chaos()
    assert sessions[0].folder.parts[0] == "shaketable-results" and sessions[0].folder.name == "worker-crash"


def test_an_unarmed_fault_is_invalid(chaos: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    judged(monkeypatch, PASS)
    document = yaml.safe_load(WORKER_CRASH.read_text())
    dry = [activity | {"dry": "actions"} for activity in document["method"]]
    monkeypatch.setattr(toolkit, "sigkill_worker", lambda target, at: None)
    assert chaos(method=dry) == 1


def test_chaos_validate_refuses_a_misspelt_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = yaml.safe_load(WORKER_CRASH.read_text())
    document["method"][0]["provider"]["arguments"] = {"targt": {"rank": 1}, "at": {"step": 12}}
    Path("misspelt.yaml").write_text(yaml.safe_dump(document))
    assert CliRunner().invoke(cli, ["validate", "misspelt.yaml"]).exit_code == 1
    with pytest.raises(ExperimentError, match="did you mean 'target'"):
        toolkit.run_file(Path("misspelt.yaml"), variables={}, folder=Path("result"), pool=None)


def test_run_file_gives_the_judgement_and_leaves_a_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(monkeypatch, PASS)
    (tmp_path / "result").mkdir()
    assert toolkit.run_file(WORKER_CRASH, variables={}, folder=tmp_path / "result", pool=None) == PASS
    assert (tmp_path / "result" / "journal.json").exists()


def test_ctrl_c_in_an_experiment_comes_out_of_run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: ArmedExperiment) -> Executed:
        raise KeyboardInterrupt

    monkeypatch.setattr(ArmedExperiment, "_execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        toolkit.run_file(WORKER_CRASH, variables={}, folder=tmp_path, pool=None)
