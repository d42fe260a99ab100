"""A command called in this process: what `shaketable ...` prints and exits with, without seconds of imports."""

from __future__ import annotations

from click.testing import Result
from typer.testing import CliRunner

from shaketable.suites import money_commands  # noqa: F401  (its commands join the others)
from shaketable.suites.commands import app


def called(*arguments: object) -> Result:
    """Its `stdout`, `stderr` and `exit_code`."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])
