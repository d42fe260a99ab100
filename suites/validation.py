"""Refuses what cannot run before anything is started: a misspelt key, an unknown fault, a job nobody can import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shaketable.chaos import experiment_file
from shaketable.chaos.errors import ExperimentError
from shaketable.suites.catalogue import Entry, UsageError


def check_all(entries: Sequence[Entry], variables: Mapping[str, str]) -> None:
    """Raises UsageError for the first thing that is wrong, with the file and the place in it."""
    for entry in entries:
        try:
            experiment_file.load(entry.path, variables)
        except ExperimentError as error:
            raise UsageError(str(error)) from None
