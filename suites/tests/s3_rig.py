"""A real S3 server for tests: moto's, on a port of its own, with a bucket of its own for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from shaketable.chaos.faults.storage import server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Its endpoint."""
    pytest.importorskip("moto.server")
    with server.s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """`s3://<new bucket>` on that server, as this process's environment has it."""
    from shaketable.runtime import objects

    for name, value in server.KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    bucket = f"test-{uuid.uuid4().hex[:12]}"
    server.make_bucket(s3_server, bucket)
    yield f"s3://{bucket}"
    objects.forget(objects.ObjectPath(f"s3://{bucket}"))
