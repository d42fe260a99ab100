"""`shaketable judge`: judges recorded histories again, one experiment's or a whole results directory's.

Only `history.jsonl` decides. The other files in a folder add what a history does not know (seconds, the mutant of a
canary), so a copy elsewhere gives the same verdict, and nothing here writes to the folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.history import events as history
from shaketable.chaos.history.events import AnyEvent, ExperimentBegan, HistoryError
from shaketable.chaos.history.recording import recordings
from shaketable.chaos.history.sealing import Stored, read_history
from shaketable.chaos.history.view import History
from shaketable.chaos.subjects.recorded import read_record
from shaketable.chaos.verdict.judge import judge
from shaketable.chaos.verdict.views import viewed
from shaketable.reports.goodput import goodput
from shaketable.reports.results import Result, Run
from shaketable.suites.gate import execution
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.gate.environment import version_of
from shaketable.suites.gate.execution import HISTORY, RESULT


def judge_folder(path: Path) -> Run:
    """Raises UsageError when there is no history, or one that cannot be read."""
    if not path.exists():
        raise UsageError(f"{path}: no such directory; give a result folder")
    if recordings(path) and not (path / HISTORY).is_file():
        return _production(path)
    folders = [path] if (path / HISTORY).is_file() else sorted(file.parent for file in path.glob(f"*/{HISTORY}"))
    if not folders:
        raise UsageError(
            f"{path} holds no {HISTORY} and no recording: give a result folder, or a directory of result folders"
        )
    results = [_judged(folder, path) for folder in folders]
    ray = next((versions["ray"] for _, versions in results if "ray" in versions), "")
    run = Run(shaketable=version_of("shaketable"), ray=ray, seed=_seed(results), started="")
    for result, _ in results:
        run = run.with_result(result if len(folders) > 1 else replace(result, canary=False))
    return run


def _production(path: Path) -> Run:
    """One run that `shaketable.Recorder` has seen; no experiment, so that there is none to repeat, but one to make."""
    try:
        events = list(read_record(path).events)
    except ExperimentError as error:
        raise UsageError(str(error)) from None
    judged, known, versions = judge(events), _on_file(path, events), _versions(events)
    measured, notes = viewed("goodput", lambda: goodput(events))
    result = replace(
        known,
        name=known.title or known.name,
        verdict=judged.verdict,
        reason=judged.reason,
        findings=judged.findings,
        goodput=measured,
        notes=(*judged.notes, *notes),
        folder=str(path),
        reproduce=f"shaketable reproduce {path}",
    )
    run = Run(shaketable=version_of("shaketable"), ray=versions.get("ray", ""), seed=None, started="")
    return run.with_result(result)


def _seed(results: list[tuple[Result, dict[str, str]]]) -> int | None:
    seeds = {result.seed for result, _ in results}
    return seeds.pop() if len(seeds) == 1 else None


def _judged(folder: Path, root: Path) -> tuple[Result, dict[str, str]]:
    try:
        stored = read_history(folder / HISTORY)
    except HistoryError as error:
        raise UsageError(f"{error}. If another version of shaketable wrote it, judge it with that version") from None
    # whatever order it was copied in
    events = history.merge([stored.events])
    seen = History(events)
    judgement = judge(seen, stored.damage or _stripped(stored))
    if said := _cut(folder / HISTORY):
        judgement = replace(judgement, verdict="INVALID", reason=said)
    known = replace(_on_file(folder, events), folder=str(folder.relative_to(root)), traceback="")
    result = execution.judged(known, judgement, seen, goodput)
    result = replace(result, notes=(*result.notes, *_older(stored)))
    return replace(result, reproduce=execution.reproduce(folder, result.mutant)), _versions(events)


def _older(stored: Stored) -> Iterator[str]:
    """What this history cannot show, because an older version, or no harness at all, wrote it."""
    if not stored.sealed:
        yield "its lines carry no digests: nothing shows that they are as they were written"
    began = next((event for event in stored.events if isinstance(event, ExperimentBegan)), None)
    if began is not None and began.faults is None:
        yield "it holds no plan: nothing shows that all that was planned took place"


def _stripped(stored: Stored) -> str:
    """Whoever writes a plan down also seals every line; empty: nothing speaks for a seal that was taken off."""
    planned = any(isinstance(event, ExperimentBegan) and event.faults is not None for event in stored.events)
    return "its lines carry no digests, and it was written with them" if planned and not stored.sealed else ""


def _cut(path: Path) -> str:
    """How a history is cut off, which is written whole or not at all; empty: it is not."""
    content = path.read_bytes()
    if content.endswith(b"\n"):
        return ""
    *whole, rest = content.split(b"\n")
    cut = f"is cut off in the middle of line {len(whole) + 1}" if rest else "is empty"
    return f"{path.name} {cut}: it was written whole, so copy it again"


def _on_file(folder: Path, events: list[AnyEvent]) -> Result:
    """What the run wrote down beside the history, or what the history says where there is no such file."""
    name = folder.absolute().name
    if (folder / RESULT).is_file():
        return replace(execution.load((folder / RESULT).read_bytes()), name=name)
    began = next((event for event in events if isinstance(event, ExperimentBegan)), None)
    seconds = max((event.at_s for event in events), default=0.0) - min((event.at_s for event in events), default=0.0)
    blank = Result(name=name, verdict="INVALID", reason="", seconds=seconds, folder="")
    if began is None:
        return blank
    return replace(
        blank,
        title=began.title,
        subject=began.subject,
        cluster=began.cluster,
        seed=began.seed,
        nodes=int(began.configuration.get("nodes", 0)),
    )


def _versions(events: list[AnyEvent]) -> dict[str, str]:
    return next((dict(event.versions) for event in events if isinstance(event, ExperimentBegan)), {})
