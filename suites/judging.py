"""`shaketable judge`: judges recorded histories again, one experiment's or a whole results directory's.

Only `history.jsonl` decides. The other files in a folder add what a history does not know (seconds, the mutant of a
canary), so a copy elsewhere gives the same verdict, and nothing here writes to the folder.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shaketable.chaos import history
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.history import AnyEvent, ExperimentBegan, HistoryError
from shaketable.chaos.judge import judge
from shaketable.chaos.record import read_record, recordings
from shaketable.reports.goodput import goodput
from shaketable.reports.landed import landed, output
from shaketable.reports.results import Result, Run
from shaketable.suites import deviations, execution
from shaketable.suites.catalogue import UsageError
from shaketable.suites.environment import version_of
from shaketable.suites.execution import HISTORY, RESULT


def judge_folder(path: Path) -> Run:
    """Raises UsageError when there is no history, or one that cannot be read."""
    if not path.exists():
        raise UsageError(f"{path}: no such directory; give a result folder")
    if recordings(path) and not (path / HISTORY).is_file():
        return _production(path)
    folders = (
        [path] if (path / HISTORY).is_file() else sorted(file.parent for file in path.glob(f"*/{HISTORY}"))
    )
    if not folders:
        raise UsageError(
            f"{path} holds no {HISTORY} or recording, nor does any folder in it: give a result folder"
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
    result = replace(
        known, name=known.title or known.name, verdict=judged.verdict, reason=judged.reason, findings=judged.findings,
        goodput=goodput(events), folder=str(path), reproduce=f"shaketable reproduce {path}",
    )  # fmt: skip
    run = Run(shaketable=version_of("shaketable"), ray=versions.get("ray", ""), seed=None, started="")
    return run.with_result(result)


def _seed(results: list[tuple[Result, dict[str, str]]]) -> int | None:
    seeds = {result.seed for result, _ in results}
    return seeds.pop() if len(seeds) == 1 else None


def _judged(folder: Path, root: Path) -> tuple[Result, dict[str, str]]:
    try:
        events = history.merge([history.read_events(folder / HISTORY)])  # whatever order it was copied in
    except HistoryError as error:
        raise UsageError(f"{error}. If another version of shaketable wrote it, use that one") from None
    verdict = judge(events)
    result = replace(
        _on_file(folder, events),
        verdict=verdict.verdict,
        reason=verdict.reason,
        findings=verdict.findings,
        landed=landed(events),
        output=output(events),
        goodput=goodput(events),
        folder=str(folder.relative_to(root)),
        traceback="",
    )
    result = deviations.held_against(result, verdict, events)
    return replace(result, reproduce=execution.reproduce(folder, result.mutant)), _versions(events)


def _on_file(folder: Path, events: list[AnyEvent]) -> Result:
    """What the run wrote down beside the history, or what the history says where there is no such file."""
    name = folder.absolute().name
    if (folder / RESULT).is_file():
        return replace(execution.load((folder / RESULT).read_bytes()), name=name)
    began = next((event for event in events if isinstance(event, ExperimentBegan)), None)
    seconds = max((event.at_s for event in events), default=0.0) - min(
        (event.at_s for event in events), default=0.0
    )
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
