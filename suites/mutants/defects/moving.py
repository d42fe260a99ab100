"""Handlers that leave the controller's tables: each is refused by the runtime itself, at once, and harms no run."""

from __future__ import annotations

from typing import Any

from shaketable.suites.mutants.defining import defect, replace, replace_item

ITSELF = "runtime"


@defect("controller.core", ITSELF)
def signal_forgotten(core: Any) -> None:
    """SIGTERM ends the attempt, and the next one starts"""

    def make(original: Any) -> Any:
        def interrupted(m: Any, event: Any) -> None:
            original(m, event)
            m.interrupted = 0

        return interrupted

    replace_item(core.HANDLERS, core.ev.Interrupted, make)


@defect("controller.core", ITSELF)
def signal_obeyed_at_once(core: Any) -> None:
    """SIGTERM ends the run while the workers of its attempt still run"""

    def make(original: Any) -> Any:
        def interrupted(m: Any, event: Any) -> None:
            m.interrupted = event.signal
            m.go(core.INTERRUPTED)
            core.leasing.finish(m, "interrupted")

        return interrupted

    replace_item(core.HANDLERS, core.ev.Interrupted, make)


@defect("controller.handlers.endings", ITSELF)
def stop_skipped(endings: Any) -> None:
    """an attempt that is over is followed by the next one, whose forks meet workers that nobody has stopped"""

    def make(original: Any) -> Any:
        def stop(m: Any) -> None:
            m.go(type(m.state).WAITING)

        return stop

    replace(endings, "stop", make)


@defect("controller.handlers.hosts", ITSELF)
def replacement_that_fails_ends_the_run(hosts: Any) -> None:
    """an agent that cannot be started ends a run that does not need it"""

    def make(original: Any) -> Any:
        def warn(m: Any, unit: Any) -> None:
            m.go(type(m.state).FAILED)
            hosts.leasing.fail(m, "an agent cannot be started")

        return warn

    replace(hosts, "_give_up_slice", make)


@defect("controller.core", ITSELF)
def pause_stops_the_attempt(core: Any) -> None:
    """an attempt is stopped because its driver stood still"""

    def make(original: Any) -> Any:
        def paused(m: Any, event: Any) -> None:
            original(m, event)
            if m.state is not core.STOPPING:
                core.endings.stop(m)

        return paused

    replace_item(core.HANDLERS, core.ev.LoopPaused, make)


@defect("controller.following", ITSELF)
def settled_run_waits_by_itself(following: Any) -> None:
    """what is done at the end of an attempt decides what is next, whatever its end says"""

    def make(original: Any) -> Any:
        def settle(m: Any) -> None:
            original.then(m)
            m.go(type(m.state).WAITING)

        return original._replace(then=settle)

    replace_item(following.FOLLOWING, "nothing left", make)
