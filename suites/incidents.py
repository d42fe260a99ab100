"""What `shaketable reproduce` and `import-trace` do, without the command line: read, convert, write out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shaketable.chaos import configuring, naming
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment_text import text
from shaketable.chaos.incident import Incident, incident_of
from shaketable.chaos.record import read_record
from shaketable.chaos.reproduction import Reproduction, reproduction
from shaketable.suites.catalogue import UsageError

TAGS = ("incident",)


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
        return [f"{self.source}: {self.incident.outcome or 'not ended'}", *attempts, *self.made.notes]

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
        record = read_record(path)
        incident = incident_of(record.events)
        made = reproduction(incident, keep_job=_here(incident.job))
    except ExperimentError as error:
        raise UsageError(str(error)) from error
    source = f"{record.kind} {record.path}"
    return Reproduced(source, incident, made, text(made.plan, _description(source, incident, made), TAGS))


def _description(source: str, incident: Incident, made: Reproduction) -> str:
    sizes = ", ".join(str(attempt.world_size) for attempt in incident.attempts)
    how = f"From the {source}: {len(incident.attempts)} attempts with {sizes} workers."
    return " ".join([how, *(f"{note[0].upper()}{note[1:]}." for note in made.notes)])


def _here(job: str) -> bool:
    """Whether the record names a function that is here. (Of a command, the working directory is not on record.)"""
    if naming.is_pickled(job):
        return Path(job).is_file()
    try:
        configuring.configuration({"job": job})
    except ExperimentError:
        return False
    return naming.is_function(job)
