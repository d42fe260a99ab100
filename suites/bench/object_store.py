"""One large file to an S3 server and back: ours against obstore's own multipart put and get of the same file, turn by
turn. Ours also hashes every byte, and a restore compares it with the commit.

The server is moto's, in a process of its own; it is slow, and the same for both sides, but for this: it reads the whole
object for every range of it, so a restore of more than one segment (64 MiB) looks the worse the larger the file is.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import obstore
from obstore.store import S3Store, from_url

from shaketable.chaos.storage.server import environment, make_bucket
from shaketable.clusters.local.ports import free_port
from shaketable.runtime.checkpoints.store import restore, upload
from shaketable.runtime.log.records import CheckpointCommitted
from shaketable.runtime.storage import objects
from shaketable.runtime.storage.file import File
from shaketable.runtime.storage.files import CHECKPOINTS
from shaketable.runtime.storage.objects import ObjectPath
from shaketable.suites.bench.checkpoint_throughput import MIB, fill
from shaketable.suites.bench.figures import Sample
from shaketable.suites.bench.rig import BenchError
from shaketable.suites.bench.setting import Setting

BYTES = 64 * MIB
UP_WITHIN_S = 60.0


def transfer(setting: Setting, size: int = BYTES) -> Iterator[Sample]:
    """Above 1 is faster than obstore by itself."""
    profile = f"{size // MIB} MiB in 1 file, S3 server (moto)"
    setting.folder.mkdir(parents=True, exist_ok=True)
    with s3_process() as bucket, tempfile.TemporaryDirectory(dir=setting.folder) as name:
        fill(Path(name, "source"), size, 1)
        for turn in range(setting.repeat):
            up, down = _turn(f"{bucket}/run-{turn}", Path(name))
            yield setting.sample("upload_ratio_to_obstore", profile, up)
            yield setting.sample("restore_ratio_to_obstore", profile, down)


def _turn(url: str, folder: Path) -> tuple[float, float]:
    """(upload, restore): seconds of obstore over ours. Nothing of it stays."""
    (file,) = (folder / "source").iterdir()
    run, store = ObjectPath(url), store_at(url)
    began_s = time.perf_counter()
    files = upload(folder / "source", run / CHECKPOINTS / "one")
    uploaded_s = time.perf_counter()
    obstore.put(store, "theirs", file, use_multipart=True)
    put_s = time.perf_counter()
    restore(run, commit_of(files), folder / "cache")
    restored_s = time.perf_counter()
    _get(store, folder / "got")
    got_s = time.perf_counter()
    objects.remove(run / name for name in objects.sizes(run))
    shutil.rmtree(folder / "cache")
    return (put_s - uploaded_s) / (uploaded_s - began_s), (got_s - restored_s) / (restored_s - put_s)


def _get(store: S3Store, target: Path) -> None:
    with target.open("wb") as file:
        for part in obstore.get(store, "theirs").stream():
            file.write(part)


def commit_of(files: list[File], index: int = 1, checkpoint: str = "one") -> CheckpointCommitted:
    return CheckpointCommitted(
        term=1, attempt=1, index=index, checkpoint=checkpoint, files=files, metrics={"step": index}
    )


def store_at(url: str) -> S3Store:
    """obstore as it comes, for what the environment says."""
    store = from_url(url, client_options={"allow_http": True})
    assert isinstance(store, S3Store)
    return store


@contextmanager
def s3_process() -> Iterator[str]:
    """`s3://<bucket>` on a server of its own, which the environment of this process points to."""
    port = free_port()
    endpoint, bucket = f"http://127.0.0.1:{port}", "bench"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(process, port)
        make_bucket(endpoint, bucket)
        with patch.dict("os.environ", environment(endpoint)):
            yield f"s3://{bucket}"
    finally:
        objects.forget(ObjectPath(f"s3://{bucket}"))
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    deadline_s = time.monotonic() + UP_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline_s:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise BenchError(f"moto's S3 server did not come up within {UP_WITHIN_S:g} s: pip install 'shaketable[storage]'")
