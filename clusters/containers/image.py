"""The image that nodes are started from: made by `shaketable image build` from the Dockerfile beside this file, with
the libraries in the versions that the harness has, for Ray and pickled values want them to be the same.

The harness's own code is not in it but mounted when a node is started, so there is no second version of that.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from shaketable.clusters.containers.engine import refusals
from shaketable.clusters.protocol import ClusterError

if TYPE_CHECKING:
    import docker

USUAL = "shaketable/node:latest"
# Python's and Ray's version
LABEL = "shaketable.versions"
HERE = Path(__file__).parent


def versions() -> str:
    """What the nodes and the driver must have in common."""
    return f"python {platform.python_version()}, ray {importlib.metadata.version('ray')}"


def official_base() -> str:
    return f"python:{platform.python_version()}-slim"


def requirements(extras: Sequence[str] = ()) -> list[str]:
    """shaketable's own, with those of `extras` and all that they ask for, pinned to what is installed here. Raises
    ClusterError for an extra that is not."""
    found: dict[str, str] = {}
    waiting = [("shaketable", frozenset(extras))]
    while waiting:
        name, wanted = waiting.pop()
        for each in _required(name, wanted):
            if each.name.lower() not in found:
                found[each.name.lower()] = _installed(each.name)
                waiting.append((each.name, frozenset(each.extras)))
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def _required(name: str, extras: frozenset[str]) -> Iterator[Requirement]:
    for text in importlib.metadata.requires(name) or ():
        each = Requirement(text)
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield each


def _installed(name: str) -> str:
    try:
        # a local part (+cpu) says where it came from, and no index knows it
        return importlib.metadata.version(name).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        raise ClusterError(f"{name} is not installed here, so no version of it can go into the image") from None


def build(client: docker.DockerClient, tag: str, base: str, extras: Sequence[str]) -> Iterator[str]:
    """What the engine says meanwhile. Raises ClusterError where it cannot be built."""
    with tempfile.TemporaryDirectory(prefix="shaketable-image-") as context, refusals(f"the image {tag}"):
        shutil.copy(HERE / "Dockerfile", context)
        (Path(context) / "requirements.txt").write_text("\n".join(requirements(extras)) + "\n")
        # on the machine's own network, on which its package index can be reached if anywhere
        said = client.api.build(
            path=context,
            tag=tag,
            buildargs={"BASE": base},
            labels={LABEL: versions()},
            network_mode="host",
            rm=True,
            forcerm=True,
            decode=True,
        )
        for line in said:
            if "error" in line:
                raise ClusterError(f"the image {tag} could not be built: {line['error'].strip()}")
            if text := line.get("stream", "").strip():
                yield text


def check(client: docker.DockerClient, tag: str) -> None:
    """Raises ClusterError for an image that is not there, or was made for other versions."""
    import docker.errors

    try:
        with_labels = client.images.get(tag).labels
    except docker.errors.ImageNotFound:
        raise ClusterError(f"there is no image {tag}: run `shaketable image build`") from None
    if (made_for := with_labels.get(LABEL, "nobody knows what")) != versions():
        raise ClusterError(
            f"the image {tag} was made for {json.dumps(made_for)}, here are {json.dumps(versions())}:"
            " run `shaketable image build`"
        )
