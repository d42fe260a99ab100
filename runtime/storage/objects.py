"""Object stores through obstore: s3://, gs://, az:// and memory://, each call with deadlines, retries and a count.

Small calls are retried here and nowhere else, so that a conditional create whose answer was lost is seen as that
(promise storage-5). Only the parts of a large upload are retried inside obstore: they may be written twice.
Credentials, region and endpoint come from the environment, as each SDK has it; after a refusal they are read anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any, TypeVar

import obstore
from obstore import exceptions as refused
from obstore.store import AzureStore, GCSStore, MemoryStore, ObjectStore, S3Store, from_url

from shaketable.runtime.errors import ConfigurationError, StorageUnavailable, StorageUnsettled
from shaketable.runtime.storage.retries import retrying

SCHEMES = ("s3", "gs", "az", "memory")
# deadlines of a request: until connected; of few bytes; of a part of many
CONNECT_S, SMALL_S, LARGE_S = (5, 15, 120)
PART = 8 << 20
PARTS_AT_ONCE = 8
# what S3 takes in one request
DELETES_AT_ONCE = 1000
_BACKOFF: dict[str, Any] = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5)}

Done = TypeVar("Done")
_stores: dict[tuple[str, bool], ObjectStore] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """A place in an object store, used like a Path: `ObjectPath("s3://bucket/runs") / "mine"`."""

    url: str

    def __truediv__(self, part: str) -> ObjectPath:
        return ObjectPath(f"{self.url}/{part}")

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(self.url.rpartition("/")[0])

    @property
    def root(self) -> str:
        """Scheme and bucket."""
        scheme, _, rest = self.url.partition("://")
        return f"{scheme}://{rest.partition('/')[0]}"

    @property
    def key(self) -> str:
        return self.url[len(self.root) :].strip("/")


def create(path: ObjectPath, data: bytes) -> bool:
    """One conditional create, not retried: True, or False where the name is taken. Whatever else the store answers,
    StorageUnsettled: the object may have been created, now or later."""
    try:
        with _explained("write", path, StorageUnsettled):
            obstore.put(_store(path), path.key, data, mode="create", use_multipart=False)
    except refused.AlreadyExistsError:
        return False
    return True


def read(path: ObjectPath, within_s: float | None = None) -> bytes:
    """Raises FileNotFoundError, StorageUnavailable."""
    return _retrying("get", path, lambda: bytes(obstore.get(_store(path), path.key).bytes()), within_s)


def stream(path: ObjectPath, start: int, length: int) -> Iterator[memoryview]:
    """A part of a large object in order, in pieces of PART bytes or so; what breaks off is asked for from there on.
    Less than `length` where the object ends before. Raises FileNotFoundError, StorageUnavailable."""
    at, end = start, start + length
    answer: Iterator[Any] | None = None

    def more() -> memoryview:
        nonlocal answer
        # of one that breaks off nothing is left
        rest, answer = answer, None
        if rest is None:
            whole = obstore.get(_store(path, large=True), path.key, options={"range": (at, end)})
            rest = iter(whole.stream(PART))
        piece, answer = next(rest, b""), rest
        return memoryview(piece)

    while at < end and (piece := _retrying("get", path, more)):
        at += len(piece)
        yield piece


def size(path: ObjectPath) -> int:
    """Raises FileNotFoundError, StorageUnavailable."""
    return _retrying("get", path, lambda: obstore.head(_store(path), path.key)["size"])


def write(path: ObjectPath, data: bytes, within_s: float | None = None) -> None:
    """Overwrites. Raises StorageUnavailable."""

    def call() -> None:
        obstore.put(_store(path, large=True), path.key, data, use_multipart=False)

    _retrying("put", path, call, within_s)


def write_parts(path: ObjectPath, parts: Callable[[], Iterator[bytes]]) -> None:
    """A large object in parts of PART bytes, several at once; all of it again where the store gives the upload up."""

    def call() -> None:
        obstore.put(
            _store(path, large=True),
            path.key,
            parts(),
            chunk_size=PART,
            max_concurrency=PARTS_AT_ONCE,
            use_multipart=True,
        )

    _retrying("put", path, call)


def sizes(path: ObjectPath, after: str = "", within_s: float | None = None) -> dict[str, int]:
    """What lies below `path`: name -> bytes, of names behind `after` only. A listing may be late."""
    prefix = f"{path.key}/"

    def call() -> dict[str, int]:
        offset = f"{prefix}{after}" if after else None
        found = obstore.list(_store(path), prefix, offset=offset)
        return {str(meta["path"]).removeprefix(prefix): meta["size"] for some in found for meta in some}

    return _retrying("list", path, call, within_s)


def names(path: ObjectPath) -> list[str]:
    """The directories directly below `path`."""
    call = lambda: obstore.list_with_delimiter(_store(path), f"{path.key}/")["common_prefixes"]  # noqa: E731
    return sorted(str(found).rstrip("/").rpartition("/")[2] for found in _retrying("list", path, call))


def remove(paths: Iterable[ObjectPath]) -> None:
    """In batches, of one bucket. What is not there is removed already. Raises StorageUnavailable."""
    left = iter(paths)
    while batch := list(islice(left, DELETES_AT_ONCE)):
        _remove(batch)


def _remove(batch: list[ObjectPath]) -> None:
    keys = [path.key for path in batch]
    try:
        _retrying("delete", batch[0], lambda: obstore.delete(_store(batch[0]), keys))
    except FileNotFoundError:
        # some stores say so of the first that is not there, and stop
        if len(batch) > 1:
            for path in batch:
                _remove([path])


def check_writable(path: ObjectPath) -> None:
    """ConfigurationError unless objects can be created below `path`, and one that is there is not created again: a
    store that ignores the condition could not keep two drivers apart."""
    probe = path / f".probe-{os.urandom(16).hex()}"
    try:
        retrying("append", lambda: create(probe, b"shaketable"), SMALL_S)
        again = retrying("append", lambda: create(probe, b"shaketable"), SMALL_S)
        remove([probe])
    except StorageUnavailable as error:
        raise ConfigurationError(
            f"nothing can be stored in {path}: {error}. Check bucket, region, endpoint, credentials and rights in this"
            " process's environment (AWS_*, GOOGLE_*, AZURE_*), or choose another RunConfig(storage_path=...)"
        ) from error
    if again:
        raise ConfigurationError(
            f"{path} does not honour conditional writes (If-None-Match: *): the same object was created twice. Without"
            " them two drivers of one run could overwrite each other's records; use a store that has them"
        )


def forget(path: ObjectPath) -> None:
    """Have the next call read credentials and endpoint anew. (What memory:// holds stays.)"""
    with _lock:
        for large in (False, True):
            if not path.root.startswith("memory:"):
                _stores.pop((path.root, large), None)


def _retrying(what: str, path: ObjectPath, call: Callable[[], Done], within_s: float | None = None) -> Done:
    def once() -> Done:
        with _explained(what, path, StorageUnavailable):
            return call()

    return retrying(what, once, within_s)


@contextmanager
def _explained(what: str, path: ObjectPath, kind: type[StorageUnavailable]) -> Iterator[None]:
    """Everything but "there already", and "not there" where something is read, may pass: throttling, an outage, a token
    that has expired, an upload in parts that the store has forgotten."""
    try:
        yield
    except refused.AlreadyExistsError:
        raise
    except (refused.PermissionDeniedError, refused.UnauthenticatedError) as error:
        forget(path)
        raise kind(f"{what} {path}: the store refuses these credentials: {_short(error)}") from error
    except (refused.BaseError, OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and what in ("get", "delete"):
            raise
        raise kind(f"{what} {path}: {_short(error)}") from error


def _short(error: BaseException) -> str:
    return " ".join(str(error).partition("Debug source")[0].split())[:500]


def _store(path: ObjectPath, large: bool = False) -> ObjectStore:
    with _lock:
        key = (path.root, large and not path.root.startswith("memory:"))
        if key not in _stores:
            _stores[key] = _connect(path.root, large)
        return _stores[key]


def _connect(root: str, large: bool) -> ObjectStore:
    if root.startswith("memory:"):
        return MemoryStore()
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    local = root.startswith("s3:") and endpoint.startswith("http://")
    options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=CONNECT_S),
        "timeout": timedelta(seconds=LARGE_S if large else SMALL_S),
        **({"allow_http": True} if local else {}),
    }
    given: dict[str, Any] = {"endpoint": endpoint} if endpoint and root.startswith("s3:") else {}
    retries: dict[str, Any] = {"max_retries": 8 if large else 0, "backoff": _BACKOFF}
    retries["retry_timeout"] = timedelta(seconds=60)
    store = from_url(root, client_options=options, retry_config=retries, config=given or None)  # type: ignore[call-overload]
    assert isinstance(store, (S3Store, GCSStore, AzureStore)), f"{root} is one of {SCHEMES}"
    return store
