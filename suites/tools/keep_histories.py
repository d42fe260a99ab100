"""Keeps the histories that show the recorded deviations.

`python -m shaketable.suites.tools.keep_histories RESULTS_DIR`

From a results directory of `shaketable run --all --subject ray-train`, each experiment's history that has deviations on
record goes, compressed, to `histories/<subject>-<version>/` beside their file; the tests judge them again. Of incidents
those that passed are kept too: `docs/incidents.md` says of each what the subject made of it.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

from shaketable.chaos.history.events import AnyEvent, read_events
from shaketable.chaos.history.view import History
from shaketable.chaos.verdict.judge import judge
from shaketable.reports.results import Result
from shaketable.suites.gate import catalogue, deviations
from shaketable.suites.gate.execution import HISTORY


def kept(subject: str, version: str) -> dict[str, Path]:
    """The histories on file, by experiment."""
    folder = deviations.FOLDER / "histories" / deviations.path_of(subject, version).stem
    return {path.name.removesuffix(".jsonl.gz"): path for path in sorted(folder.glob("*.jsonl.gz"))}


def read_kept(path: Path, scratch: Path) -> list[AnyEvent]:
    """`scratch`: where it is unpacked to, so that it is read as any other."""
    scratch.write_bytes(gzip.decompress(path.read_bytes()))
    return read_events(scratch)


def keep(results: Path) -> int:
    """Prints one line for each; 1 when something was not as recorded, and that one is not kept."""
    wrong = 0
    for path in sorted(results.glob(f"*/{HISTORY}")):
        history = History(read_events(path))
        version = history.began.versions.get("ray", "") if history.began else ""
        names = {deviation.experiment for deviation in deviations.recorded(history.subject, version)}
        incidents = {entry.name for entry in catalogue.incidents()}
        name = deviations.experiment_of(history, sorted(names | incidents))
        if not name:
            continue
        result = deviations.held_against(Result(name, "PASS", "", 0.0, ""), judge(history), history)
        print(f"{result.verdict:<8} {name}: {result.reason}")
        as_recorded = result.verdict == "KNOWN" or (result.verdict == "PASS" and name in incidents - names)
        if as_recorded:
            folder = deviations.FOLDER / "histories" / deviations.path_of(history.subject, version).stem
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
        wrong += not as_recorded
    return int(wrong > 0)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(keep(Path(sys.argv[1])))
