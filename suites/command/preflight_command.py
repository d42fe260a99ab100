"""`shaketable preflight`: whether a cluster's file has room for an elastic training, before anything is started."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shaketable.reports import results
from shaketable.suites.command.commands import Json, check_json, command, encoded, write
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.tools.cluster_files import NO_LIMIT, ClusterFile, read
from shaketable.suites.tools.preflight import Problem, Wanted, most_units, per_unit, problems


@command(
    examples="""
shaketable preflight --scaling 1:8 raycluster.yaml                                    one CPU per worker
shaketable preflight --scaling 2:8 --resources-per-worker GPU=1,CPU=8 rayjob.yaml     KubeRay, two to eight GPUs
shaketable preflight --scaling 2:6 --resources-per-worker TPU=4 raycluster.yaml       slices: numOfHosts counts
shaketable preflight --scaling 4 cluster.yaml --json preflight.json                   a Ray cluster YAML, a fixed size
"""
)
def preflight(
    cluster_file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A RayCluster, RayJob or RayService, or a Ray cluster YAML.")
    ],
    scaling: Annotated[str, typer.Option(metavar="MIN:MAX", help="num_workers of the training, such as 1:8 or 4.")],
    resources_per_worker: Annotated[
        str, typer.Option(metavar="NAME=N,...", help="Resources of one worker, as in ScalingConfig.")
    ] = "CPU=1",
    json: Json = None,
) -> int:
    """Check that an autoscaler can serve a training.

    Checks the smallest and the largest world size. Names the lines to change. Exit code 0 if it can, 1 if it cannot, 2
    if the file or an option cannot be read. Checks only the file, not the quota of the cloud or the Kubernetes
    autoscaler."""
    from shaketable.reports.console import Console

    wanted = Wanted(*_scaling(scaling), _resources(resources_per_worker))
    check_json(json)
    file = read(cluster_file)
    found = problems(file, wanted)
    console = Console(sys.stdout)
    for line in (*lines(file, wanted, found), *(groups(file, wanted) if not found else ())):
        console.line(line)
    write(json, encoded(as_json(file, wanted, found)))
    return results.EXIT_FAIL if found else results.EXIT_PASS


def _scaling(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    if found is None:
        raise UsageError(f"--scaling {text}: give the training's MIN:MAX workers, such as 1:8, or one number")
    least = int(found[1])
    most = int(found[2]) if found[2] else least
    if not 1 <= least <= most:
        raise UsageError(f"--scaling {text}: the minimum must be 1 or more, and at most the maximum")
    return least, most


def _resources(text: str) -> dict[str, float]:
    named: dict[str, float] = {}
    for pair in text.split(","):
        found = re.fullmatch(r"\s*([^=\s]+)=(\d+(?:\.\d+)?)\s*", pair)
        if found is None:
            raise UsageError(f"--resources-per-worker {text}: give NAME=N, such as GPU=1 or CPU=8,GPU=1")
        if found[1] in named:
            raise UsageError(f"--resources-per-worker {text}: names {found[1]} twice; name each resource once")
        named[found[1]] = float(found[2])
    if not any(named.values()):
        raise UsageError(f"--resources-per-worker {text}: a worker must need something; give its GPU, TPU or CPU")
    return named


def lines(file: ClusterFile, wanted: Wanted, found: list[Problem]) -> list[str]:
    """The answer, then three lines for each problem."""
    if not found:
        return [f"{file.path}: can serve {wanted}"]
    said = [f"{file.path}: cannot serve {wanted}"]
    for problem in found:
        said += [f"  line {problem.line:<5} {problem.field}", f"    {problem.matter}", f"    change: {problem.change}"]
    return said


def groups(file: ClusterFile, wanted: Wanted) -> list[str]:
    """What the answer was found from."""
    said = []
    for group in file.groups:
        units, unit = most_units(file, group), per_unit(group, wanted)
        most = "any number of" if units == NO_LIMIT else f"at most {units}"
        target_kind = f"slices of {group.hosts} nodes" if group.hosts > 1 else "nodes"
        holds = f"{unit} worker{'' if unit == 1 else 's'} each" if unit else "too small for a worker"
        guess = "; a guess, because the file states no resources" if unit and group.resources is None else ""
        said.append(f"  {group.name}: {most} {target_kind}, {holds}{guess}")
    return said


def as_json(file: ClusterFile, wanted: Wanted, found: list[Problem]) -> dict[str, Any]:
    return {
        "file": str(file.path),
        "serves": not found,
        "least": wanted.least,
        "most": wanted.most,
        "resources_per_worker": dict(wanted.resources),
        "problems": [dataclasses.asdict(one) for one in found],
    }
