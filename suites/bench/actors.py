"""Empty Ray actors, from a driver process of their own: what the control plane's idle cost is compared with.

Run as `python -m shaketable.suites.bench.actors ADDRESS COUNT` it says "ready" once they are up, and ends when its
standard input does.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray


class Empty:
    def ping(self) -> None:
        """Answered once the actor is up."""


@contextmanager
def empty_actors(address: str, count: int) -> Iterator[int]:
    """The pid of a driver that holds `count` empty actors, each with one CPU."""
    command = [sys.executable, "-m", __name__, address, str(count)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline().strip() != b"ready":
            raise RuntimeError(f"empty actors did not start on {address}: exit code {process.wait(60)}")
        yield process.pid
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def main(address: str, count: int) -> None:
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    actor: Any = ray.remote(num_cpus=1)(Empty)
    actors: list[Any] = [actor.remote() for _ in range(count)]
    ray.get([empty.ping.remote() for empty in actors], timeout=120)
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
