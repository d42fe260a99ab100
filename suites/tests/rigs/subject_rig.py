"""What the tests of the subjects share: a worker without a subject around it, and a run of a real one.

`enter()` makes this module the worker's end of a subject named "rig" (see `witnessed.SIDES`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray import cloudpickle

from shaketable.chaos.history.events import (
    AnyEvent,
    AttemptEnded,
    Committed,
    DriverExited,
    Event,
    Stepped,
    WorkerStarted,
)
from shaketable.chaos.history.witness import Collector
from shaketable.chaos.plan import Configuration
from shaketable.chaos.subjects import Launch, subject
from shaketable.chaos.subjects.launching import start
from shaketable.chaos.workloads.worker_api import Listener, Where

WHERE = Where(term=1, attempt=2, rank=0, world_size=1, node_id="ab")
RUN_WITHIN_S = 150.0


class RigApi:
    """Reports go nowhere but to the listeners."""

    Checkpoint = Path

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.index = 0

    def report(self, metrics: dict[str, Any], checkpoint: Any = None) -> None:
        self.index += 1
        for listener in self.listeners:
            listener.before_report(self.index, metrics, checkpoint)
        for listener in self.listeners:
            listener.after_report(self.index)

    def get_checkpoint(self) -> Any:
        return None

    def get_context(self) -> Any:
        return WHERE

    def checkpoint_requested(self) -> bool:
        return False

    def notice(self) -> bool:
        return False

    def broadcast_from_rank_zero(self, data: Any) -> Any:
        return data


@dataclass
class RigSide:
    api: RigApi = field(default_factory=RigApi)
    where: Where = WHERE
    node_ip: str = "127.0.0.1"
    resume: str | None = "checkpoint-7"

    @contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        self.api.listeners.append(listener)
        yield
        self.api.listeners.remove(listener)


def enter() -> RigSide:
    return RigSide()


@dataclass
class Trial:
    """One real run of a subject under `folder`, driven from a test."""

    folder: Path
    address: str
    configuration: Configuration
    name: str = "run"

    def __post_init__(self) -> None:
        self.subject = subject(self.configuration.subject)
        self.storage = str(self.folder / "storage")
        self.collector = Collector(self.folder / "witness")
        self._launches = 0

    def launch(self, **changed: Any) -> int:
        """Start the driver (again); its pid. Its exit code is recorded when `finish` has seen it."""
        launch = Launch(
            self.configuration, self.address, self.storage, self.name, self.collector.config, self._launches, changed
        )
        self.driver = start(self.subject.driver(launch, self.folder / f"driver-{self._launches}.log"))
        self._launches += 1
        return self.driver.pid

    def wait_for_step(self, step: int) -> None:
        seen = self.collector.wait_for(
            lambda event: isinstance(event, Stepped) and event.step >= step, timeout_s=RUN_WITHIN_S, name=f"step {step}"
        )
        assert seen is not None, self.log()

    def wait_for_commit(self, index: int) -> None:
        seen = self.collector.wait_for(
            lambda event: isinstance(event, Committed) and event.index >= index,
            timeout_s=RUN_WITHIN_S,
            name=f"the commit of report {index}",
        )
        assert seen is not None, self.log()

    def pid_of(self, rank: int) -> int:
        """The process of that rank's latest worker."""
        started = [event for event in self.collector.snapshot() if isinstance(event, WorkerStarted)]
        return [event.pid for event in started if event.rank == rank][-1]

    def wait(self) -> int:
        """The driver's exit code."""
        code = self.driver.wait(RUN_WITHIN_S)
        self.collector.emit(DriverExited(launch=self._launches - 1, code=code if code >= 0 else 128 - code))
        return code

    def log(self) -> str:
        return (self.folder / f"driver-{self._launches - 1}.log").read_text()

    def close(self) -> None:
        if hasattr(self, "driver") and self.driver.poll() is None:
            self.driver.kill()
            self.driver.wait()
        self.collector.close()


def pickled(target_kind: Any) -> bytes:
    """As it travels to a worker."""
    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    return dumps(target_kind)


def of_kind(events: list[AnyEvent], *kinds: type[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kinds)]


def charges(events: list[AnyEvent]) -> list[tuple[str, str | None]]:
    return [(event.cause, event.account) for event in of_kind(events, AttemptEnded)]
