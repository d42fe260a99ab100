"""docs/ray-train-findings.md: every question is answered in the same form, and every reproduction is one that ends."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from shaketable.suites.gate import catalogue, deviations

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "ray-train-findings.md").read_text()
SECTIONS = dict(re.findall(r"^### (H\d+): .*?\n(.*?)(?=^### |\Z)", PAGE, re.DOTALL | re.MULTILINE))
SCRIPTS = sorted((DOCS / "findings").glob("h*.py"))
VERDICTS = ("Confirmed", "Refuted", "Not settled")


@pytest.mark.parametrize("question", sorted(SECTIONS))
def test_a_question_has_claim_run_what_was_seen_and_a_verdict(question: str) -> None:
    parts = re.findall(r"^\*(Claim|Run|Seen|Verdict)\.\* (.+)", SECTIONS[question], re.MULTILINE)
    assert [name for name, _ in parts] == ["Claim", "Run", "Seen", "Verdict"]
    assert dict(parts)["Verdict"].lstrip("*").startswith(VERDICTS)
    assert f"| {question} |" in PAGE.partition("### ")[0]


def test_every_reproduction_is_named_and_every_name_is_there() -> None:
    assert set(re.findall(r"docs/findings/(h\d\w+\.py)", PAGE)) == {path.name for path in SCRIPTS}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_reproduction_says_what_it_shows_and_has_a_deadline(script: Path) -> None:
    tree = ast.parse(script.read_text())
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert calls & {"signal.alarm", "fake_slices.deadline"}
    question = script.stem.partition("_")[0].upper().replace("H0", "H")
    assert (ast.get_docstring(tree) or "").startswith(f"{question}: ")


def test_the_table_of_the_catalogue_says_what_the_file_of_deviations_says() -> None:
    rows = re.findall(r"^\| ([\w-]+) \| (PASS|KNOWN|not run) \| (.+?) \|", PAGE, re.MULTILINE)
    recorded = deviations.recorded("ray-train", "2.60.0")
    expected = {
        entry.name: ", ".join(d.invariant for d in recorded if d.experiment == entry.name)
        for entry in catalogue.catalogue()
    }
    assert {name: what.strip("\N{EN DASH}") for name, _, what in rows} == expected
    assert all((verdict == "KNOWN") == bool(expected[name]) for name, verdict, _ in rows)
