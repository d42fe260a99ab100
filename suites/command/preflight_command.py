"""`shaketable preflight`: whether a cluster's file has room for an elastic training, before anything is started.
`shaketable grace`: writes into a KubeRay file how long its pods are given to end."""

from __future__ import annotations

import dataclasses
import difflib
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shaketable.reports import results
from shaketable.suites.command.commands import Json, check_json, command, encoded, write
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.preflight.checks import Problem, Wanted, most_units, per_unit, problems
from shaketable.suites.preflight.cluster_files import NO_LIMIT, ClusterFile, read
from shaketable.suites.preflight.worker_resources import check_names, given, told_by


@command(
    examples="""
shaketable preflight --scaling 1:8 raycluster.yaml                                    a worker asks for what nodes have
shaketable preflight --scaling 2:8 --resources-per-worker GPU=1,CPU=8 rayjob.yaml     KubeRay, two to eight GPUs
shaketable preflight --scaling 1:8 --checkpoint-s 25 raycluster.yaml                  does a pod that goes have 25 s?
shaketable preflight --scaling 4 cluster.yaml --json preflight.json                   a Ray cluster YAML, a fixed size
"""
)
def preflight(
    cluster_file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A RayCluster, RayJob or RayService, or a Ray cluster YAML.")
    ],
    scaling: Annotated[str, typer.Option(metavar="MIN:MAX", help="num_workers of the training, such as 1:8 or 4.")],
    resources_per_worker: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=N,...",
            help="Resources of one worker, as in ScalingConfig. Default: all TPU chips of a node, else one GPU, else"
            " one CPU, whichever the file has.",
        ),
    ] = None,
    checkpoint_s: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="From a notice until a checkpoint is committed: two steps, the saving and the upload. Checks the pods'"
            " grace periods.",
        ),
    ] = 0.0,
    json: Json = None,
) -> int:
    """Check that an autoscaler can serve a training.

    Checks the smallest and the largest world size. Names the lines to change. Exit code 0 if it can, 1 if it cannot, 2
    if the file or an option cannot be read. Checks only the file, not the quota of the cloud or the Kubernetes
    autoscaler."""
    from shaketable.reports.console import Console

    bounds = _scaling(scaling)
    asked = None if resources_per_worker is None else given(resources_per_worker)
    check_json(json)
    file = read(cluster_file)
    if checkpoint_s and not file.kuberay:
        raise UsageError(
            "--checkpoint-s: a Ray cluster YAML states no grace period; ask your cloud how long its notice is"
        )
    check_names(asked or {}, file)
    wanted = Wanted(*bounds, asked or told_by(file), checkpoint_s)
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
        "checkpoint_s": wanted.checkpoint_s,
        "problems": [dataclasses.asdict(one) for one in found],
    }


@command(
    examples="""
shaketable grace --checkpoint-s 20 raycluster.yaml                        a checkpoint takes 20 s from the notice
shaketable grace --checkpoint-s 20 --replacement-s 60 rayjob.yaml         and another pod a minute to be a node
shaketable grace --checkpoint-s 20 --dry-run raycluster.yaml              show what would be changed, and leave the file
"""
)
def grace(
    cluster_file: Annotated[Path, typer.Argument(metavar="FILE", help="A RayCluster, RayJob or RayService.")],
    checkpoint_s: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="From a notice until a checkpoint is committed: two steps, the saving and the upload.",
        ),
    ],
    replacement_s: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="Until another pod is a node of Ray. Only a run that cannot go on without it gains from that.",
        ),
    ] = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing.")] = False,
) -> int:
    """Give pods the time that a checkpoint takes.

    Sets terminationGracePeriodSeconds of every worker group, and the time that Ray drains, 5 s below it. Without that,
    a pod with less than 30 s is killed in the middle of Ray's drain, and one with more uses only 30 of them. Comments
    and order stay. Prints what it has changed."""
    try:
        from shaketable.suites.preflight.grace import grace_s, with_grace
    except ImportError as error:
        raise UsageError(f"{error.name} is not installed: pip install 'shaketable[kubernetes]'") from None

    before, after = with_grace(cluster_file, grace_s(checkpoint_s, replacement_s))
    changes = difflib.unified_diff(before.splitlines(True), after.splitlines(True), str(cluster_file), "changed")
    sys.stdout.writelines(changes)
    if after == before:
        print(f"{cluster_file}: nothing to change")
    elif not dry_run:
        _replace(cluster_file, after)
    return results.EXIT_PASS


def _replace(path: Path, text: str) -> None:
    """Whole or not at all."""
    written = path.with_name(f".{path.name}.new")
    try:
        written.write_text(text)
        written.chmod(path.stat().st_mode)
        written.rename(path)
    except OSError as error:
        written.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
