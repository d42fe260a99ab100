"""Virtual time: what happens when. Nothing here waits: whoever runs it jumps from one moment to the next."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any


class Timeline:
    """Virtual time: calls in the order of their moments, those of one moment in the order they were asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._asked = True

    def later(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heappush(self._queue, (self.now + delay_s, self._count, call, arguments))

    def ask(self) -> None:
        """Something has changed that `over` looks at."""
        self._asked = True

    def pause(self, seconds: float, by_the_clock: Callable[..., None]) -> None:
        """Everything stands still for so long, but for the calls of `by_the_clock` (a method of whatever object): what
        of them is due meanwhile comes right after it."""
        end_s, queue = self.now + seconds + 1e-6, self._queue
        for place, (at_s, count, call, arguments) in enumerate(queue):
            clocked = getattr(call, "__func__", None) is by_the_clock
            queue[place] = max(at_s, end_s) if clocked else at_s + seconds, count, call, arguments
        heapify(queue)

    def run(self, until_s: float, over: Callable[[], bool]) -> None:
        """Until `over()`, which is called after what has called `ask`; until `until_s`, or until nothing is left to
        happen."""
        queue, self._asked = self._queue, True
        while queue:
            if self._asked:
                self._asked = False
                if over():
                    return
            at_s, count, call, arguments = heappop(queue)
            if at_s > until_s:
                heappush(queue, (at_s, count, call, arguments))
                self.now = until_s
                return
            self.now = at_s
            call(*arguments)
