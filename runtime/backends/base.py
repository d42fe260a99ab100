"""What a framework needs around the training function, in the worker."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from shaketable.runtime.session import Session
from shaketable.runtime.text import described


@dataclass(frozen=True, slots=True)
class Backend:
    """No framework: the function talks to its peers, if at all, by its own means. `echo_types`: the names of the
    framework's exceptions that may only tell of a peer's end; `echo_text`: what any RuntimeError says that may."""

    echo_types: ClassVar[frozenset[str]] = frozenset()
    echo_text: ClassVar[re.Pattern[str]] = re.compile(
        r"Connection (closed|reset|refused|was lost)|Broken pipe|Socket closed|heartbeat|gloo|NCCL", re.IGNORECASE
    )

    framework: str = "none"
    preload: tuple[str, ...] = ()

    def start(self, session: Session) -> None:
        """Called in the worker before the training function; an error in it is a start failure."""

    def stop(self) -> None:
        """Called after the training function has returned."""

    def may_be_echo(self, error: BaseException) -> bool:
        """True if this may only be the echo of a peer's end, and not the cause (promise cause-2): a broken
        collective or connection, or raised from one."""
        seen: BaseException | None = error
        known: set[int] = set()
        while seen is not None and id(seen) not in known:
            known.add(id(seen))
            if isinstance(seen, ConnectionError) or type(seen).__name__ in self.echo_types:
                return True
            if isinstance(seen, RuntimeError) and self.echo_text.search(described(seen)):
                return True
            seen = seen.__cause__ or seen.__context__
        return False
