"""The thread that writes the run log, and looks there whether another driver has taken over: storage may take long, and
the loop goes on meanwhile."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from shaketable.runtime.controller import events as ev
from shaketable.runtime.errors import Fenced, LogViolation, NumberTaken, StorageError
from shaketable.runtime.log.records import AnyRecord
from shaketable.runtime.log.run_log import RunLog, append_settled

Call = Callable[[], None]


class LogThread:
    """`tell` and `appended` are called from this thread; the latter with a record that is durable, and its number."""

    def __init__(
        self,
        log: RunLog,
        fence_check_s: float,
        tell: Callable[[ev.Event], None],
        appended: Callable[[int, AnyRecord], None],
        warn: Callable[[str], None],
    ) -> None:
        self._log, self._fence_check_s = log, fence_check_s
        self._tell, self._appended, self._warn = tell, appended, warn
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()

    def start(self, guarded: Callable[[Call], Call]) -> None:
        """`guarded` makes of the thread's work what may run on a thread."""
        threading.Thread(target=guarded(self._run), name="shaketable-log", daemon=True).start()

    def append(self, record: AnyRecord) -> None:
        self.do(lambda: self._append(record))

    def look_at_fence(self) -> None:
        self.do(lambda: self.check_fence(self._tell))

    def do(self, call: Call) -> None:
        """In its turn."""
        self._calls.put(call)

    def close(self) -> None:
        """When what is in line is done."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def _append(self, record: AnyRecord) -> None:
        try:
            number, stored = append_settled(self._log, record)
        except (Fenced, NumberTaken) as error:
            self._tell(ev.TakenOver(str(error)))
        except (StorageError, LogViolation) as error:
            self._tell(ev.LogFailed(f"the run log cannot be written: {error}"))
        else:
            self._appended(number, stored)

    def check_fence(self, tell: Callable[[ev.Event], None]) -> None:
        """Now, from any thread."""
        try:
            self._log.check_fence(self._fence_check_s)
        except Fenced as error:
            tell(ev.TakenOver(str(error)))
        except StorageError as error:
            self._warn(f"the run log could not be read for the fence check: {error}")
