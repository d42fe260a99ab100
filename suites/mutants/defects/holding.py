"""The hold: a resize or a preemption that loses no step."""

from __future__ import annotations

from typing import Any

from shaketable.suites.mutants.defining import defect, replace, replace_item


@defect("controller.core", "sample-accounting", "grow-back")
def hold_at_a_report_that_has_been(core: Any) -> None:
    """a hold is set at a report from which some ranks have returned already"""

    def make(original: Any) -> Any:
        def answered(m: Any, event: Any) -> None:
            original(m, event)
            for place, command in enumerate(m.commands):
                if isinstance(command, core.ev.HoldAt):
                    m.live.hold.target -= 2
                    m.commands[place] = core.ev.HoldAt(command.attempt, command.index - 2)

        return answered

    replace_item(core.HANDLERS, core.ev.HoldAnswered, make)


@defect("controller.handlers.holding", "grow-back")
def replacement_not_awaited(holding: Any) -> None:
    """a draining node is left although its replacement is about to be ready"""
    replace(holding, "_staying_until_s", lambda original: lambda m, threat, hold_s: m.now)


@defect("controller.handlers.holding", "sample-accounting", experiment="grow-sharded")
def hold_left_with_an_older_commit(holding: Any) -> None:
    """a hold is over with any commit of the attempt, and the steps after that one are done again"""

    def make(original: Any) -> Any:
        def try_leave_hold(m: Any) -> None:
            hold, latest = m.live.hold, m.run.latest
            if not isinstance(m.event, holding.ev.HoldReached) and hold is not None and hold.target is not None:
                of_this = latest is not None and latest.attempt == m.live.number
                hold.target = min(hold.target, latest.index) if of_this else hold.target
            original(m)

        return try_leave_hold

    replace(holding, "try_leave_hold", make)


@defect("controller.handlers.holding", "sample-accounting", "grow-back", experiment="node-sigterm")
def left_without_a_hold(holding: Any) -> None:
    """a draining node is left at once, and the steps after the last commit are done again"""

    def make(original: Any) -> Any:
        def hold(m: Any, reason: Any, detail: str, deadline_s: float) -> None:
            original(m, reason, detail, m.now if reason == "preempted" else deadline_s)

        return hold

    replace(holding, "_hold", make)


@defect("controller.handlers.holding", "sample-accounting", "grow-back", experiment="node-added")
def resize_asks_for_no_checkpoint(holding: Any) -> None:
    """for a resize nobody is asked for a checkpoint: it takes what commit there is"""

    def make(original: Any) -> Any:
        def hold(m: Any, reason: Any, detail: str, deadline_s: float) -> None:
            original(m, reason, detail, deadline_s)
            if reason == "resized":
                m.commands[:] = [c for c in m.commands if not isinstance(c, holding.ev.BeginHold)]
                m.live.hold.target, m.live.hold.patient = 0, True

        return hold

    replace(holding, "_hold", make)


@defect("session", "grow-back", experiment="node-added", tried="processes", within_s=60)
def no_checkpoint_is_ever_requested(session: Any) -> None:
    """a worker is never told that a checkpoint is wanted now"""
    replace(session, "checkpoint_requested", lambda original: lambda: False)


@defect(
    "controller.model",
    tests="runtime/test_controller_regressions.py::"
    "test_a_hold_that_a_notice_has_prolonged_does_not_end_when_it_would_have_without",
)
def put_off_too_late(model: Any) -> None:
    """a timer that was put off fires when it was due before, if the word of it waits behind a record"""

    def make(original: Any) -> Any:
        def timer(self: Any, name: Any, at_s: float | None) -> None:
            original(self, name, at_s)
            if name in self.armed:
                self.armed[name] = 0.0

        return timer

    replace(model.Model, "timer", make)
