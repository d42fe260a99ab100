"""A real S3 server for tests: moto's, on a port of its own, with a bucket of its own for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Its endpoint."""
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """`s3://<new bucket>` on that server, as this process's environment has it."""
    from shaketable.runtime import objects

    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    bucket = f"s3://test-{uuid.uuid4().hex[:12]}"
    make_bucket(s3_server, bucket)
    yield bucket
    objects.forget(objects.ObjectPath(bucket))


def make_bucket(endpoint: str, bucket: str) -> None:
    import urllib.request

    url = f"{endpoint}/{bucket.removeprefix('s3://')}"
    # moto checks no signature, but takes the region from it.
    headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request"}
    urllib.request.urlopen(
        urllib.request.Request(url, method="PUT", headers=headers), timeout=120
    ).close()  # the first one imports all of it
