"""What placements have in common: a thread of their own, on which calls are carried out in order."""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from shaketable.runtime.controller import events as ev
from shaketable.runtime.driver.placement import Guarded, Silence, unguarded
from shaketable.runtime.tpu.labels import Selector


@dataclass(slots=True)
class PlacementThread(ABC):
    """`post` hands an event to the executor."""

    # what ends the run with a sentence, and whose word was lost
    errors: ClassVar[tuple[type[Exception], ...]] = (OSError, RuntimeError)
    who: ClassVar[str]

    post: Callable[[ev.Event], None]
    _calls: queue.SimpleQueue[Callable[[], None]] = field(default_factory=queue.SimpleQueue, init=False)
    _closing: bool = field(default=False, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    error: BaseException | None = field(default=None, init=False)
    # since when a call is being carried out
    _busy_s: float | None = field(default=None, init=False)

    def start(self, guarded: Guarded = unguarded) -> None:
        self._thread = threading.Thread(target=guarded(self._run), name="shaketable-placement", daemon=True)
        self._thread.start()

    # ---- called by the executor; done on the thread in order

    def request(self, unit: ev.UnitId, selector: Selector, avoid: tuple[str, ...]) -> None:
        self._calls.put(lambda: self._request(unit, selector, avoid))

    def probe(self, unit: ev.UnitId) -> None:
        self._calls.put(lambda: self._probe(unit))

    def lost(self, agent: ev.AgentId) -> None:
        self._calls.put(lambda: self._lost(agent))

    def retry(self, agent: ev.AgentId) -> None:
        self._calls.put(lambda: self._retry(agent))

    def silence(self) -> Silence:
        """None: who is asked answers at once, or says that it does not."""
        return Silence()

    def excuse(self, seconds: float) -> None:
        since_s = self._busy_s
        if since_s is not None:
            # if that call is just over, the next one begins anew
            self._busy_s = since_s + seconds

    def look_at_nodes(self) -> None:
        self._calls.put(lambda: self._look_at_nodes(asked=True))

    def release(self, unit: ev.UnitId) -> None:
        self._calls.put(lambda: self._release(unit))

    def close(self, timeout_s: float) -> None:
        self._calls.put(self._release_all)
        if self._thread is not None:
            self._thread.join(timeout_s)

    # ---- the thread

    def _run(self) -> None:
        try:
            while not self._closing:
                self._turn()
        except self.errors as error:
            self.error = error
            self.post(ev.LogFailed(f"the connection to {self.who} is gone: {error}"))

    def _turn(self) -> None:
        try:
            self._do(self._calls.get(timeout=self._pause_s()))
            while True:
                self._do(self._calls.get_nowait())
        except queue.Empty:
            pass
        if not self._closing:
            self._do(lambda: self._look(time.monotonic()))

    def _do(self, call: Callable[[], None]) -> None:
        self._busy_s = time.monotonic()
        try:
            call()
        finally:
            self._busy_s = None

    @abstractmethod
    def _pause_s(self) -> float:
        """The longest time until the next look."""

    @abstractmethod
    def _look(self, now: float) -> None:
        """At everything that may have changed by itself."""

    @abstractmethod
    def _request(self, unit: ev.UnitId, selector: Selector, avoid: tuple[str, ...]) -> None: ...

    @abstractmethod
    def _probe(self, unit: ev.UnitId) -> None: ...

    @abstractmethod
    def _lost(self, agent: ev.AgentId) -> None: ...

    @abstractmethod
    def _retry(self, agent: ev.AgentId) -> None: ...

    @abstractmethod
    def _look_at_nodes(self, *, asked: bool = False) -> None: ...

    @abstractmethod
    def _release(self, unit: ev.UnitId) -> None: ...

    @abstractmethod
    def _units(self) -> list[ev.UnitId]:
        """All that are held or waited for, in the order in which they are given back."""

    def _release_all(self) -> None:
        for unit in self._units():
            self._release(unit)
        self._closing = True
