"""`shaketable reproduce` and `import-trace`: from what happened to an experiment that makes it happen again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from shaketable.reports import results
from shaketable.suites.command.commands import Json, check_json, command, encoded, write
from shaketable.suites.gate.catalogue import UsageError

Output = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="Write the experiment to FILE. Default: print it.")
]


@command(
    examples="""
shaketable reproduce /shared/runs/demo --output incident.yaml    from the log of a run of the bundled runtime
shaketable reproduce ~/ray_results/demo --output incident.yaml   from a Ray Train run under shaketable.Recorder
shaketable reproduce shaketable-results/latest/worker-crash      from a result folder
shaketable reproduce /tmp/ray/session_latest/logs/export_events  from Ray's export, where nothing was recorded
shaketable reproduce events.json                                 from `kubectl get events -o json`
shaketable run incident.yaml                                     repeat the incident
"""
)
def reproduce(
    run_or_result: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_OR_RESULT",
            help="A run's directory, a recording, or a result folder; or events of Ray or Kubernetes.",
        ),
    ],
    output: Output = None,
    json: Json = None,
) -> int:
    """Write an experiment that repeats a recorded run.

    The same faults hit the same ranks at the same steps. Runs nothing. Writes nothing to RUN_OR_RESULT."""
    from shaketable.suites.command.incidents import reproduced

    check_json(json)
    made = reproduced(run_or_result)
    _publish(made.text, output)
    for line in made.summary():
        print(line, file=sys.stderr)
    write(json, encoded({**made.as_json(), "output": str(output) if output else None}))
    return results.EXIT_PASS


@command(
    examples="""
shaketable import-trace spot.csv --output spot.yaml        nodes join and leave as in spot.csv, within a minute
shaketable import-trace spot.csv --scale 600               one second for ten minutes of the trace
shaketable import-trace spot.csv --notice --seed 7         with notice; another seed for unnamed nodes
shaketable import-trace us-east-1f_v100_1.json --nodes 8   SkyPilot's format, for eight nodes at the most
shaketable import-trace day.json --simulated --nodes 1000  a day of a large cluster, in virtual time
shaketable run spot.yaml --subject ray-train               replay the trace
"""
)
def import_trace(
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="TRACE",
            help="CSV lines: seconds,add|remove,node (the node is optional), or time,count as Bamboo published them;"
            " or SkyPilot's JSON.",
        ),
    ],
    scale: Annotated[
        float | None,
        typer.Option(metavar="X", help="Seconds of trace per second of replay. Default: the trace takes a minute."),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="Seed for choosing nodes that the trace does not name.")
    ] = 0,
    notice: Annotated[
        bool, typer.Option("--notice", help="Stop nodes with SIGTERM and notice instead of SIGKILL.")
    ] = False,
    missing: Annotated[
        bool, typer.Option("--missing", help="The numbers of a trace count missing nodes, not those that are there.")
    ] = False,
    nodes: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Scale the numbers of a trace: so many nodes at the most.")
    ] = None,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="For the simulated cluster: up to 1024 nodes, in the trace's own time.")
    ] = False,
    price: Annotated[
        float | None, typer.Option(metavar="P", min=0, help="What an hour of a node costs: the result has the cost.")
    ] = None,
    output: Output = None,
    json: Json = None,
) -> int:
    """Write an experiment from a capacity trace.

    In the experiment, nodes join and leave as in the trace. Runs nothing."""
    from shaketable.suites.command.incidents import imported

    check_json(json)
    made = imported(
        trace, scale=scale, seed=seed, notice=notice, missing=missing, nodes=nodes, simulated=simulated, price=price
    )
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
