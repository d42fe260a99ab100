"""The published JSON schemas: docs/schema/ has those of this version, and every file that is written obeys them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from shaketable.reports import results
from shaketable.reports.comparison import compared
from shaketable.suites.command.schema_command import SCHEMAS, text
from shaketable.suites.gate import execution
from shaketable.suites.gate.outputs import as_json
from shaketable.suites.tests.rigs import repeated_runs
from shaketable.suites.tests.rigs.calling import called

DOCS = Path(__file__).resolve().parents[3] / "docs" / "schema"
# that of an experiment file has no number: the file is Chaos Toolkit's
NUMBERS = {"results": results.SCHEMA, "result": results.SCHEMA, "compare": compared.SCHEMA, "experiment": 1}


def strict(what: str) -> dict[str, Any]:
    """The published schema, and nothing besides what it names: whoever adds a field publishes it."""
    made: dict[str, Any] = json.loads((DOCS / f"{what}-{NUMBERS[what]}.json").read_text())
    for each in [made, *made.get("$defs", {}).values()]:
        if "properties" in each:
            each["additionalProperties"] = False
    return made


def obeys(content: bytes | str, what: str) -> None:
    jsonschema.validate(json.loads(content), strict(what))


@pytest.mark.parametrize("what", SCHEMAS)
def test_the_published_schema_is_that_of_this_version(what: str) -> None:
    """`shaketable schema WHAT > docs/schema/WHAT-NUMBER.json` writes it."""
    assert (DOCS / f"{what}-{NUMBERS[what]}.json").read_text() == text(what)
    assert called("schema", what).stdout == text(what)


def test_what_a_run_and_a_comparison_write_obeys_its_schema(tmp_path: Path) -> None:
    old, new = (repeated_runs.run(seed, experiments={"worker-crash": 0.5}) for seed in (1, 2))
    obeys(as_json(old), "results")
    obeys(execution.dump(old.results[0]), "result")
    obeys(msgspec.json.encode(compared.compare(old, new, 2.0)), "compare")
    folders = [repeated_runs.write(run, tmp_path / name) for run, name in ((old, "old"), (new, "new"))]
    obeys(called("compare", *folders, "--json", "-").stdout, "compare")


def test_a_run_in_virtual_time_writes_files_that_obey_their_schema(tmp_path: Path) -> None:
    done = called(
        "run", "worker-crash", "--cluster", "simulated", "--results", tmp_path / "r", "--json", tmp_path / "j"
    )
    assert done.exit_code == 0, done.stdout + done.stderr
    obeys((tmp_path / "r" / "results.json").read_text(), "results")
    obeys((tmp_path / "j").read_text(), "results")
    obeys((tmp_path / "r" / "worker-crash" / "result.json").read_text(), "result")
    judged = called("judge", tmp_path / "r", "--json", tmp_path / "judged")
    assert judged.exit_code == 0, judged.stderr
    obeys((tmp_path / "judged").read_text(), "results")


def test_the_test_sees_a_field_that_nobody_published() -> None:
    written = json.loads(as_json(repeated_runs.run(1, experiments={"worker-crash": 0.5})))
    spoils: tuple[Callable[[Any], None], ...] = (
        lambda run: run.update(new=1),
        lambda run: run["results"][0]["recoveries"][0].update(new=1),
    )
    for spoil in spoils:
        spoiled = copy.deepcopy(written)
        spoil(spoiled)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(spoiled, strict("results"))


def test_an_unknown_schema_is_refused_with_those_that_there_are() -> None:
    done = called("schema", "resluts")
    assert (done.exit_code, "did you mean results" in done.stderr) == (2, True)
