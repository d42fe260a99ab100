"""The container engine, and what of ours is there: everything carries a label with the cluster it belongs to and the
harness that made it, so that what a killed harness has left can be told from what another one uses.

`python -m shaketable.clusters.containers.engine CLUSTER` removes what is left of one cluster: the watchdog's last act.
Without a cluster it says why there is no engine here, or nothing.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shaketable.clusters.protocol import ClusterError

if TYPE_CHECKING:
    import docker

CLUSTER_LABEL, HARNESS_LABEL = "shaketable.cluster", "shaketable.harness"


def connect() -> docker.DockerClient:
    """Raises ClusterError where there is no engine, with what to do."""
    if importlib.util.find_spec("docker") is None:
        raise ClusterError("docker is not installed: pip install 'shaketable[containers]'")
    import docker

    with refusals("it to answer"):
        client = docker.from_env()
        client.ping()
        return client


def why_not() -> str:
    """There is no engine here; empty: there is one."""
    try:
        connect().close()
    except ClusterError as error:
        return str(error)
    return ""


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """What the engine refuses is a ClusterError."""
    import docker.errors
    import requests

    try:
        yield
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise ClusterError(
            f"the container engine was asked for {what}: {error}. `docker version` says whether one runs here"
        ) from error


def harness() -> str:
    """This process, as nothing else of this machine is or will be called: its pid, and when it began."""
    return f"{os.getpid()}-{_began(os.getpid())}"


def labels(cluster: str) -> dict[str, str]:
    return {CLUSTER_LABEL: cluster, HARNESS_LABEL: harness()}


def lives(harness: str) -> bool:
    pid, _, began = harness.partition("-")
    return pid.isdigit() and _began(int(pid)) == began


def _began(pid: int) -> str:
    """In ticks since the machine did; empty where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def reap(client: docker.DockerClient) -> list[str]:
    """Removes what harnesses have left that no longer live; returns the clusters."""
    with refusals("what is left of earlier runs"):
        # both: a cluster may have lost the one or the other
        found = [*_containers(client, HARNESS_LABEL), *client.networks.list(filters={"label": HARNESS_LABEL})]
        marks = [(_labels(each)[CLUSTER_LABEL], _labels(each)[HARNESS_LABEL]) for each in found]
    left = sorted({cluster for cluster, made_by in marks if not lives(made_by)})
    for cluster in left:
        remove(client, cluster)
    return left


def remove(client: docker.DockerClient, cluster: str) -> None:
    """Its containers, whatever state they are in, and its network."""
    label = f"{CLUSTER_LABEL}={cluster}"
    with refusals(f"the end of cluster {cluster}"):
        for container in _containers(client, label):
            _gone(functools.partial(container.remove, force=True))
        for network in client.networks.list(filters={"label": label}):
            _gone(network.remove)


def _containers(client: docker.DockerClient, label: str) -> list[Any]:
    # by their short description: one that goes meanwhile is no error then
    found: list[Any] = client.containers.list(all=True, filters={"label": label}, sparse=True)
    return found


def _labels(made: Any) -> dict[str, str]:
    found: dict[str, str] = made.attrs["Labels"]
    return found


def _gone(remove: Callable[[], None]) -> None:
    """Somebody else may be about to remove it, or have done so: the engine itself, when its process has ended."""
    import docker.errors

    try:
        remove()
    except docker.errors.NotFound:
        return
    except docker.errors.APIError as error:
        if error.status_code != 409:
            raise


def main(cluster: str = "") -> None:
    if cluster:
        remove(connect(), cluster)
    else:
        print(why_not())


if __name__ == "__main__":
    main(*sys.argv[1:])
