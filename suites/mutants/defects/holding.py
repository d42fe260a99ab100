"""The hold: a resize or a preemption that loses no step."""

from __future__ import annotations

from typing import Any

from shaketable.suites.mutants.defining import defect, replace, replace_item


@defect("controller.core", "liveness", "grow-back")
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
