"""`shaketable run --kill-at-each write -- python train.py`: one run without faults, then one for each point of one of
its checkpoints. Each begins in a fresh copy of the job's folder, is killed there, and is launched again.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TextIO

from shaketable.chaos.experiment.job_lookup import found_program
from shaketable.reports.console import Console, last_line, shown
from shaketable.reports.results import Result, ResultVerdict, Run
from shaketable.suites.gate import outputs
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.gate.environment import version_of
from shaketable.suites.gate.runner import ended_by_signals
from shaketable.suites.saving import filtering, supervised
from shaketable.suites.saving.supervised import Job, Life, NotPermitted
from shaketable.suites.saving.trace import (
    KINDS,
    Checkpoint,
    Killed,
    NoCheckpoint,
    Point,
    Watch,
    checkpoint_of,
    last_step,
    points,
    resumed_at,
)

WITHIN_S = 300.0
MAX_FOLDER_BYTES, MAX_FOLDER_FILES = 512 << 20, 20_000
NOT_COPIED = (".git", ".venv", "venv", "__pycache__", ".nox", "node_modules")
FOLDER, LOG, CLEAN = "job", "output.log", "without-faults"
NAMED = 3
NAME_WIDTH = len("between-checkpoints")


@dataclass(frozen=True, slots=True)
class Request:
    """`kinds`: of file events, in this order. `word` is printed before the number of a step."""

    command: tuple[str, ...]
    kinds: tuple[str, ...]
    word: str = "step"
    within_s: float = WITHIN_S
    results: Path | None = None
    root: Path = outputs.ROOT
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Clean:
    """The run without faults: one of its checkpoints, and the last step of all."""

    checkpoint: Checkpoint
    last: int
    result: Result


def run(request: Request, out: TextIO) -> Run:
    """All of it, but for the exit code. Raises UsageError where nothing could be tried."""
    source = Path.cwd()
    if not filtering.supported():
        raise UsageError("--kill-at-each needs Linux 5.5 or later on x86-64 or ARM64")
    if found_program(request.command[0], "") is None:
        raise UsageError(f"there is no program {request.command[0]!r} on PATH or in {source}")
    _check_size(source)
    folder = outputs.ResultsFolder.create(request.results, request.root)
    folder.link()
    blank = Run(
        version_of("shaketable"), version_of("ray"), None, datetime.now().astimezone().isoformat("T", "seconds")
    )
    began = time.monotonic()
    with ended_by_signals(), Console(out, NAME_WIDTH, quiet=request.quiet) as console:
        what = f"{shlex.join(request.command)} · killed at each {', '.join(request.kinds)}"
        console.note(f"shaketable {blank.shaketable} · {what} of one checkpoint")
        console.started(CLEAN)
        clean = _clean(request, source, folder.path)
        console.finished(CLEAN, clean.result)
        results = _trials(request, clean, source, folder.path, console)
    finished = replace(blank, results=(clean.result, *results), seconds=time.monotonic() - began)
    report = outputs.write_reports(finished, folder)
    if losing := [result for result in results if result.verdict == "FAIL"]:
        console.line(f"{len(losing)} of {len(results)} kills lost the checkpoint, or the job")
    console.line(last_line(finished, report))
    return finished


# ---- the run without faults ----------------------------------------------------------------------------------


def _clean(request: Request, source: Path, results: Path) -> Clean:
    began = time.monotonic()
    job, log = _copied(request, source, results / CLEAN)
    life = _lived(job, log, Watch(None))
    if life.code != 0:
        why = (
            f"did not end within {request.within_s:g} s (--within)" if life.code is None else f"ended with {life.code}"
        )
        raise UsageError(f"without faults, the job {why}: {_last_words(log)} ({shown(log)})")
    try:
        checkpoint = checkpoint_of(life.events)
    except NoCheckpoint as error:
        raise UsageError(f"{error}. {_advice(request, life)}") from None
    last = last_step(life.events)
    assert last is not None
    counts = Counter(event.kind for event in checkpoint.events)
    events = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])
    if not any(counts[kind] for kind in request.kinds):
        what = " or ".join(request.kinds)
        raise UsageError(f"the checkpoint after step {checkpoint.step} has no {what} to be killed at: {events}")
    reason = f"ended at step {last}; the checkpoint after step {checkpoint.step}: {events}"
    return Clean(checkpoint, last, Result(CLEAN, "PASS", reason, time.monotonic() - began, CLEAN))


def _advice(request: Request, life: Life) -> str:
    others = list(life.elsewhere)[:NAMED]
    where = f" It also changed files elsewhere, which are not watched: {', '.join(others)}." if others else ""
    return (
        f"The job has to save below the folder that it is started in, and to print its steps, such as"
        f" `{request.word} 12` (--step-key names another word).{where}"
    )


# ---- the points ----------------------------------------------------------------------------------------------


def _trials(request: Request, clean: Clean, source: Path, results: Path, console: Console) -> list[Result]:
    found: list[Result] = []
    # what a kill between two checkpoints leaves: from there every other one has to go on, too
    due = clean.checkpoint.before + 1
    for point in points(clean.checkpoint, request.kinds):
        console.started(point.name)
        result, resumed = _trial(request, clean, point, due, source, results)
        found.append(result)
        console.finished(point.name, result)
        if not point.nth and result.verdict == "PASS" and resumed is not None:
            due = max(due, resumed)
    return found


def _trial(
    request: Request, clean: Clean, point: Point, due: int, source: Path, results: Path
) -> tuple[Result, int | None]:
    began = time.monotonic()
    job, log = _copied(request, source, results / point.name)
    first = _lived(job, log, Watch(point))
    events, code = list(first.events), first.code
    killed = any(isinstance(event, Killed) for event in events)
    # what was left of it and waited is gone now, too
    if killed and code != 0:
        again = _lived(job, log, Watch(None))
        events, code = events + again.events, again.code
    resumed = resumed_at(events)
    verdict, reason = _judged(killed, code, resumed, due, last_step(events), clean.last)
    if verdict == "FAIL" and code not in (0, None):
        reason = f"{reason}: {_last_words(log)}"
    result = Result(
        point.name,
        verdict,
        f"{point.file}: {reason}" if point.file else reason,
        time.monotonic() - began,
        point.name,
        title=f"SIGKILL {point}",
        landed=(f"SIGKILL {point}",) if killed else (),
        notes=() if verdict == "PASS" else (f"its output and its files: {shown(log.parent)}",),
    )
    return result, resumed


def _judged(
    killed: bool, code: int | None, resumed: int | None, due: int, last: int | None, last_due: int
) -> tuple[ResultVerdict, str]:
    if not killed:
        return "INVALID", "the job never came to this point: its file events differ from run to run"
    if code is None:
        return "FAIL", "the job did not end in time once it was launched again"
    if code != 0:
        return "FAIL", f"the job could not be launched again, it ended with {code}"
    if resumed is None:
        return "FAIL", "launched again, the job ended without a step and a checkpoint"
    if resumed < due:
        return "FAIL", f"lost: resumed at step {resumed}, and the last complete checkpoint goes on at {due}"
    if last != last_due:
        return "FAIL", f"ended at step {last}, without faults at step {last_due}"
    return "PASS", f"resumed at step {resumed}"


# ---- the job and its folder ----------------------------------------------------------------------------------


def _lived(job: Job, log: Path, watch: Watch) -> Life:
    try:
        return supervised.live(job, log, watch)
    except NotPermitted as error:
        raise UsageError(
            f"--kill-at-each is not permitted here: {error.strerror}. It needs Linux 5.5 or later, and a container that"
            " lets a process set a seccomp filter with a listener"
        ) from None


def _copied(request: Request, source: Path, trial: Path) -> tuple[Job, Path]:
    folder = trial / FOLDER
    results = trial.parent
    shutil.copytree(source, folder, symlinks=True, ignore=lambda directory, names: _left_out(directory, names, results))
    return Job(request.command, folder, request.word, request.within_s), trial / LOG


def _left_out(directory: str, names: Sequence[str], results: Path | None = None) -> list[str]:
    """What is no part of the job; nor are results, these or those of another run."""
    return [name for name in names if name in NOT_COPIED or _is_results(Path(directory, name), results)]


def _is_results(path: Path, results: Path | None) -> bool:
    return path.name == outputs.ROOT.name or path == results or (path / "results.json").is_file()


def _check_size(source: Path) -> None:
    size = count = 0
    for directory, folders, files in os.walk(source):
        out = _left_out(directory, folders)
        folders[:] = [name for name in folders if name not in out]
        count += len(files)
        for name in files:
            with suppress(OSError):
                size += Path(directory, name).lstat().st_size
        if size > MAX_FOLDER_BYTES or count > MAX_FOLDER_FILES:
            raise UsageError(
                f"{source} is copied for every point, and has more than {MAX_FOLDER_BYTES >> 20} MiB or"
                f" {MAX_FOLDER_FILES} files: start the job in a folder of its own"
            )


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"
