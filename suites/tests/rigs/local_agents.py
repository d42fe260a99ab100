"""The real driver, executor, agents, fork servers and workers without Ray: only the placement is replaced, by one agent
process (`local_agent.py`) per unit, each on a node of its own.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from shaketable.runtime import trainer as trainer_module
from shaketable.runtime.agent.loop import AgentSpec
from shaketable.runtime.config import RunConfig, ScalingConfig
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.settings import Settings
from shaketable.runtime.driver import executor as executor_module
from shaketable.runtime.driver.executor import Executor, Job
from shaketable.runtime.log.run_log import open_run
from shaketable.runtime.storage.files import locate_run
from shaketable.runtime.trainer import ElasticTrainer, Result
from shaketable.suites.tests.rigs.log_examples import CONFIGURATION

RETRY_S = 0.3


class LocalLeases:
    """The interface of `leases.Leases`. `bad`: on the nodes of these units no agent comes up."""

    bad: tuple[int, ...] = ()
    folder = Path("/tmp")

    def __init__(self, post: Callable[[Any], None], spec: AgentSpec, *_: object) -> None:
        self._post, self._spec = post, spec
        self._agents: dict[int, tuple[int, subprocess.Popen[bytes]]] = {}
        self._next = 1
        self._lock = threading.Lock()
        self._closed = False

    def start(self, guarded: object = None) -> None:
        self.look_at_nodes()

    def look_at_nodes(self) -> None:
        self._post(ev.NodesChanged(tuple(ev.NodeView(f"n{unit}", alive=True) for unit in range(1, 9))))

    def request(self, unit: int, *_: object) -> None:
        self._post(ev.UnitPlaced(unit, (f"n{unit}",)))
        self._start(unit)

    def probe(self, unit: int) -> None:
        self._start(unit)

    def lost(self, agent: int) -> None:
        pass

    def retry(self, agent: int) -> None:
        unit = self._agents[agent][0] if agent in self._agents else None
        if unit is not None:
            threading.Timer(RETRY_S, self._start, (unit,)).start()

    def release(self, unit: int) -> None:
        with self._lock:
            gone = [self._agents.pop(agent)[1] for agent, (of, _) in list(self._agents.items()) if of == unit]
        for process in gone:
            process.kill()
            process.wait()

    def close(self, _: float) -> None:
        self._closed = True
        for unit in {unit for unit, _ in self._agents.values()}:
            self.release(unit)

    def agents(self) -> list[int]:
        """Their pids, oldest first."""
        return [process.pid for _, process in self._agents.values()]

    def _start(self, unit: int) -> None:
        with self._lock:
            if self._closed:
                return
            spec = dataclasses.asdict(dataclasses.replace(self._spec, agent=self._next, unit=unit))
            told = json.dumps({**spec, "secret": self._spec.secret.hex(), "folder": str(self.folder / f"n{unit}")})
            command = [sys.executable, "-m", "shaketable.suites.tests.rigs.local_agent", told]
            self._agents[self._next] = (unit, subprocess.Popen(command, stdin=subprocess.DEVNULL))
            self._next += 1


@contextmanager
def without_ray(folder: Path) -> Iterator[list[LocalLeases]]:
    """Whoever runs an Executor inside gets local agents; yields the leases that were made."""
    made: list[LocalLeases] = []

    def make(*given: Any) -> LocalLeases:
        leases = LocalLeases(*given)
        leases.folder = folder / "nodes"
        made.append(leases)
        return leases

    with (
        mock.patch.object(executor_module, "Leases", make),
        mock.patch.object(executor_module, "ray_internals", SimpleNamespace(node_ip=lambda: "127.0.0.1")),
    ):
        try:
            yield made
        finally:
            for leases in made:
                leases.close(0.0)


def fit(
    function: Callable[..., Any], folder: Path, *, workers: int = 1, preload: Sequence[str] = (), **changed: Any
) -> Result:
    """`ElasticTrainer(function).fit()` in `folder`, with agents of this machine. Raises what that raises."""
    config = RunConfig(storage_path=str(folder / "storage"), name="run", heartbeat_timeout_s=5.0, **changed)
    trainer = ElasticTrainer(function, scaling_config=ScalingConfig(num_workers=workers), run_config=config)
    log, state = open_run(locate_run(config.storage_path, config.name), CONFIGURATION)
    if state.outcome == "finished":
        return trainer._result(log)
    settings = Settings(config, trainer._scaling, trainer._scaling.workers_per_unit)
    preloaded = (*trainer_module._PRELOAD, *preload)
    with without_ray(folder):
        job = Job(trainer._task, preloaded, {}, trainer_module._import_path())
        return trainer._conclude(Executor(job, config, settings, log).run(), log)
