"""`shaketable schema`: the JSON schemas of what shaketable writes and reads, for programs and editors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from shaketable.reports import results
from shaketable.reports.comparison import compared
from shaketable.suites.command.commands import command
from shaketable.suites.gate.catalogue import UsageError, nearest
from shaketable.suites.tools import experiment_schema

DRAFT = "https://json-schema.org/draft/2020-12/schema"


@command(
    examples="""
shaketable schema results > results.schema.json           results.json, and what run and judge write with --json
shaketable schema result                                  result.json of one experiment
shaketable schema compare                                 what compare writes with --json
shaketable schema experiment > experiment.schema.json     experiment files, for your editor
"""
)
def schema(what: Annotated[str, typer.Argument(metavar="WHAT", help="results, result, compare or experiment.")]) -> int:
    """Print a JSON schema.

    The number of a schema changes when a field goes or means something else. New fields leave it as it is."""
    if what not in SCHEMAS:
        raise UsageError(f"there is no schema {what!r}{nearest(what, SCHEMAS)}")
    sys.stdout.write(text(what))
    return results.EXIT_PASS


def text(what: str) -> str:
    made = {"$schema": DRAFT, "title": f"shaketable {what}", **SCHEMAS[what]()}
    return msgspec.json.format(msgspec.json.encode(made)).decode() + "\n"


def _of(kind: type) -> Callable[[], dict[str, Any]]:
    return lambda: msgspec.json.schema(kind)


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "results": _of(results.Written),
    "result": _of(results.Result),
    "compare": _of(compared.Comparison),
    "experiment": experiment_schema.schema,
}
