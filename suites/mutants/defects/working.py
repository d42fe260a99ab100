"""What only real processes show: workers, agents, and the files of a real job."""

from __future__ import annotations

import os
import select
import sys
import time
from typing import Any

from shaketable.suites.mutants.defining import defect, replace


@defect("agent.loop", "liveness", "grow-back", experiment="node-added", tried="processes", within_s=60)
def workers_not_killed(agentloop: Any) -> None:
    """workers of an ended attempt are not killed"""
    replace(agentloop, "_killpg", lambda original: lambda pid: None)


@defect("session", "metrics-match", experiment="torch-ddp-worker-crash", tried="processes")
def restored_without_momentum(session: Any) -> None:
    """the optimizer's momentum is not restored from a checkpoint"""

    def make(original: Any) -> Any:
        def get_checkpoint(self: Any) -> Any:
            given = original(self)
            if given is None:
                return None
            import tempfile
            from pathlib import Path

            import torch

            directory = Path(tempfile.mkdtemp(dir=self._staging))
            with given.as_directory() as restored:
                saved = torch.load(Path(restored) / "state.pt", weights_only=True)
            saved["optimizer"]["state"] = {}
            torch.save(saved, directory / "state.pt")
            return session.Checkpoint.from_directory(directory)

        return get_checkpoint

    replace(session.Session, "get_checkpoint", make)


@defect(
    "agent.loop", tests="runtime/test_runtime_without_ray.py::test_a_broadcast_of_16_mib_takes_no_time_worth_mentioning"
)
def a_turn_for_each_buffer(agentloop: Any) -> None:
    """what a socket does not take at once waits for a later turn of the agent's loop"""

    def make(original: Any) -> Any:
        def wait_to_write(self: Any, channel: Any) -> None:
            if channel.unsent:
                time.sleep(0.2)
            original(self, channel)

        return wait_to_write

    replace(agentloop.AgentLoop, "_wait_to_write", make)


@defect("transport.wire", tests="runtime/test_wire.py::test_a_channel_works_above_descriptor_1023")
def no_descriptor_above_1023(wire: Any) -> None:
    """a connection whose descriptor is above 1023 cannot be waited for"""

    def make(original: Any) -> Any:
        def poll(sock: Any, events: int, timeout_s: float | None) -> bool:
            reading = [sock] if events & select.POLLIN else []
            writing = [sock] if events & select.POLLOUT else []
            return any(select.select(reading, writing, [], timeout_s))

        return poll

    replace(wire, "_poll", make)


@defect("transport.messages", tests="runtime/test_wire.py::test_a_text_that_is_not_utf_8_travels_escaped")
def only_utf_8_travels(messages: Any) -> None:
    """a worker whose error is not UTF-8 cannot tell it"""
    replace(messages, "encode", lambda original: lambda message: messages._encoder.encode(message))


@defect(
    "agent.worker", tests="runtime/test_runtime_without_ray.py::test_an_error_while_nobody_reads_the_output_is_no_hang"
)
def printed_before_it_is_told(worker: Any) -> None:
    """a worker that fails prints its error before it tells it"""

    def make(original: Any) -> Any:
        def failed(ours: Any, error: BaseException, detail: str, **signs: bool) -> Any:
            sys.stderr.write(worker.traced(error))
            return original(ours, error, detail, **signs)

        return failed

    replace(worker, "_failed", make)


@defect(
    "agent.forkserver",
    tests="runtime/test_forkserver.py::test_a_fork_server_that_stands_still_does_not_outlive_its_agent",
)
def guard_leaves_alone(forkserver: Any) -> None:
    """the guard of a fork server goes with its agent, and leaves what is below it"""
    replace(forkserver, "_leave", lambda original: lambda *_: os._exit(0))
