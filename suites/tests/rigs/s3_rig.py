"""A real S3 server for tests: moto's, on a port of its own, with a bucket of its own for each test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from shaketable.chaos.storage import server
from shaketable.clusters.minio import minio


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Its endpoint. With SHAKETABLE_MINIO set (`nox -s minio`) it is MinIO's, in a container."""
    pytest.importorskip("moto.server")
    keys = server.KEYS["AWS_ACCESS_KEY_ID"], server.KEYS["AWS_SECRET_ACCESS_KEY"]
    with minio(*keys) if os.environ.get("SHAKETABLE_MINIO") else server.s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """`s3://<new bucket>` on that server, as this process's environment has it."""
    from shaketable.runtime.storage import objects

    for name, value in server.KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    bucket = f"test-{uuid.uuid4().hex[:12]}"
    server.make_bucket(s3_server, bucket)
    yield f"s3://{bucket}"
    objects.forget(objects.ObjectPath(f"s3://{bucket}"))
