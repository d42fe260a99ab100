"""Where runs live: checking `storage_path`, and the numbered records of a log."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from shaketable.runtime.errors import ConfigurationError, StorageError
from shaketable.runtime.storage import objects
from shaketable.runtime.storage.local import LocalStore, create_once, make_directory
from shaketable.runtime.storage.object import ObjectStore
from shaketable.runtime.storage.objects import ObjectPath
from shaketable.runtime.storage.store import RunPath, Store

# below the directory of a run
LOG, CHECKPOINTS = "log", "checkpoints"


def store_at(path: RunPath) -> Store:
    """Touches nothing."""
    return ObjectStore(path) if isinstance(path, ObjectPath) else LocalStore(path)


def parse_storage_path(storage_path: str | os.PathLike[str]) -> RunPath:
    """An absolute local directory (from a path, `~/...` or `file:///...`), or a place in an object store
    (`s3://bucket/prefix`, gs://, az://, and memory:// for tests within one process)."""
    text = os.fspath(storage_path)
    if not text or "\0" in text:
        raise ConfigurationError(f"RunConfig.storage_path is {text!r}: give a directory that all nodes can reach")
    scheme, separator, _ = text.partition("://")
    if not separator:
        return Path(text).expanduser().resolve()
    url = urlsplit(text)
    if scheme in objects.SCHEMES:
        return _object_path(text)
    if scheme.lower() != "file":
        raise ConfigurationError(
            f"RunConfig.storage_path is {scheme}://...: use a directory that all nodes can reach (a path or file://)"
            f" or an object store ({', '.join(f'{known}://' for known in objects.SCHEMES)})"
        )
    if url.netloc not in ("", "localhost") or not url.path.startswith("/"):
        raise ConfigurationError(f"RunConfig.storage_path is {text!r}: write file:///absolute/path, without a host")
    return Path(unquote(url.path)).resolve()


def _object_path(text: str) -> ObjectPath:
    scheme, _, rest = text.partition("://")
    parts = rest.rstrip("/").split("/")
    if not parts[0] or "" in parts or {".", ".."} & set(parts) or any(sign in text for sign in "?#@"):
        raise ConfigurationError(
            f"RunConfig.storage_path is {text!r}: write {scheme}://bucket/prefix, without credentials or parameters"
        )
    return ObjectPath(f"{scheme}://{'/'.join(parts)}")


def locate_run(storage_path: str | os.PathLike[str], name: str) -> RunPath:
    """The directory of the run `(storage_path, name)`. Names never lead out of `storage_path`."""
    check_name("RunConfig.name", name)
    return parse_storage_path(storage_path) / name


def check_name(what: str, name: str) -> None:
    """ConfigurationError unless `name` is one of a file or directory, and nothing else."""
    plain = bool(name) and name not in (".", "..") and "/" not in name and name.isprintable()
    if not plain or len(os.fsencode(name)) > 200:
        raise ConfigurationError(f"{what} is {name!r}: use a plain name of at most 200 bytes, without '/'")


def check_writable(directory: RunPath) -> None:
    """ConfigurationError unless files can really be created, synced and linked in `directory`, which is made; or unless
    objects can be created, each once."""
    if isinstance(directory, ObjectPath):
        objects.check_writable(directory)
        return
    probe = directory / f".probe-{uuid.uuid4().hex}"
    try:
        make_directory(directory)
        create_once(probe, b"shaketable")
    except (OSError, StorageError) as error:
        raise ConfigurationError(
            f"the storage path {directory} is not writable for uid {os.geteuid()}: {error}."
            " Create it, change its owner or rights, free some space, or choose another RunConfig(storage_path=...)"
        ) from error
    finally:
        with suppress(OSError):
            probe.unlink()


def check_rights(run_path: RunPath) -> None:
    """ConfigurationError where the log of a run that is there already is somebody else's. While a run goes on, rights
    that are taken away are waited for; at its launch nobody is about to give them."""
    log = run_path / LOG
    if isinstance(log, Path) and log.exists() and not os.access(log, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigurationError(
            f"the run log {log} cannot be read and written by uid {os.geteuid()}: change its owner or rights, launch as"
            " its owner, or choose another RunConfig(name=...)"
        )


class Records(Protocol):
    """Numbered records, each created once and never changed or deleted. `at_once`: how many are best asked for at the
    same time."""

    @property
    def at_once(self) -> int: ...

    def create(self, number: int, data: bytes) -> bool: ...
    def get(self, number: int, within_s: float | None = None) -> bytes | None: ...
    def highest(self, after: int = 0) -> int: ...
    def where(self, number: int) -> str: ...


class StoredRecords:
    """Records as `log/<number, 10 digits>.json` of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def at_once(self) -> int:
        return self._store.reads_at_once

    def create(self, number: int, data: bytes) -> bool:
        """True: created and durable. False: the number was taken, perhaps by ourselves where an answer was lost. Raises
        StorageError, StorageUnsettled."""
        return self._store.create(_key(number), data)

    def get(self, number: int, within_s: float | None = None) -> bytes | None:
        try:
            return self._store.read(_key(number), within_s)
        except FileNotFoundError:
            return None

    def highest(self, after: int = 0) -> int:
        """The highest number that a listing shows, 0 for none. A listing may be late: never the only witness, and what
        it costs to list may depend on how many there are behind `after`."""
        names = self._store.names(LOG, f"{after:010d}.json")
        numbers = (int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())
        return max(numbers, default=0)

    def where(self, number: int) -> str:
        return self._store.where(_key(number))


def records_of(run_path: RunPath) -> StoredRecords:
    """The run log's own. Creates nothing."""
    return StoredRecords(store_at(run_path))


def _key(number: int) -> str:
    return f"{LOG}/{number:010d}.json"
