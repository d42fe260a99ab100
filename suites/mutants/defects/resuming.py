"""Where an attempt goes on from."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from shaketable.suites.mutants.defining import defect, replace

RESUME = "resume-from-checkpoint"


@defect("session", RESUME, experiment="worker-crash", tried="processes")
def resume_from_scratch(session: Any) -> None:
    """a worker is told that there is no checkpoint to resume from"""
    replace(session.Session, "get_checkpoint", lambda original: lambda self: None)


@defect("controller.handlers.starting", RESUME, experiment="worker-crash")
def resume_not_passed_on(starting: Any) -> None:
    """the record of an attempt names its checkpoint, but the agents do not get it"""

    def make(original: Any) -> Any:
        def start(m: Any, decision: Any) -> None:
            original(m, decision)
            _change(m, starting.ev.StartAttempt, resume=None)

        return start

    replace(starting, "_start", make)


@defect("log.run_state", RESUME, experiment="worker-crash")
def resume_from_an_older_commit(fold: Any) -> None:
    """the commit before the latest counts as the latest"""
    replace(fold.RunState, "latest", lambda original: property(lambda self: [None, *self.commits[-2:]][:2][-1]))


@defect("log.run_state", RESUME)
def corruption_begins_from_scratch(fold: Any) -> None:
    """if every checkpoint is corrupt, the run silently starts from scratch"""
    replace(fold.RunState, "all_corrupt", lambda original: property(lambda self: False))


@defect("log.run_log", RESUME, "world-size-bounds", experiment="log-lost", tried="processes")
def lost_log_begins_from_scratch(runlog: Any) -> None:
    """if the log is lost and checkpoints exist, the run silently starts from scratch"""

    def make(original: Any) -> Any:
        return lambda path, state, configuration, change, has_checkpoints: original(
            path, state, configuration, change, lambda: False
        )

    replace(runlog, "_opening", make)


@defect("controller.handlers.endings", "durability", RESUME, experiment="driver-sigkill-upload")
def resume_from_an_uncommitted_upload(endings: Any) -> None:
    """an incomplete upload is committed when its attempt ends"""

    def make(original: Any) -> Any:
        def close(m: Any, ending: Any) -> None:
            for index, candidate in sorted(m.live.candidates.items()):
                m.append(
                    endings.rec.CheckpointCommitted(
                        term=m.run.term,
                        attempt=m.live.number,
                        index=index,
                        metrics={},
                        files=[file for files in candidate.votes.values() for file in files],
                        checkpoint=endings.run_state.checkpoint_name(index, m.run.term, m.live.number),
                    )
                )
            original(m, ending)

        return close

    replace(endings, "close", make)


# the log refuses it, so that no history has it
@defect("controller.handlers.starting", "runtime", experiment="worker-crash")
def report_number_reused(starting: Any) -> None:
    """the first report after a resume reuses the number of the committed one"""

    def make(original: Any) -> Any:
        def attempt(*, first_index: int, **fields: Any) -> Any:
            return original(first_index=max(1, first_index - 1), **fields)

        return attempt

    replace(starting, "Attempt", make)


@defect("log.run_state", "single-writer", experiment="driver-sigkill")
def attempt_number_reused(fold: Any) -> None:
    """each driver counts its attempts from 1"""

    def last_attempt(state: Any) -> int:
        mine = [start.attempt for start in state.started[-1:] if start.term == state.term]
        return mine[-1] if mine else 0

    replace(fold.RunState, "last_attempt", lambda original: property(last_attempt))


@defect("controller.handlers.starting", "world-size-bounds", experiment="worker-crash")
def rank_order_stale(starting: Any) -> None:
    """ranks are assigned in another order than the attempt's record says"""

    def make(original: Any) -> Any:
        def start(m: Any, decision: Any) -> None:
            original(m, decision)
            _change(m, starting.ev.StartAttempt, members=m.live.members[::-1])

        return start

    replace(starting, "_start", make)


def _change(m: Any, kind: type, **changes: Any) -> None:
    """The commands of this kind that the event being handled has asked for."""
    for place, command in enumerate(m.commands):
        if isinstance(command, kind):
            made = msgspec.structs.replace if isinstance(command, msgspec.Struct) else dataclasses.replace
            m.commands[place] = made(command, **changes)  # type: ignore[type-var]
