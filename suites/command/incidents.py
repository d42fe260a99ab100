"""What `shaketable reproduce` and `import-trace` do, without the command line: read, convert, write out."""

from __future__ import annotations

import math
import random
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shaketable.chaos import job_kinds
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment import configuration
from shaketable.chaos.experiment.writer import text
from shaketable.chaos.incidents import event_files, published_traces
from shaketable.chaos.incidents.capacity_trace import FORMAT, Change, parse
from shaketable.chaos.incidents.logged_losses import incident_of_losses
from shaketable.chaos.incidents.recorded_attempts import Incident, incident_of
from shaketable.chaos.incidents.replay import Replay, replay
from shaketable.chaos.incidents.reproduction import Reproduction, reproduction
from shaketable.chaos.subjects.recorded import read_record
from shaketable.suites.gate.catalogue import UsageError

TAGS = ("incident",)
MAX_TRACE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Reproduced:
    """`source` says what was read, and where."""

    source: str
    incident: Incident
    made: Reproduction
    text: str

    def summary(self) -> list[str]:
        """For people: what was found, and what is not as it was."""
        attempts = [
            f"  attempt {each.number}: {each.world_size} workers from step {each.first},"
            f" {each.cause or 'still open'}{f' at step {each.fatal}' if each.cause not in (None, 'finished') else ''}"
            for each in self.incident.attempts
        ]
        open_end = "how it ended is not on record" if self.incident.lacks else "not ended"
        return [f"{self.source}: {self.incident.outcome or open_end}", *attempts, *self.made.notes]

    def as_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "outcome": self.incident.outcome,
            "attempts": [asdict(attempt) for attempt in self.incident.attempts],
            "charged": dict(self.incident.charged),
            "expect": asdict(self.made.plan.expect),
            "faults": [asdict(fault) for fault in self.made.plan.faults],
            "notes": list(self.made.notes),
        }


def reproduced(path: Path) -> Reproduced:
    """Raises UsageError."""
    try:
        source, incident = _recorded(path)
        made = reproduction(incident, keep_job=_here(incident.job))
    except ExperimentError as error:
        raise UsageError(str(error)) from error
    return Reproduced(source, incident, made, text(made.plan, _description(source, incident, made), TAGS))


def _recorded(path: Path) -> tuple[str, Incident]:
    """What was read, and what it tells; without a record, what events of others tell. Raises ExperimentError."""
    try:
        record = read_record(path)
    except ExperimentError as error:
        if not path.exists() or (found := event_files.logged(path)) is None:
            raise ExperimentError(f"{error}; {event_files.EXPECTED}") from error
        return f"{found.kind} {path}", incident_of_losses(found)
    return f"{record.kind} {record.path}", incident_of(record.events)


def _description(source: str, incident: Incident, made: Reproduction) -> str:
    sizes = ", ".join(str(attempt.world_size) for attempt in incident.attempts)
    how = f"From the {source}: {len(incident.attempts)} attempts with {sizes} workers."
    return " ".join([how, *(f"{note[0].upper()}{note[1:]}." for note in made.notes)])


def _here(job: str) -> bool:
    """Whether the record names a function that is here. (Of a command, the working directory is not on record.)"""
    if job_kinds.is_pickled(job):
        return Path(job).is_file()
    try:
        configuration.configuration({"job": job})
    except ExperimentError:
        return False
    return job_kinds.is_function(job)


# ---- traces --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Imported:
    """`path` is the trace."""

    path: Path
    made: Replay
    text: str

    def summary(self) -> list[str]:
        plan = self.made.plan
        how = f"{self.path}: {len(plan.faults)} changes; one second replays {self.made.scale:g} s of the trace"
        return [how, *self.made.notes]

    def as_json(self) -> dict[str, Any]:
        plan = self.made.plan
        return {
            "source": str(self.path),
            "scale": self.made.scale,
            "expect": asdict(plan.expect),
            "faults": [asdict(fault) for fault in plan.faults],
            "notes": list(self.made.notes),
        }


def imported(
    path: Path,
    *,
    scale: float | None,
    seed: int,
    notice: bool,
    missing: bool = False,
    nodes: int | None = None,
    simulated: bool = False,
    price: float | None = None,
) -> Imported:
    """`missing` and `nodes` are for traces that count nodes. Raises UsageError."""
    if scale is not None and not (0 < scale < math.inf):
        raise UsageError(f"--scale {scale:g}: must be above 0, such as 60 for one minute per second")
    rng = random.Random(seed)
    try:
        changes, notes = _changes(_text(path), str(path), missing, nodes)
        made = replay(
            changes,
            str(path),
            scale=scale,
            seed=seed,
            choose=rng.choice,
            notice=notice,
            simulated=simulated,
            price_per_hour=price,
        )
    except ExperimentError as error:
        raise UsageError(str(error)) from error
    made = replace(made, notes=(*notes, *made.notes))
    description = " ".join(
        [f"From {path}: one second replays {made.scale:g} s of it. Seed {seed} chooses nodes that it does not name."]
        + [f"{note[0].upper()}{note[1:]}." for note in made.notes]
    )
    return Imported(path, made, text(made.plan, description, ("trace", "node", "elastic")))


def _changes(trace: str, where: str, missing: bool, nodes: int | None) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """With what there is to say of how it was read. Raises ExperimentError."""
    if not published_traces.is_counted(trace):
        if missing or nodes:
            raise ExperimentError(f"{where}: names nodes that come and go; --missing and --nodes are for counts")
        return parse(trace, where), ()
    counted = published_traces.read(trace, where, missing=missing, nodes=nodes)
    read = "missing nodes" if missing else "nodes that are there"
    said = (
        f"it counts nodes, read as {read}: {counted.most} at the most, none {counted.none_of_the_time:.0%} of the time"
    )
    return published_traces.changes(counted), (said,)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_TRACE_BYTES:
            raise UsageError(
                f"{path}: larger than {MAX_TRACE_BYTES >> 20} MiB, which is too much to replay: shorten it"
            )
        return path.read_text()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}:1: not text ({error.reason}); {FORMAT}") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
