"""What a framework needs around the training function, in the worker."""

from __future__ import annotations

from dataclasses import dataclass

from shaketable.runtime.session import Session


@dataclass(frozen=True, slots=True)
class Backend:
    """No framework: the function talks to its peers, if at all, by its own means."""

    framework: str = "none"
    preload: tuple[str, ...] = ()

    def start(self, session: Session) -> None:
        """Called in the worker before the training function; an error in it is a start failure."""

    def stop(self) -> None:
        """Called after the training function has returned."""
