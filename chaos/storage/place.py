"""Where a run under test keeps its log and its checkpoints (`storage` in the configuration of an experiment).

`directory`: in the result folder. `disk`: there too, on a small disk of its own that can be filled without harm to
anything else (a tmpfs, so it takes root). `s3`: in a bucket of an S3 server of the harness's own, reached through the
fault gateway. Afterwards nothing of it is left but, in the result folder, the files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shaketable.chaos.plan import Configuration
from shaketable.chaos.undo import Undoing
from shaketable.clusters.protocol import LOOPBACK, ClusterError

# needs the extra `storage`
if TYPE_CHECKING:
    from shaketable.chaos.storage.gateway import Gateway

DISK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Storage:
    """`path` is what the run is given. `directory`: the same where it can be looked into; `gateway`: where requests for
    it can be hurt."""

    path: str
    directory: Path | None = None
    gateway: Gateway | None = None


@contextmanager
def storage_for(configuration: Configuration, directory: Path, host: str = LOOPBACK) -> Iterator[Storage]:
    """`directory` is that of the result folder, and there; `host` is this machine's address for the nodes. Raises
    ClusterError where this machine cannot have it."""
    if configuration.kept_in == "s3":
        with _bucket(host) as storage:
            yield storage
        return
    if configuration.storage == "disk":
        with _disk(directory):
            yield Storage(str(directory), directory)
        return
    yield Storage(str(directory), directory)


@contextmanager
def _bucket(host: str) -> Iterator[Storage]:
    from shaketable.chaos.storage.gateway import Gateway
    from shaketable.chaos.storage.server import environment, make_bucket, s3_server

    with s3_server() as endpoint, Gateway(endpoint, host) as gateway, _environment(environment(gateway.endpoint)):
        bucket = f"shaketable-{uuid.uuid4().hex[:12]}"
        make_bucket(endpoint, bucket)
        yield Storage(f"s3://{bucket}/storage", gateway=gateway)


@contextmanager
def _disk(directory: Path) -> Iterator[None]:
    undoing = Undoing(["umount", "--lazy", str(directory)])
    try:
        options = f"size={DISK_BYTES},mode=0755"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "shaketable", str(directory)], capture_output=True, text=True
        )
        if done.returncode:
            raise ClusterError(
                f"storage: disk mounts a tmpfs, which takes root and the right to mount: {done.stderr.strip()}"
            )
        yield
    finally:
        kept = directory.with_name(f".{directory.name}-{uuid.uuid4().hex[:8]}")
        try:
            if directory.is_mount():
                shutil.copytree(directory, kept, symlinks=True)
        finally:
            undoing.now()
        if kept.exists():
            directory.rmdir()
            kept.rename(directory)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Of this process, which reads afterwards what the run has left, and of the drivers that it starts."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
