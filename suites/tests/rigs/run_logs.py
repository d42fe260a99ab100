"""Run logs written by hand, readable from top to bottom, for the tests of what is made of them.

log = RunLogs(max_failures=1).open().attempt(3).commit(5, 10).end("worker_death", "max_failures", rank=1)
log.attempt(3).commit(15).finish()
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Self

import msgspec

from shaketable.chaos.history.events import LogRecord
from shaketable.runtime.log.run_state import checkpoint_name


class RunLogs:
    def __init__(self, **configuration: Any) -> None:
        self.configuration = {"num_workers": [1, 3], "max_failures": 0, "max_preemption_failures": -1, **configuration}
        self.records: list[dict[str, Any]] = []
        self.term = self.number = 0
        self.resume: str | None = None
        self.first = 1

    def say(self, kind: str, **content: Any) -> Self:
        record = {"kind": kind, "term": self.term, "id": f"id-{len(self.records)}", "at_s": 1000.0, **content}
        self.records.append(record)
        return self

    def open(self, *, reopened: bool = False, **changed: Any) -> Self:
        self.term += 1
        self.configuration |= changed
        return self.say(
            "opened", schema=1, configuration=dict(self.configuration), changed=[*changed], reopened=reopened
        )

    def attempt(self, world: int) -> Self:
        self.number += 1
        members = [{"rank": rank, "node_id": f"n{rank}"} for rank in range(world)]
        return self.say(
            "attempt_started",
            attempt=self.number,
            world_size=world,
            members=members,
            resume=self.resume,
            first_index=self.first,
            reason="",
        )

    def commit(self, *indices: int) -> Self:
        for index in indices:
            self.resume, self.first = checkpoint_name(index, self.term, self.number), index + 1
            self.say(
                "checkpoint_committed", attempt=self.number, index=index, checkpoint=self.resume, files=[], metrics={}
            )
        return self

    def end(self, cause: str, account: str | None = None, rank: int | None = None, detail: str = "") -> Self:
        return self.say(
            "attempt_ended", attempt=self.number, cause=cause, account=account, detail=detail, rank=rank, node_id=None
        )

    def finish(self) -> Self:
        return self.end("finished").say("run_finished", metrics={})

    def fail(self) -> Self:
        return self.say("run_failed", error="enough")

    @property
    def events(self) -> list[LogRecord]:
        return [LogRecord(number=number, record=record) for number, record in enumerate(self.records, 1)]

    def write(self, run: Path) -> Path:
        """As the runtime leaves it in storage."""
        (run / "log").mkdir(parents=True)
        for number, record in zip(itertools.count(1), self.records, strict=False):
            (run / "log" / f"{number:010d}.json").write_bytes(msgspec.json.encode(record))
        return run
