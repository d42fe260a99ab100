"""Another run on the simulated cluster, of which nobody takes notice."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from shaketable.chaos.plan import Configuration
from shaketable.chaos.simulation.subject.run import SimulatedRun
from shaketable.chaos.simulation.subject.world import Chance


class RunBeside:
    """`changed`: what differs from the configuration of the run `under_test`."""

    def __init__(self, configuration: Configuration, changed: dict[str, Any], under_test: SimulatedRun) -> None:
        # JSON has no tuples
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in changed.items()
        }
        self._run = SimulatedRun(
            replace(configuration, **values),
            random.Random(f"{configuration.seed}/beside"),
            lambda event: None,
            lambda step, world_size: None,
            lambda launch, code: under_test.timeline.ask(),
            chance=Chance(),
            failed_by_itself=lambda fault, worker: None,
            beside=under_test,
        )
        self._pid = self._run.start_driver({}).pid

    @property
    def exit_code(self) -> int | None:
        return self._run.codes.get(self._pid)

    def stop(self) -> None:
        for driver in list(self._run.drivers.values()):
            driver.kill()
