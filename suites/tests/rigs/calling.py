"""A command called in this process: what `shaketable ...` prints and exits with, without seconds of imports."""

from __future__ import annotations

import contextlib
from pathlib import Path

from typer.testing import CliRunner, Result

from shaketable.suites.command.cli import application


def called(*arguments: object, cwd: Path | None = None) -> Result:
    """Its `stdout`, `stderr` and `exit_code`."""
    with contextlib.chdir(cwd or Path.cwd()):
        return CliRunner().invoke(application(), [str(argument) for argument in arguments])
