"""What fits into somebody's project: its settings in pyproject.toml, what GitHub shows, completion, and the words of an
experiment file, listed, shown and as a JSON schema."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from shaketable.chaos.faults import FAULTS
from shaketable.chaos.injection.triggers import KNOWN, parse
from shaketable.chaos.invariants import INVARIANTS
from shaketable.chaos.plan import Finding
from shaketable.reports import github
from shaketable.reports.results import Result, Run
from shaketable.suites.command.catalogue_commands import TRIGGERS
from shaketable.suites.command.commands import experiment_names
from shaketable.suites.gate.catalogue import FOLDER, UsageError
from shaketable.suites.tests.rigs.calling import called
from shaketable.suites.tools import experiment_schema, project

FILES = sorted(FOLDER.glob("*.yaml"))


# ---- pyproject.toml ----


def settings(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_a_run_takes_what_the_project_says_and_an_option_wins(tmp_path: Path) -> None:
    settings(tmp_path, '[tool.shaketable]\ncluster = "simulated"\nresults = "out"\n')
    (tmp_path / "below").mkdir()
    done = called("run", "worker-crash", cwd=tmp_path / "below")
    assert done.exit_code == 0, done.stdout + done.stderr
    first, second, *_ = done.stdout.splitlines()
    assert first == f"settings of {tmp_path / 'pyproject.toml'}: cluster=simulated, results=out"
    assert "on simulated" in second
    assert (tmp_path / "out" / "latest" / "results.json").exists()
    refused = called("run", "worker-crash", "--cluster", "nowhere", cwd=tmp_path)
    assert (refused.exit_code, "'nowhere' is not known" in refused.stderr) == (2, True)


def test_its_tags_are_run_where_nothing_is_named(tmp_path: Path) -> None:
    settings(tmp_path, '[tool.shaketable]\ncluster = "simulated"\ntags = ["no-such-tag"]\n')
    done = called("run", cwd=tmp_path)
    assert (done.exit_code, "no experiment has the tag 'no-such-tag'" in done.stderr) == (2, True)
    assert called("run", "worker-crash", cwd=tmp_path).exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.shaketable]\nclutser = 'local'\n", "has no key 'clutser'; did you mean cluster?"),
        ("[tool.shaketable]\njobs = 'two'\n", "Expected `int | null`, got `str` - at `$.jobs`"),
        ("[tool\n", "pyproject.toml: cannot be read"),
        ("[tool]\nshaketable = 3\n", "[tool.shaketable] must be a table"),
    ],
)
def test_settings_that_are_wrong_are_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        project.read(settings(tmp_path, text))
    assert said in str(refused.value)


def test_a_project_without_settings_says_nothing(tmp_path: Path) -> None:
    settings(tmp_path, "[tool.other]\nkey = 1\n")
    assert not project.read(tmp_path).says_something
    assert project.read(tmp_path / "nowhere" / "deeper") == project.read(tmp_path)


# ---- GitHub ----


RED = Run(
    "0.1.0",
    "2.60.0",
    7,
    "",
    seconds=12.0,
    results=(
        Result("quiet", "PASS", "back in 0.1 s", 4.0, "quiet"),
        Result("loud", "FAIL", "the run | charged 2, 100 %\nnot 1", 8.0, "loud", reproduce="shaketable run x.yaml"),
        Result("slow", "PASS", "back in 3 s", 4.0, "slow", exceeded=("back in 3 s, expected within 2 s",)),
    ),
    canary=Result(
        "canary", "FAIL", "no", 1.0, "c", canary=True, mutant="m", must_fail="i", findings=(Finding("i", "FAIL", "no"),)
    ),
)


def test_an_annotation_for_each_that_is_red_is_escaped_as_github_wants() -> None:
    assert list(github.annotation_lines(RED)) == [
        (
            "::error title=shaketable%3A FAIL loud::the run | charged 2, 100 %25%0Anot 1"
            "%0Areproduce: shaketable run x.yaml"
        ),
        "::error title=shaketable%3A LIMIT slow::back in 3 s, expected within 2 s",
    ]


def test_the_summary_has_red_first_and_no_broken_table() -> None:
    lines = github.summary(RED).splitlines()
    assert lines[0] == "### shaketable: RED, 2 passed, 1 failed, 1 beyond a limit of speed in 12 s"
    assert lines[4] == "| FAIL | loud | 8.0 | the run \\| charged 2, 100 % not 1 |"
    assert "Canary `m`: caught by i." in lines


def test_a_run_under_github_actions_tells_it_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    (tmp_path / "summary.md").write_text("before\n")
    done = called("run", "worker-crash", "--cluster", "simulated", "--var", "max_failures=0", cwd=tmp_path)
    assert done.exit_code == 1, done.stdout
    assert done.stdout.splitlines()[-1].startswith("::error title=shaketable%3A FAIL worker-crash::")
    assert (tmp_path / "summary.md").read_text().startswith("before\n### shaketable: RED, 1 failed")


# ---- list, show, completion ----


def test_every_word_can_be_listed_and_shown() -> None:
    for option, names in (("--faults", FAULTS), ("--triggers", KNOWN), ("--invariants", INVARIANTS)):
        done = called("list", option)
        assert [line.split("(")[0].split()[0] for line in done.stdout.splitlines()] == list(names)
        for name in names:
            shown = called("show", name)
            assert (shown.exit_code, shown.stdout.startswith(f"{name}: ")) == (0, True), shown.stderr


def test_an_experiment_is_shown_with_what_happens_and_what_is_expected() -> None:
    shown = called("show", "worker-crash").stdout
    assert "action: SIGKILL" in shown
    assert "'charged': {'max_failures': 1}" in shown
    assert shown.splitlines()[-1] == "run it: shaketable run worker-crash"


def test_a_fault_is_shown_as_it_is_written_in_a_file() -> None:
    text = called("show", "sigkill_worker").stdout
    (action,) = yaml.safe_load(text[text.index("method:") :])["method"]
    made = experiment_schema.schema()
    provider = made["properties"]["method"]["items"]["properties"]["provider"]
    jsonschema.validate(action["provider"], provider | {"$defs": made["$defs"]})


def test_the_triggers_that_are_shown_can_be_read() -> None:
    for written, _ in TRIGGERS.values():
        parse(yaml.safe_load(written), "here")


def test_an_unknown_name_is_answered_with_the_nearest_and_two_lists_with_one() -> None:
    done = called("show", "sigkill_wroker")
    assert (done.exit_code, "did you mean sigkill_worker" in done.stderr) == (2, True)
    assert called("list", "--faults", "--triggers").exit_code == 2


def test_the_shell_completes_the_names_of_experiments() -> None:
    assert set(experiment_names("worker-cr")) == {"worker-crash", "worker-crash-beyond-budget"}
    assert "--install-completion" in called("--help").stdout


# ---- the schema of an experiment file ----


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_experiment_obeys_the_schema_for_editors(path: Path) -> None:
    editors().validate(yaml.safe_load(path.read_text()))


@functools.cache
def editors() -> Any:
    """To look whether the schema itself is one takes longer than to look at a file."""
    schema = experiment_schema.schema()
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)


def arguments(document: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = document["method"][0]["provider"]["arguments"]
    return given


SPOILED: dict[str, Any] = {
    "a misspelt key": lambda d: d["configuration"].update(num_wokers=3),
    "a value of another type": lambda d: d["configuration"].update(nodes="three"),
    "a value out of bounds": lambda d: d["configuration"].update(nodes=0),
    "an unknown fault": lambda d: d["method"][0]["provider"].update(func="sigkill_wroker"),
    "no trigger": lambda d: arguments(d).pop("at"),
    "an unknown trigger": lambda d: arguments(d).update(at={"stp": 12}),
    "two triggers": lambda d: arguments(d).update(at={"step": 12, "state": "HOLDING"}),
    "an unknown event": lambda d: arguments(d).update(at={"event": "upload_strted"}),
    "an unknown target": lambda d: arguments(d).update(target={"rnk": 1}),
    "an argument that the fault does not take": lambda d: arguments(d).update(deadline_s=3),
    "an unknown argument of verdict": lambda d: d["steady-state-hypothesis"]["probes"][0]["provider"][
        "arguments"
    ].update(outcme="finished"),
    "no control": lambda d: d.pop("controls"),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_the_schema_sees(spoil: Any) -> None:
    document = yaml.safe_load((FOLDER / "worker-crash.yaml").read_text())
    spoil(document)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, experiment_schema.schema())


def test_the_schema_is_printed_as_json() -> None:
    assert json.loads(called("schema", "experiment").stdout)["title"] == "shaketable experiment"
