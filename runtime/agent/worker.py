"""The child process in which the training function runs: forked warm, told what to do, and gone after one attempt."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from shaketable.runtime import session
from shaketable.runtime.agent import stacks
from shaketable.runtime.backends.base import Backend
from shaketable.runtime.errors import ShaketableError
from shaketable.runtime.text import described, traced
from shaketable.runtime.transport import messages as msg
from shaketable.runtime.transport.wire import Channel

# so long for the other ranks to make the reports that a rank has made that raises (promise commit-10)
_LAST_REPORTS_S = 1.0


def main(fd: int) -> NoReturn:
    """Run one worker on the channel `fd`; never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        code = _run(Channel(socket.socket(fileno=fd)))
    finally:
        for stream in (sys.stdout, sys.stderr):
            # The function may have closed them or put something of its own in their place.
            with contextlib.suppress(Exception):
                stream.flush()
        # no interpreter teardown: nothing of the fork server's is ours to tear down
        os._exit(code)


def _run(channel: Channel) -> int:
    messages: list[msg.AnyMessage] = []
    # a large function arrives in pieces
    while not messages:
        channel.wait(None)
        messages = channel.receive()
    task, *others = messages
    assert isinstance(task, msg.Task), f"the first message to a worker is its task, not {task}"
    stacks.answer_into(Path(task.staging) / f"stacks-{task.fork.attempt}.txt")
    ours = session.Session(channel, task)
    session.start(ours)
    ours.listen(others)
    # Not a Ray worker: an implicit ray.init here would make this process a driver of its own.
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    backend = Backend()
    try:
        backend, function, config = _loaded(task.task)
        _train(ours, backend, function, config)
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            return _failed(ours, leaving, f"sys.exit({_shown(leaving.code)})")
    except Unloadable as error:
        return _failed(ours, error, str(error), fatal=error.fatal)
    except BaseException as error:  # noqa: BLE001 - whatever the user's function raises, its worker has failed
        collateral = backend.may_be_echo(error)
        if not collateral:
            # What is told then ends the attempt, and with it what other ranks are about to report. A signal's handler
            # may raise here too.
            with contextlib.suppress(BaseException):
                ours.settled(_LAST_REPORTS_S)
        return _failed(ours, error, described(error), collateral=collateral)
    ours.send(msg.WorkerFinished(attempt=task.fork.attempt, rank=task.fork.rank))
    return 0


def _train(ours: session.Session, backend: Backend, function: Any, config: Any) -> None:
    backend.start(ours)
    ours.send(msg.WorkerEntered(attempt=ours.context.attempt, rank=ours.context.rank))
    # Nobody is in the function before everybody can be: what fails in it is no start failure.
    ours.exchange(b"")
    function(config) if config is not None else function()
    backend.stop()


class Unloadable(ShaketableError):
    """The training function cannot be unpickled here. `fatal`: nor anywhere else, as far as one can know; a module that
    is missing may be missing on this node only."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"the training function cannot be loaded in a worker: {described(error)}")
        self.fatal = not isinstance(error, (ImportError, MemoryError, OSError))


def _loaded(task: bytes) -> tuple[Backend, Any, Any]:
    try:
        backend, function, config = pickle.loads(task)
    except Exception as error:
        raise Unloadable(error) from error
    return backend, function, config


def _failed(ours: session.Session, error: BaseException, detail: str, **signs: bool) -> int:
    """Told before it is printed: nobody may read our stdout any more, and printing wait for ever."""
    who, text = ours.context, traced(error)
    ours.send(msg.WorkerFailed(attempt=who.attempt, rank=who.rank, detail=detail, error=text, **signs))
    # It may be closed, or something of the function's own.
    with contextlib.suppress(Exception):
        sys.stderr.write(text)
    return 1


def _shown(code: object) -> str:
    try:
        return repr(code)
    except Exception:  # noqa: BLE001 - whatever the user's `__repr__` does
        return f"<{type(code).__name__}>"
