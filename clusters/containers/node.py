"""One node as a container: `ray start --block` as its first process, with a network, a memory and a disk of its own.

It shares this machine's table of processes (`pid_mode: host`): a node's processes are the same to a fault, to the look
for leaks and to the watchdog as those of a local cluster, and what is sent to them is the same.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shaketable.clusters import marked
from shaketable.clusters.containers import engine
from shaketable.clusters.local import node as ray_node
from shaketable.clusters.local.node import NodeProcess
from shaketable.clusters.protocol import ClusterError

if TYPE_CHECKING:
    import docker

# its memory; a node with a small worker takes about 0.5 GiB
MEMORY_BYTES = 3 << 30
# /tmp, where Ray's own directory is and checkpoints are staged
DISK_BYTES = 512 << 20
# Ray's object store is there
SHARED_MEMORY_BYTES = 2 * ray_node.OBJECT_STORE_BYTES
REMOVED_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where nodes are started: `network` by its name, `image` by its tag. `folders` of this machine can be read on the
    nodes, under their names here: the code of a job."""

    client: docker.DockerClient
    cluster: str
    network: str
    image: str
    folders: tuple[str, ...] = ()


class ContainerProcess:
    """The first process of a container, as a child process of the harness would be: the engine is its parent."""

    def __init__(self, container: Any, log: Path) -> None:
        self.container, self._log = container, log
        self._code: int | None = None
        self._removed = threading.Event()
        # before it runs: nothing of its output and its end is missed
        self._output = container.client.api.attach(container.id, stream=True, logs=True)
        for watch in (self._copy_output, self._wait_for_its_end):
            threading.Thread(target=watch, name=f"{watch.__name__} {container.name}", daemon=True).start()

    def start(self) -> None:
        with engine.refusals(f"the start of {self.container.name}"):
            self.container.start()
            self.pid: int = self.container.client.api.inspect_container(self.container.id)["State"]["Pid"]

    def _copy_output(self) -> None:
        # the stream breaks with the engine: then there is no more to read
        with self._log.open("wb") as file, contextlib.suppress(OSError):
            for chunk in self._output:
                file.write(chunk)
                file.flush()

    def _wait_for_its_end(self) -> None:
        try:
            with engine.refusals("the end of a container"):
                self._code = self.container.wait(timeout=None, condition="removed")["StatusCode"]
        except ClusterError:
            # the engine does not know it any more
            self._code = -1
        finally:
            self._removed.set()

    def poll(self) -> int | None:
        """The engine takes a while to say what the kernel knows at once."""
        return self.wait() if marked.gone(self.pid) else None

    def wait(self) -> int:
        """Until it is removed. Raises ClusterError where that takes too long."""
        if not self._removed.wait(REMOVED_WITHIN_S) or self._code is None:
            raise ClusterError(
                f"container {self.container.name}: not removed {REMOVED_WITHIN_S:g} s after its end; `docker ps` shows"
                " what the engine says of it"
            )
        return self._code


def start(
    place: Place, number: int, mark: str, directory: Path, arguments: list[str], extra: Mapping[str, str]
) -> NodeProcess:
    """Started when this returns; whether it comes up is seen in Ray's own view. Raises ClusterError."""
    directory.mkdir(parents=True)
    # the address that it has on the cluster's network is known to itself alone
    command = [
        "sh",
        "-c",
        'exec "$@" --node-ip-address="$(hostname -i)"',
        "node",
        "python",
        *ray_node.command(arguments),
    ]
    with engine.refusals(f"node {number} of cluster {place.cluster}"):
        container = place.client.containers.create(
            place.image,
            [*command, f"--temp-dir={directory}"],
            name=f"shaketable-{place.cluster}-{number}",
            hostname=f"node-{number}",
            user=f"{os.getuid()}:{os.getgid()}",
            environment=environment(mark, extra),
            labels=engine.labels(place.cluster),
            network=place.network,
            pid_mode="host",
            mem_limit=MEMORY_BYTES,
            memswap_limit=MEMORY_BYTES,
            shm_size=SHARED_MEMORY_BYTES,
            tmpfs={"/tmp": f"size={DISK_BYTES},mode=1777,exec"},
            volumes=[f"{folder}:{folder}:ro" for folder in (*_code(), *place.folders)],
            working_dir="/tmp",
            # what it leaves is of no use, and a harness that was killed can remove nothing
            auto_remove=True,
            init=False,
        )
        process = ContainerProcess(container, directory / ray_node.LOG)
    process.start()
    return NodeProcess(number, mark, directory, process, arguments)


def environment(mark: str, extra: Mapping[str, str]) -> dict[str, str]:
    """Of this process's own only what it says to Ray: the rest is about this machine."""
    kept = {name: value for name, value in ray_node.environment(mark, {}).items() if name.startswith("RAY_")}
    threads = {name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ}
    return {**kept, **threads, "HOME": "/tmp", "PYTHONPATH": str(_package().parent), **extra, marked.MARK: mark}


def _package() -> Path:
    import shaketable

    return Path(next(iter(shaketable.__path__))).absolute()


def _code() -> list[Path]:
    """Where shaketable is. In a checkout its floors are links to other places."""
    return [_package(), *(path.resolve() for path in _package().iterdir() if path.is_symlink())]
