"""The child process in which the training function runs: forked warm, told what to do, and gone after one attempt."""

from __future__ import annotations

import os
import pickle
import re
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from shaketable.runtime import messages as msg
from shaketable.runtime import session, stacks
from shaketable.runtime.wire import Channel

# What a rank says when a peer is gone: it may be the echo of the real cause (protocols 6.1).
_ECHO_TYPES = {"DistBackendError", "DistNetworkError", "DistStoreError", "XlaRuntimeError", "JaxRuntimeError"}
_ECHO_TEXT = re.compile(
    r"Connection (closed|reset|refused|was lost)|Broken pipe|Socket closed|heartbeat|gloo|NCCL", re.IGNORECASE
)


def main(fd: int) -> NoReturn:
    """Run one worker on the channel `fd`; never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    channel = Channel(socket.socket(fileno=fd))
    code = 1
    try:
        code = _run(channel)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # no interpreter teardown: nothing of the fork server's is ours to tear down


def _run(channel: Channel) -> int:
    messages: list[msg.AnyMessage] = []
    while not messages:  # a large function arrives in pieces
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
    attempt, rank = task.fork.attempt, task.fork.rank
    try:
        backend, function, config = pickle.loads(task.task)
        backend.start(ours)
        ours.send(msg.Entered(attempt=attempt, rank=rank))
        ours.exchange(
            b""
        )  # nobody is in the function before everybody can be: what fails in it is no start failure
        function(config) if config is not None else function()
        backend.stop()
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            detail = f"sys.exit({leaving.code!r})"
            ours.send(msg.Failed(attempt=attempt, rank=rank, detail=detail, error=traceback.format_exc()))
            return 1
    except BaseException as error:  # noqa: BLE001 - whatever the user's function raises, its worker has failed
        traceback.print_exc()
        ours.send(
            msg.Failed(
                attempt=attempt, rank=rank, detail=f"{type(error).__name__}: {error}",
                error=traceback.format_exc(), collateral=may_be_collateral(error),
            )
        )  # fmt: skip
        return 1
    ours.send(msg.Finished(attempt=attempt, rank=rank))
    return 0


def may_be_collateral(error: BaseException) -> bool:
    """True if this may only be the echo of a peer's end: a broken collective or connection, or raised from one."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ConnectionError) or type(seen).__name__ in _ECHO_TYPES:
            return True
        if isinstance(seen, RuntimeError) and _ECHO_TEXT.search(str(seen)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
