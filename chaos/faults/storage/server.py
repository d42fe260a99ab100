"""A real S3 server of the harness's own: moto's, in this process, on a port of its own. Needs the extra `storage`.

It keeps what it is given in memory and checks no signature, so any keys will do; nothing of it outlives the process.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
}
_ANSWERS_WITHIN_S = 120.0  # the first request imports all of it


@contextmanager
def s3_server() -> Iterator[str]:
    """Its endpoint."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def environment(endpoint: str) -> dict[str, str]:
    """What points an S3 client at that endpoint, whatever its user has set otherwise."""
    return {**KEYS, "AWS_ENDPOINT_URL": endpoint, "AWS_ENDPOINT_URL_S3": endpoint}


def make_bucket(endpoint: str, bucket: str) -> None:
    # moto checks no signature, but takes the region from it.
    headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request"}
    request = urllib.request.Request(f"{endpoint}/{bucket}", method="PUT", headers=headers)
    urllib.request.urlopen(request, timeout=_ANSWERS_WITHIN_S).close()
