"""Experiments for defects of the runtime that exploration has found: each passes now, and fails where its mending is
undone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shaketable.chaos import experiment_file, simulation
from shaketable.chaos.engine import arm
from shaketable.chaos.history import AttemptStarted
from shaketable.chaos.judge import judge
from shaketable.runtime.controller import holding
from shaketable.runtime.controller.model import Model

FOUND = Path(__file__).parent / "found"


def test_growth_is_tried_again_after_a_hold_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = experiment_file.load(FOUND / "growth-given-up.yaml").plan
    events = simulation.play(plan, arm(plan)).events
    assert judge(events).verdict == "PASS"
    assert [event.world_size for event in events if isinstance(event, AttemptStarted)] == [2, 3]

    def given_up_for_good(m: Model, why: str) -> None:
        with monkeypatch.context() as undone:
            undone.setattr(holding, "consider_resize", lambda _: None)
            mended(m, why)

    mended = holding.cancel_hold
    monkeypatch.setattr(holding, "cancel_hold", given_up_for_good)
    broken = judge(simulation.play(plan, arm(plan)).events)
    assert broken.verdict == "FAIL"
    assert broken.reason.startswith("grow-back: ")
