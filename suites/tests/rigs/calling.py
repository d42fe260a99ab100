"""A command called in this process: what `shaketable ...` prints and exits with, without seconds of imports."""

from __future__ import annotations

import contextlib
import functools
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer.main

from shaketable.suites.command.cli import application


@dataclass(frozen=True, slots=True)
class Called:
    stdout: str
    stderr: str
    exit_code: int

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


@functools.cache
def _command() -> Any:
    """Typer would make it anew for every call, which takes longer than most commands."""
    return typer.main.get_command(application())


def called(*arguments: object, cwd: Path | None = None) -> Called:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd or Path.cwd()), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            _command().main([str(argument) for argument in arguments], prog_name="shaketable")
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return Called(out.getvalue(), err.getvalue(), code)
