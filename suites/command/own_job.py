"""A job of the user's own on the command line: `-- python train.py --epochs 3`, or `--train package.module:function`.

It becomes the same configuration keys that an experiment file may name (`job`, `cwd`, `step_key`, ...), so that the
resolved file in the result folder runs it again.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer
import yaml
from typer.core import TyperCommand

from shaketable.chaos.experiment import documents
from shaketable.reports.results import Run
from shaketable.suites.gate.catalogue import UsageError

META = "shaketable.own_command"
MAX_CONFIG_BYTES = 1 << 20


class FileEvents(StrEnum):
    """What a job does to its files."""

    WRITE = "write"
    RENAME = "rename"
    FSYNC = "fsync"


class WithOwnCommand(TyperCommand):
    """Takes everything after the first `--` away before options are read: it is not ours."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            args, ctx.meta[META] = args[:cut], args[cut + 1 :]
        return super().parse_args(ctx, args)


def command(context: typer.Context) -> list[str]:
    """What stood behind `--`; nothing if there was none. Raises UsageError."""
    words: list[str] | None = context.meta.get(META)
    if words is not None and not words:
        raise UsageError("no command after `--`: write one, such as -- python train.py")
    return words or []


def variables(
    words: list[str], train: str, config: Path | None, step_key: str, within_s: float, subject: str | None
) -> dict[str, str]:
    """Configuration for a job of one's own; empty where there is none. Raises UsageError."""
    if words and train:
        raise UsageError("give --train or a command after `--`, not both")
    if config is not None and not train:
        raise UsageError(f"--config {config} is for --train; a command takes its own arguments: -- python train.py ...")
    said = {"step_key": step_key, "within_s": str(within_s or "")}
    options = {key: value for key, value in said.items() if value}
    if not words and not train:
        return options
    job = {"job": train or shlex.join(words), "job_config": json.dumps(_content(config))}
    return job | {"cwd": str(Path.cwd()), "subject": subject or "ray-train"} | options


def killed_at_each(
    kinds: Sequence[str],
    words: list[str],
    step_key: str,
    within_s: float,
    results: tuple[Path | None, Path],
    quiet: bool,
    others: Mapping[str, object],
) -> Run:
    """`results`: the folder that was named, and where one is made if none was. `others`: what has no meaning beside
    `--kill-at-each`, by its name. Raises UsageError."""
    from shaketable.suites.saving import kill_at_each

    if not words:
        raise UsageError("--kill-at-each is for a job of your own: write it after `--`, such as -- python train.py")
    if given := [name for name, value in others.items() if value]:
        raise UsageError(f"--kill-at-each runs your command as it is, without a cluster: leave out {', '.join(given)}")
    request = kill_at_each.Request(
        tuple(words),
        tuple(dict.fromkeys(kinds)),
        step_key or "step",
        within_s or kill_at_each.WITHIN_S,
        *results,
        quiet=quiet,
    )
    return kill_at_each.run(request, sys.stdout)


def _content(config: Path | None) -> dict[str, Any]:
    if config is None:
        return {}
    try:
        if config.stat().st_size > MAX_CONFIG_BYTES:
            raise UsageError(f"--config {config}: larger than {MAX_CONFIG_BYTES >> 20} MiB")
        # JSON is YAML
        content = documents.parsed(config.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {config}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"--config {config}: neither JSON nor YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise UsageError(f"--config {config}: must be a mapping such as {{epochs: 3}}, not {content!r}")
    return _as_json(content, config)


def _as_json(content: dict[str, Any], config: Path) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = json.loads(json.dumps(content))
    except (TypeError, ValueError) as error:
        raise UsageError(f"--config {config}: contains a value that JSON cannot represent: {error}") from None
    return plain
