"""A quarantine is never the end. Where every checkpoint of a run is quarantined, the next launch verifies each again,
and takes back what is whole: somebody may have brought the files back, or the storage (promise corrupt-2).
"""

from __future__ import annotations

from collections.abc import Callable

from shaketable.runtime.checkpoints.verify import verify
from shaketable.runtime.errors import CheckpointCorrupt
from shaketable.runtime.log.records import AnyRecord, CheckpointCommitted, CheckpointReinstated
from shaketable.runtime.log.run_log import RunLog, append_settled


def reinstate(log: RunLog, warn: Callable[[str], None], on_record: Callable[[int, AnyRecord], None]) -> list[str]:
    """The names of what was taken back; `on_record` gets each record. Nothing where a commit is left to resume from.
    Raises StorageUnavailable, and what an append raises."""
    if not log.state.all_corrupt:
        return []
    back = [commit for commit in _quarantined(log) if _is_whole(log, commit, warn)]
    for commit in back:
        record = CheckpointReinstated(term=log.state.term, commit=commit)
        on_record(*append_settled(log, record))
        warn(f"{commit.checkpoint} was quarantined, is whole, and is taken back")
    return [commit.checkpoint for commit in back]


def _quarantined(log: RunLog) -> list[CheckpointCommitted]:
    names = set(log.state.quarantined)
    records = (record for _, record in log.read())
    return [each for each in records if isinstance(each, CheckpointCommitted) and each.checkpoint in names]


def _is_whole(log: RunLog, commit: CheckpointCommitted, warn: Callable[[str], None]) -> bool:
    try:
        verify(log.run_path, commit, log.run_id)
    except CheckpointCorrupt as error:
        warn(str(error))
        return False
    return True
