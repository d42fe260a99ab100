"""`shaketable reproduce` and `import-trace`: from what happened to an experiment that makes it happen again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from shaketable.reports import results
from shaketable.suites.catalogue import UsageError
from shaketable.suites.commands import Json, check_json, command, encoded, write

Output = Annotated[
    Path | None,
    typer.Option("--output", metavar="FILE", help="Where the experiment goes; else it is printed."),
]


@command(
    examples="""
shaketable reproduce /shared/runs/demo --output incident.yaml    a run of the bundled runtime, from its log
shaketable reproduce ~/ray_results/demo --output incident.yaml   a Ray Train run under shaketable.Recorder
shaketable reproduce shaketable-results/latest/worker-crash      a result
shaketable run incident.yaml                                     and make it happen again
"""
)
def reproduce(
    run_or_result: Annotated[
        Path,
        typer.Argument(metavar="RUN_OR_RESULT", help="A run's directory, a recording, or a result folder."),
    ],
    output: Output = None,
    json: Json = None,
) -> int:
    """Write an experiment that does to a run what happened to a recorded one; nothing is run."""
    from shaketable.suites.incidents import reproduced

    check_json(json)
    made = reproduced(run_or_result)
    _publish(made.text, output)
    for line in made.summary():
        print(line, file=sys.stderr)
    write(json, encoded({**made.as_json(), "output": str(output) if output else None}))
    return results.EXIT_PASS


@command(
    examples="""
shaketable import-trace spot.csv --output spot.yaml        nodes come and go as in spot.csv, within a minute
shaketable import-trace spot.csv --scale 600               a second stands for ten minutes of the trace
shaketable import-trace spot.csv --notice --seed 7         with notice; other victims where no node is named
shaketable run spot.yaml --subject ray-train
"""
)
def import_trace(
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="TRACE", help="Lines of time,add|remove,node: seconds; the name may be missing."
        ),
    ],
    scale: Annotated[
        float | None,
        typer.Option(metavar="X", help="Seconds of the trace in one second; else all of it takes a minute."),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="Of the victims that the trace does not name.")
    ] = 0,
    notice: Annotated[
        bool, typer.Option("--notice", help="Nodes get SIGTERM and leave, instead of SIGKILL.")
    ] = False,
    output: Output = None,
    json: Json = None,
) -> int:
    """Write an experiment in which capacity comes and goes as in a trace; nothing is run."""
    from shaketable.suites.incidents import imported

    check_json(json)
    made = imported(trace, scale=scale, seed=seed, notice=notice)
    _publish(made.text, output)
    for line in made.summary():
        print(line, file=sys.stderr)
    write(json, encoded({**made.as_json(), "output": str(output) if output else None}))
    return results.EXIT_PASS


def _publish(text: str, output: Path | None) -> None:
    if output is None:
        print(text, end="")
        return
    try:
        output.write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write --output {output}: {error.strerror}") from None
    print(f"{output}: run it with: shaketable run {output}", file=sys.stderr)
