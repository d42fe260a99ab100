"""One run on one cluster, driven for measuring: the subject's real driver, and its history as it comes in.

Unlike the engine of the experiments it judges nothing and may hurt the same run again and again, which is how a bench
gets its samples in reasonable time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from shaketable.chaos.errors import ChaosError
from shaketable.chaos.history.events import (
    AnyEvent,
    AttemptStarted,
    DriverExited,
    DriverStarted,
    Stepped,
    WorkerStarted,
)
from shaketable.chaos.history.witness import Collector
from shaketable.chaos.plan import Configuration
from shaketable.chaos.subjects import Launch, subject
from shaketable.chaos.subjects.launching import start
from shaketable.clusters.protocol import Cluster
from shaketable.suites.bench.reading import Recovery, place_of, recovery

Kind = TypeVar("Kind", bound=AnyEvent)

START_WITHIN_S = 240.0
# Ray Train may take 175 s after a driver's death
RECOVER_WITHIN_S = 400.0
STOP_WITHIN_S = 60.0
# how often a wait looks whether the driver is still there
LOOK_S = 2.0
NAME = "bench"


class BenchError(ChaosError):
    """Something that was waited for did not come; names it, and the log in which to look."""


class Bed:
    """A run of `configuration` on `cluster`; what it leaves lies in `folder`."""

    def __init__(self, cluster: Cluster, configuration: Configuration, folder: Path) -> None:
        self.cluster = cluster
        self.configuration = configuration
        self.storage = folder / "storage"
        self._folder = folder
        self._subject = subject(configuration.subject)
        self._drivers: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True, exist_ok=True)
        self.storage.mkdir(exist_ok=True)
        self.collector = Collector(folder / "witness")

    # ---- drivers

    @property
    def driver(self) -> subprocess.Popen[bytes]:
        return self._drivers[-1]

    @property
    def log(self) -> Path:
        return self._folder / f"driver-{len(self._drivers) - 1}.log"

    def launch(self, configuration: Configuration | None = None, name: str = NAME) -> float:
        """Start the driver (again); returns when that was."""
        number = len(self._drivers)
        launch = Launch(
            configuration=configuration or self.configuration,
            address=self.cluster.address,
            storage_path=str(self.storage),
            name=name,
            witness=self.collector.config,
            launch=number,
        )
        started_s = time.time()
        self._drivers.append(start(self._subject.driver(launch, self._folder / f"driver-{number}.log")))
        self.collector.emit(DriverStarted(launch=number, pid=self.driver.pid))
        return started_s

    def stop(self, sig: signal.Signals = signal.SIGTERM) -> None:
        """End the driver and wait until it is gone; a second, harder signal where it does not go."""
        if self.driver.poll() is None:
            self.driver.send_signal(sig)
        try:
            code = self.driver.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.driver.pid, signal.SIGKILL)
            code = self.driver.wait()
        launch = len(self._drivers) - 1
        self.collector.emit(DriverExited(launch=launch, code=code if code >= 0 else 128 - code))

    # ---- what is seen

    def wait(
        self,
        kind: type[Kind],
        predicate: Callable[[Kind], bool],
        name: str,
        *,
        nth: int = 1,
        timeout_s: float = RECOVER_WITHIN_S,
    ) -> Kind:
        """The `nth` event of `kind` of which `predicate` is true. Raises BenchError past the deadline, and soon after
        the driver has ended without it."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            code, left_s = self.driver.poll(), deadline_s - time.monotonic()
            event = self.collector.wait_for(
                lambda event: isinstance(event, kind) and predicate(event),
                nth=nth,
                timeout_s=max(0.0, min(LOOK_S, left_s)),
                name=name,
            )
            if isinstance(event, kind):
                return event
            if code is not None:
                raise BenchError(f"{name}: the driver ended with code {code} before; see {self.log}")
            if left_s <= 0:
                raise BenchError(f"{name}: not within {timeout_s:.0f} s; see {self.log}")

    def steady(self, world_size: int, steps: int = 6) -> AttemptStarted:
        """Wait until an attempt of this size has run for some steps from now; returns that attempt."""
        since_s = time.time()
        step = self.wait(
            Stepped,
            lambda e: e.world_size == world_size and e.at_s > since_s,
            f"{steps} steps of {world_size} workers",
            nth=steps * world_size,
            timeout_s=START_WITHIN_S,
        )
        return self.wait(AttemptStarted, lambda e: place_of(e) == place_of(step), "the attempt of a step", timeout_s=10)

    def first_step_since(self, since_s: float) -> Stepped:
        return self.wait(Stepped, lambda e: e.at_s > since_s, "the first step", timeout_s=START_WITHIN_S)

    def recovered(self, before: AttemptStarted, hurt_at_s: float, world_size: int | None = None) -> Recovery:
        """Wait until a later attempt, of this world size where one is given, has stepped on all its ranks."""

        def later(step: Stepped) -> bool:
            return place_of(step) > place_of(before) and world_size in (None, step.world_size)

        name = f"a step after attempt {before.attempt} of term {before.term}"
        first = self.wait(Stepped, later, name)
        place = place_of(first)
        self.wait(Stepped, lambda e: place_of(e) == place, f"{name}, of every rank", nth=first.world_size)
        events = self.events()
        steps = [event for event in events if isinstance(event, Stepped) and place_of(event) == place]
        return recovery(events, place_of(before), hurt_at_s, min(steps, key=lambda step: step.at_s))

    # ---- what is hit

    def pid_of(self, attempt: AttemptStarted, rank: int) -> int:
        worker = self.wait(
            WorkerStarted,
            lambda e: place_of(e) == place_of(attempt) and e.rank == rank,
            f"the worker of rank {rank}",
            timeout_s=10,
        )
        return worker.pid

    def node_of(self, attempt: AttemptStarted, rank: int) -> int:
        """The harness's number of the node that hosts `rank`."""
        node_id = next(member.node_id for member in attempt.members if member.rank == rank)
        return next(node.number for node in self.cluster.nodes() if node.node_id == node_id)

    def events(self) -> list[AnyEvent]:
        return self.collector.snapshot()

    # ---- its end

    def close(self) -> None:
        if self._drivers:
            self.stop()
        self.collector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def hash_chain(subject: str, workers: int, *, checkpoint_bytes: int) -> Configuration:
    """The bench's usual run: 50 ms steps, a checkpoint at every one, unlimited budgets, and no end of its own."""
    return Configuration(
        subject="ray-train" if subject == "ray-train" else "bundled",
        job_config={"steps": 1_000_000, "step_s": 0.05, "checkpoint_every": 1, "checkpoint_bytes": checkpoint_bytes},
        nodes=workers,
        num_workers=(1, workers),
        max_failures=-1,
        elastic_resize_monitor_interval_s=1.0,
        heartbeat_timeout_s=5.0,
    )


def jax_on_slices() -> Configuration:
    """The same on TPU slices, with the bundled JAX job."""
    return Configuration(
        job="shaketable.workloads:jax_sharded",
        job_config={"steps": 1_000_000, "step_s": 0.05},
        accelerator_type="TPU-V6E",
        topology="2x4",
        slices=("whole", "whole"),
        num_workers=(2, 4),
        max_failures=-1,
        elastic_resize_monitor_interval_s=1.0,
        heartbeat_timeout_s=5.0,
    )
