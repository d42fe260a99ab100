"""A command called in this process: what `shaketable ...` prints and exits with, without seconds of imports."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from shaketable.suites import money_commands, preflight_command  # noqa: F401  (their commands join the others)
from shaketable.suites.commands import app


def called(*arguments: object) -> Result:
    """Its `stdout`, `stderr` and `exit_code`."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])
