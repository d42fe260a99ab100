"""What an agent says reaches its driver as over a real connection: in order, and whatever is lost is the rest of it."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from shaketable.chaos.simulation.subject.agent import SimulatedAgent
from shaketable.clusters.simulated.virtual_time import Timeline

SEEDS = range(40)


class Line:
    """An agent that has ten messages under way, up to a tenth of a second apart."""

    def __init__(self, seed: int) -> None:
        self.rng, self.timeline, self.heard = random.Random(seed), Timeline(), []
        self.node = SimpleNamespace(state="up", on_change=[])
        world = SimpleNamespace(
            timeline=self.timeline,
            rng=self.rng,
            pace=SimpleNamespace(message=(0.0, 1.0)),
            draw_slow=lambda span: self.rng.uniform(*span),
        )
        leases = SimpleNamespace(goes_silent=lambda *_: None)
        driver = SimpleNamespace(hear=lambda agent, said: self.heard.append(said), leases=leases)
        self.agent: Any = SimulatedAgent(world, driver, 1, 1, self.node)  # type: ignore[arg-type]
        self.say(range(10))
        self.pass_(0.5)

    heard: list[int]

    def say(self, numbers: range) -> None:
        for number in numbers:
            self.agent.up(number)

    def pass_(self, seconds: float) -> None:
        self.timeline.run(self.timeline.now + seconds, lambda: False)

    def becomes(self, state: str) -> None:
        self.node.state = state
        for told in self.node.on_change:
            told(self.node)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_machine_had_said_when_it_went_arrives_up_to_some_point(seed: int) -> None:
    line = Line(seed)
    line.node.state = "gone"
    line.pass_(9.0)
    assert line.heard == list(range(len(line.heard)))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_frozen_machine_says_arrives_in_order_once_it_is_thawed(seed: int) -> None:
    line = Line(seed)
    line.becomes("frozen")
    line.say(range(10, 15))
    line.pass_(9.0)
    assert line.heard == list(range(len(line.heard)))
    line.becomes("up")
    line.pass_(9.0)
    assert line.heard == list(range(15))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pause_of_everything_keeps_the_order(seed: int) -> None:
    line = Line(seed)
    line.timeline.pause(10.0, lambda: None)
    line.agent.paused(10.0)
    line.pass_(10.0)
    line.say(range(10, 15))
    line.pass_(9.0)
    assert line.heard == list(range(15))
