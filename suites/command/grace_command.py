"""`shaketable grace`: writes into a KubeRay file how long its pods are given to end."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import Annotated

import typer

from shaketable.reports import results
from shaketable.suites.command.commands import command
from shaketable.suites.gate.catalogue import UsageError


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
