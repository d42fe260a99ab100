"""Whether the `job` of a configuration is there, looked up without importing anything of it: a job that nobody can
find is found out before a cluster is started.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import sys
from pathlib import Path

from shaketable.chaos.errors import ExperimentError, nearest
from shaketable.chaos.experiment import sources
from shaketable.chaos.job_kinds import is_command, is_pickled
from shaketable.chaos.plan import Configuration


def check_job(made: Configuration, where: str) -> None:
    """Raises ExperimentError that names what is not there."""
    if made.cwd and not Path(made.cwd).is_dir():
        raise ExperimentError(f"{where}: cwd {made.cwd!r}: there is no such directory on this machine")
    if is_pickled(made.job):
        if not Path(made.job).is_file():
            raise ExperimentError(f"{where}: job {made.job!r}: no such file")
        return
    if is_command(made.job):
        _check_command(made, where)
    else:
        _check_function(made, where)


def _check_command(made: Configuration, where: str) -> None:
    try:
        words = shlex.split(made.job)
    except ValueError as error:
        raise ExperimentError(f"{where}: job {made.job!r} is no command line: {error}") from error
    if not words or not found_program(words[0], made.cwd):
        raise ExperimentError(
            f"{where}: job {made.job!r}: job must be written package.module:function, or be a command; no program"
            f" {words[0] if words else ''!r} is on PATH or in {made.cwd or 'the working directory'}"
        )
    if made.subject == "bundled":
        raise ExperimentError(
            f"{where}: the command {made.job!r} cannot run on subject bundled: a command is started as it is, and what"
            " it imports is Ray Train. Use --subject ray-train; or change the imports of the training function from"
            " ray.train to shaketable.runtime and name it: --train package.module:function --subject bundled"
        )

    _check_script(words, Path(made.cwd or "."), f"{where}: job {made.job!r}")


def _check_script(words: list[str], cwd: Path, where: str) -> None:
    """What our own interpreter is told to run. (What another one can import is not known here.)"""
    if len(words) < 2 or Path(found_program(words[0], str(cwd)) or "").parent != Path(sys.executable).parent:
        return
    if words[1] == "-m" and len(words) > 2 and not _importable(words[2], str(cwd)):
        raise ExperimentError(f"{where}: there is no module {words[2]!r} to run, neither installed nor in {cwd}")
    script = cwd / words[1]
    if script.suffix == ".py":
        if not script.is_file():
            there = [path.name for path in script.parent.glob("*.py")] if script.parent.is_dir() else []
            raise ExperimentError(f"{where}: there is no script {script}; {nearest(script.name, there)}")
        sources.check(script, [str(script.parent)], where)


def found_program(word: str, cwd: str) -> str | None:
    """As the driver will look for it: `python` is first of all the interpreter that shaketable runs in."""
    if "/" in word:
        path = Path(cwd or ".", word)
        return str(path) if os.access(path, os.X_OK) and path.is_file() else None
    return shutil.which(word, path=search_path())


def search_path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _check_function(made: Configuration, where: str) -> None:
    module, _, function = made.job.partition(":")
    if not _importable(module, made.cwd):
        place = f" or in {made.cwd}" if made.cwd else ""
        raise ExperimentError(
            f"{where}: job {made.job!r}: there is no module {module!r} to import; is it installed{place}?"
        )
    if (path := _source(module, made.cwd)) is not None:
        sources.check(path, [made.cwd] if made.cwd else [], f"{where}: job {made.job!r}")
        sources.check_defines(path, function, f"{where}: job {made.job!r}")


def _importable(module: str, cwd: str) -> bool:
    """By its outermost package where it lies in `cwd`: nothing of the job is imported here."""
    top = module.partition(".")[0]
    if cwd and importlib.machinery.PathFinder.find_spec(top, [cwd]) is not None:
        return _lies_below(Path(cwd), module)
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _lies_below(cwd: Path, module: str) -> bool:
    path = cwd.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def _source(module: str, cwd: str) -> Path | None:
    """The file of a module that `_importable` has found, where it is one of Python source."""
    here = Path(cwd, *module.split(".")).with_suffix(".py")
    if cwd and here.is_file():
        return here
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    origin = spec.origin if spec is not None else None
    return Path(origin) if origin and origin.endswith(".py") else None
