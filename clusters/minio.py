"""MinIO in a container, for the optional session `nox -s minio`: an S3 server that checks signatures and honours
conditions as the real ones do. Needs a container engine and testcontainers, which nothing else here does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def minio(access_key: str, secret_key: str) -> Iterator[str]:
    """Its endpoint; the container is removed in the end."""
    from testcontainers.minio import MinioContainer

    with MinioContainer(access_key=access_key, secret_key=secret_key) as container:
        yield f"http://{container.get_config()['endpoint']}"
