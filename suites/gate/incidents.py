"""What an incident says besides its experiment: where it was told, and what turns it red.

It stands in the file's `extensions`, Chaos Toolkit's own place for what it does not know:

    extensions:
    - {name: shaketable, incident: {source: https://..., mutant: resume-not-passed-on}}
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from shaketable.suites import mutants
from shaketable.suites.gate.catalogue import Entry, UsageError, nearest

NAME = "shaketable"
SOURCE = "https://"


class Incident(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`mutant`: the planted defect with which the experiment fails; `gap`: what our own runtime is known not to keep
    there. One of the two is said."""

    source: Annotated[str, Meta(description="The public https:// address where it was told.")]
    mutant: str = ""
    gap: str = ""


def incident_of(entry: Entry) -> Incident:
    """Raises UsageError that names the file."""
    given = [each for each in entry.document.get("extensions") or () if each.get("name") == NAME]
    try:
        (said,) = given
        incident = msgspec.convert(said.get("incident"), Incident)
    except (ValueError, msgspec.ValidationError) as error:
        raise UsageError(f"{entry.path}: extensions: {{name: {NAME}, incident: {{source: ...}}}}: {error}") from None
    if (wrong := _wrong(incident)) != "":
        raise UsageError(f"{entry.path}: incident: {wrong}")
    return incident


def _wrong(incident: Incident) -> str:
    """What is wrong with it; empty: nothing."""
    if not incident.source.startswith(SOURCE):
        return f"source is a public {SOURCE} address, not {incident.source!r}"
    if bool(incident.mutant) == bool(incident.gap):
        return "say the mutant that turns it red, or the gap that is known; one of the two"
    if incident.mutant and incident.mutant not in mutants.MUTANTS:
        return f"no mutant is called {incident.mutant!r}{nearest(incident.mutant, mutants.MUTANTS)}"
    return ""
