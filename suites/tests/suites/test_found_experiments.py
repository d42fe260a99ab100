"""Experiments for defects of the runtime that exploration has found: each passes now, and fails where its mending is
undone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shaketable.chaos.experiment import file
from shaketable.chaos.exploration import draw
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history.events import AttemptStarted
from shaketable.chaos.simulation import player
from shaketable.chaos.verdict.judge import judge
from shaketable.runtime.controller.handlers import holding
from shaketable.runtime.controller.model import Model
from shaketable.suites.gate.catalogue import select
from shaketable.suites.mutants.patches import applied

FOUND = Path(__file__).parents[1] / "found"


def test_growth_is_tried_again_after_a_hold_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = file.load(FOUND / "growth-given-up.yaml").plan
    events = player.play(plan, arm(plan)).events
    assert judge(events).verdict == "PASS"
    assert [event.world_size for event in events if isinstance(event, AttemptStarted)] == [2, 3]

    def given_up_for_good(m: Model, why: str) -> None:
        with monkeypatch.context() as undone:
            undone.setattr(holding, "consider_resize", lambda _: None)
            mended(m, why)

    mended = holding.cancel_hold
    monkeypatch.setattr(holding, "cancel_hold", given_up_for_good)
    broken = judge(player.play(plan, arm(plan)).events)
    assert broken.verdict == "FAIL"
    assert broken.reason.startswith("grow-back: ")


def test_an_agent_that_is_killed_is_replaced_and_exploration_kills_some() -> None:
    (entry,) = select(["agent-sigkill"])
    plan = file.load(entry.path).plan
    killed = plan.faults[0].name
    assert judge(player.play(plan, arm(plan)).events).verdict == "PASS"
    with applied("lost-agent-never-replaced"):
        broken = judge(player.play(plan, arm(plan)).events)
    assert (broken.verdict, broken.reason.split(":")[0]) == ("FAIL", "liveness")
    drawn = {fault.name for number in range(60) for fault in draw.draw(1, number).plan.faults}
    assert killed in drawn
