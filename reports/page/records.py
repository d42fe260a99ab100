"""The records of a history that the page can show, packed: a map from line to record, compressed, as text. Pure.

A browser unpacks it when the first record is asked for, so a page with ten thousand of them opens as fast as without.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Sequence

import msgspec

from shaketable.chaos.history.events import AnyEvent, encode
from shaketable.reports.timeline import Timeline

# of one experiment, before they are packed
MOST_BYTES = 1_000_000


def shown(timeline: Timeline) -> set[int]:
    """The lines that something in the picture stands for."""
    spans = {span.record for lane in timeline.lanes for span in lane.spans}
    marks = {mark.record for lane in timeline.lanes for mark in lane.marks}
    return (spans | marks) - {0}


def packed(events: Sequence[AnyEvent], lines: Iterable[int]) -> str:
    """zlib, then base64, of `{"12": {...}, ...}`; the first ones, as many as there is room for."""
    kept: dict[int, msgspec.Raw] = {}
    room = MOST_BYTES
    for line in sorted(lines):
        record = encode(events[line - 1]).rstrip()
        room -= len(record)
        if room < 0:
            break
        kept[line] = msgspec.Raw(record)
    return base64.b64encode(zlib.compress(msgspec.json.encode(kept), 9)).decode()
