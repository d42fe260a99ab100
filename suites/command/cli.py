"""The `shaketable` command's way in: says what to install where the command line's own libraries are missing."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import Typer

NEEDED = ("typer", "rich", "jinja2", "yaml", "pytest", "xdist", "chaoslib", "psutil")
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def main() -> None:
    """Never returns: the exit code is the verdict (see `shaketable run --help`)."""
    try:
        _main()
    except KeyboardInterrupt:
        # while it is still importing; later the command itself answers
        print("interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def _main() -> None:
    missing = [module for module in NEEDED if importlib.util.find_spec(module) is None]
    if missing:
        print(f"Error: shaketable needs {', '.join(missing)}: pip install 'shaketable[chaos]'", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    application()()


def application() -> Typer:
    """With every command: a module of commands adds its own when it is imported."""
    from shaketable.suites.command import (  # noqa: F401
        catalogue_commands,
        cluster_commands,
        compare_command,
        explore,
        incident_commands,
        money_commands,
        preflight_command,
        schema_command,
    )
    from shaketable.suites.command.commands import app

    return app


if __name__ == "__main__":
    main()
