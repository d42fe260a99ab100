"""A real S3 server of the harness's own: moto's, in this process, on a port of its own. Only the gateway before it is
reached from other machines. Needs the extra `storage`.

It keeps what it is given in memory and checks no signature; nothing of it outlives the process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from shaketable.clusters.protocol import LOOPBACK

KEYS = {
    "AWS_ACCESS_KEY_ID": "shaketable",
    "AWS_SECRET_ACCESS_KEY": "shaketable",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
}
# the first request imports all of it
_ANSWERS_WITHIN_S = 120.0


@contextmanager
def s3_server() -> Iterator[str]:
    """Its endpoint."""
    from moto.server import ThreadedMotoServer

    # else it writes a line to the console for every request
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address=LOOPBACK, port=0, verbose=False)
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
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        region_name=KEYS["AWS_REGION"],
        config=Config(read_timeout=_ANSWERS_WITHIN_S, s3={"addressing_style": "path"}),
    )
    client.create_bucket(Bucket=bucket)
