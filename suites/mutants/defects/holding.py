"""The hold: a resize or a preemption that loses no step."""

from __future__ import annotations

from typing import Any

from shaketable.suites.mutants.defining import defect, replace, replace_item


@defect("controller.core", "liveness", "grow-back")
def hold_at_a_report_that_has_been(core: Any) -> None:
    """all ranks are asked to stop at a report that some have returned from"""

    def make(original: Any) -> Any:
        def answered(m: Any, event: Any) -> None:
            original(m, event)
            for place, command in enumerate(m.commands):
                if isinstance(command, core.ev.HoldAt):
                    m.live.hold.target -= 2
                    m.commands[place] = core.ev.HoldAt(command.attempt, command.index - 2)

        return answered

    replace_item(core.HANDLERS, core.ev.HoldAnswered, make)


@defect("controller.holding", "grow-back")
def replacement_not_awaited(holding: Any) -> None:
    """an announced node is left as soon as there is a commit, although its replacement is on the way"""
    replace(holding, "_staying_until_s", lambda original: lambda m, threat, hold_s: m.now)
