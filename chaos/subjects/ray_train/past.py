"""What earlier launches of a run under Ray Train already did, read from their events.

Ray Train forgets its attempts with its controller, and its own report counter goes on over reports that were lost.
The history needs attempts counted over the whole run, and the report index of the checkpoint that a new launch
resumes from; both follow from what was recorded before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from shaketable.chaos.history.events import (
    AnyEvent,
    AttemptStarted,
    CheckpointDeleted,
    Committed,
    UploadStarted,
    read_events,
)


@dataclass(frozen=True, slots=True)
class Past:
    """`attempts`: how many were started, the last one in `term`. `indices`: report index by checkpoint name. `kept`:
    those not deleted since. `next_index`: that of the first checkpoint of the last attempt which was handed over and
    not recorded as committed."""

    term: int
    attempts: int
    indices: Mapping[str, int]
    next_index: int | None
    kept: tuple[str, ...] = ()

    def index_of(self, checkpoint: str) -> int | None:
        """A controller killed between writing its snapshot and recording leaves one commit unknown: reports are
        committed in order, so it is the first upload after the last commit."""
        return self.indices.get(checkpoint, self.next_index)


def past(events: Iterable[AnyEvent]) -> Past:
    events = list(events)
    started = [event for event in events if isinstance(event, AttemptStarted)]
    commits = [event for event in events if isinstance(event, Committed)]
    last = max(started, key=lambda event: event.attempt, default=None)
    indices = {event.checkpoint: event.index for event in commits}
    if last is None:
        return Past(0, 0, indices, None)
    done = [event.index for event in commits if event.attempt == last.attempt]
    after = max(done, default=last.resume_index or 0)
    uploads = (e.index or e.step for e in events if isinstance(e, UploadStarted) and e.attempt == last.attempt)
    next_index = min((step for step in uploads if step > after), default=None)
    deleted = {event.checkpoint for event in events if isinstance(event, CheckpointDeleted)}
    kept = tuple(name for name in indices if name not in deleted)
    return Past(last.term, last.attempt, indices, next_index, kept)


def read_past(directory: Path) -> Past:
    """From the witness directory of the experiment."""
    return past(event for path in sorted(directory.glob("*.jsonl")) for event in read_events(path))
