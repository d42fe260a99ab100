"""Where a Ray Train run is kept: a directory, or a bucket of the harness's own S3 server, which Ray Train reaches as it
reaches any: through pyarrow.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BUCKET = "s3://"


def given(storage_path: str) -> dict[str, Any]:
    """To a `RunConfig`. Nodes may have been there before the server was, so what their own environment lacks goes with
    the file system."""
    if not storage_path.startswith(BUCKET):
        return {"storage_path": storage_path}
    from pyarrow.fs import S3FileSystem

    system = S3FileSystem(
        access_key=os.environ["AWS_ACCESS_KEY_ID"],
        secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        region=os.environ["AWS_REGION"],
        endpoint_override=os.environ["AWS_ENDPOINT_URL_S3"],
    )
    return {"storage_path": storage_path.removeprefix(BUCKET), "storage_filesystem": system}


@contextmanager
def readable(storage_path: str, name: str) -> Iterator[Path]:
    """The directory of the run, or a copy of it that is there for as long."""
    there = given(storage_path)
    if "storage_filesystem" not in there:
        yield Path(storage_path) / name
        return
    from pyarrow.fs import FileType, copy_files

    system, run = there["storage_filesystem"], f"{there['storage_path']}/{name}"
    with tempfile.TemporaryDirectory() as copy:
        if system.get_file_info(run).type != FileType.NotFound:
            copy_files(run, copy, source_filesystem=system)
        yield Path(copy)
