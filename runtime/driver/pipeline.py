"""Commands of the controller, executed strictly in order: what follows an AppendRecord waits until it is durable.
Meanwhile events keep being handled, and their commands queue up behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from shaketable.runtime.controller import events as ev
from shaketable.runtime.log.records import AnyRecord


class Pipeline:
    """`append` begins to write a record and returns; `appended()` says that it is durable. `execute` does the rest."""

    def __init__(self, execute: Callable[[ev.Command], None], append: Callable[[AnyRecord], None]) -> None:
        self._execute, self._append = execute, append
        self._commands: deque[ev.Command] = deque()
        self._appending = self._over = False

    def extend(self, commands: Iterable[ev.Command]) -> None:
        self._commands.extend(commands)

    def run(self) -> None:
        """Whatever can be done now."""
        commands = self._commands
        while commands and not self._appending and not self._over:
            command = commands.popleft()
            if isinstance(command, ev.AppendRecord):
                self._appending = True
                self._append(command.record)
            else:
                self._over = type(command) is ev.FinishRun
                self._execute(command)

    @property
    def idle(self) -> bool:
        """Whatever has been decided is durable and done."""
        return not self._appending and not self._commands

    def appended(self) -> None:
        self._appending = False
        self.run()

    def log_failed(self) -> None:
        """Nothing that was decided on the strength of the log may still happen."""
        self._commands.clear()
        self._appending = False
