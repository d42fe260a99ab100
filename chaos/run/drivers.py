"""The drivers of one run, one after the other or, where an experiment wants it, two at a time.

Each is a process in a session of its own. A thread waits for its end and records it, so that `DriverExited` is on
record the moment it happens, whoever ended it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from shaketable.chaos.history.collector import Collector
from shaketable.chaos.history.events import DriverExited, DriverStarted
from shaketable.chaos.redacting import redacted
from shaketable.chaos.subjects import launching
from shaketable.chaos.subjects.protocol import Launch, Subject
from shaketable.clusters.protocol import Cluster, DriverProcess

GONE_WITHIN_S = 10.0
# the name of a run beside the one under test, and of the folder that its driver and witnesses write to
BESIDE = "beside"


class RunBeside:
    """It is nobody's concern but that of who started it: no history holds what it does."""

    def __init__(self, drivers: Drivers, collector: Collector) -> None:
        self._drivers, self._collector = drivers, collector
        drivers.start({})

    @property
    def exit_code(self) -> int | None:
        exited = [event for event in self._collector.snapshot() if isinstance(event, DriverExited)]
        return exited[-1].code if exited else None

    def stop(self) -> None:
        self._drivers.kill()
        self._collector.close()


class Drivers:
    """Starts, watches and, at the end, kills them. `launch` is the first; the rest differ in number and changes."""

    def __init__(
        self,
        subject: Subject,
        launch: Launch,
        folder: Path,
        cluster: Cluster,
        collector: Collector,
        exited: Callable[[], None] = lambda: None,
    ) -> None:
        self._subject, self._launch, self._folder, self._collector = subject, launch, folder, collector
        self._exited, self._cluster = exited, cluster
        theirs = cluster.pods.starts_driver if cluster.pods is not None else None
        self._start = theirs or launching.start
        self._lock = threading.Lock()
        self._running: dict[int, DriverProcess] = {}
        self._waiters: list[threading.Thread] = []
        self.pids: list[int] = []
        self._closed = False

    def start(self, changed: dict[str, Any]) -> int:
        """Launch the driver once more; returns its pid."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the experiment is over: no driver is started any more")
            number = len(self.pids)
            # another cluster may have come in the stead of the first
            launch = replace(self._launch, address=self._cluster.address, launch=number, changed=changed)
            process = self._start(self._subject.driver(launch, self._folder / f"driver-{number}.log"))
            self._running[number] = process
            self.pids.append(process.pid)
            self._collector.emit(DriverStarted(launch=number, pid=process.pid, changed=redacted(changed)))
            waiter = threading.Thread(target=self._wait, args=(number, process), name=f"driver-{number}", daemon=True)
            self._waiters.append(waiter)
            waiter.start()
        return process.pid

    def beside(self, changed: dict[str, Any]) -> RunBeside:
        """Launch another run of the same job, with a driver and witnesses of its own."""
        folder = self._folder / BESIDE
        folder.mkdir()
        collector = Collector(folder / "witness", self._launch.witness.host)
        launch = replace(self._launch, name=BESIDE, witness=collector.config)
        launch = replace(launch, configuration=replace(launch, changed=changed).effective)
        return RunBeside(Drivers(self._subject, launch, folder, self._cluster, collector), collector)

    @property
    def running(self) -> bool:
        with self._lock:
            return bool(self._running)

    def wait(self, timeout_s: float) -> None:
        """Until the drivers started so far have exited, at most that long."""
        for waiter in list(self._waiters):
            waiter.join(timeout_s)

    def kill(self) -> None:
        """SIGKILL to every driver that still runs and to all of its process group; no more are started."""
        with self._lock:
            self._closed = True
            for process in self._running.values():
                _kill_group(process.pid)
            waiters = list(self._waiters)
        for waiter in waiters:
            waiter.join(GONE_WITHIN_S)

    def _wait(self, number: int, process: DriverProcess) -> None:
        code = process.wait()
        self._collector.emit(DriverExited(launch=number, code=code if code >= 0 else 128 - code))
        with self._lock:
            del self._running[number]
        self._exited()


def _kill_group(pid: int) -> None:
    try:
        os.killpg(os.getpgid(pid), signal.SIGKILL)
    except ProcessLookupError:
        # its own waiter is about to say so
        pass
