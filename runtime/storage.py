"""Where runs live: checking `storage_path`, and the numbered records of a log, on a local path or in an object store.

Durable means that it survives a power cut: on a local path the data of a file is fsynced before its name appears, and
the directory after. An object store is durable once it has answered.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from shaketable.runtime import objects
from shaketable.runtime.errors import ConfigurationError, StorageError, StorageUnavailable, StorageUnsettled
from shaketable.runtime.objects import ObjectPath

RunPath = Path | ObjectPath
LOG, CHECKPOINTS = "log", "checkpoints"  # below the directory of a run
_TEMPORARY = ".tmp"
_LINK_TRIES = 1000  # each lost to another driver that opens the run: it gets further


def parse_storage_path(storage_path: str | os.PathLike[str]) -> RunPath:
    """An absolute local directory (from a path, `~/...` or `file:///...`), or a place in an object store
    (`s3://bucket/prefix`, gs://, az://, and memory:// for tests within one process)."""
    text = os.fspath(storage_path)
    if not text or "\0" in text:
        raise ConfigurationError(
            f"RunConfig.storage_path is {text!r}: give a directory that all nodes can reach"
        )
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
        raise ConfigurationError(
            f"RunConfig.storage_path is {text!r}: write file:///absolute/path, without a host"
        )
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
    plain = bool(name) and name not in (".", "..") and "/" not in name and name.isprintable()
    if not plain or len(os.fsencode(name)) > 200:
        raise ConfigurationError(
            f"RunConfig.name is {name!r}: use a plain name of at most 200 bytes, without '/'"
        )
    return parse_storage_path(storage_path) / name


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


def fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Like mkdir -p, durable: the entry of each new directory is synced in its parent."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    fsync_directory(directory.parent)


def create_once(path: Path, data: bytes) -> bool:
    """Create `path` with `data`, whole and durable; False if it exists already, which then is durable too.

    Never `O_EXCL`: a kill in the middle of the write would leave a torn file that blocks the name for good.
    StorageError: not created. StorageUnsettled: it may or may not have been.
    """
    for _ in range(_LINK_TRIES):
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}{_TEMPORARY}")
        try:
            _write_synced(temporary, data)
            created = _link(temporary, path)
        finally:
            with suppress(OSError):  # else it is swept when the log is next opened
                temporary.unlink(missing_ok=True)
        if created is not None:
            with _unsettled(path):
                fsync_directory(path.parent)
            return created
    raise StorageError(
        f"{path} could not be created: its temporary file was removed {_LINK_TRIES} times by somebody"
    )


def _write_synced(temporary: Path, data: bytes) -> None:
    try:
        with temporary.open("xb", buffering=0) as file:
            if file.write(data) != len(data):  # a full disk may take a part without an error
                raise OSError(f"only a part of the {len(data)} bytes was written; is the disk full?")
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageUnavailable(
            f"nothing was written: {error}. Free space or repair {temporary.parent}"
        ) from error


def _link(temporary: Path, path: Path) -> bool | None:
    """True: linked; False: the name is taken; None: the temporary is gone, another driver's opening swept it."""
    try:
        with _unsettled(path):
            os.link(temporary, path)
    except FileExistsError:
        return False
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise StorageUnavailable(
            f"{path} could not be linked: {error}. Give back the right to write there; the run log needs hard links"
        ) from error
    return True


@contextmanager
def _unsettled(path: Path) -> Iterator[None]:
    try:
        yield
    except (FileExistsError, FileNotFoundError, PermissionError):
        raise
    except OSError as error:
        raise StorageUnsettled(f"it is not known whether {path} was written: {error}") from error


class Records(Protocol):
    """Numbered records, each created once and never changed or deleted."""

    def create(self, number: int, data: bytes) -> bool: ...
    def get(self, number: int, within_s: float | None = None) -> bytes | None: ...
    def highest(self, after: int = 0) -> int: ...
    def where(self, number: int) -> str: ...


class LocalRecords:
    """Records as `<directory>/<number, 10 digits>.json`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def create(self, number: int, data: bytes) -> bool:
        """True: created and durable. False: the number was taken. Raises StorageError, StorageUnsettled."""
        return create_once(self._path(number), data)

    def get(self, number: int, within_s: float | None = None) -> bytes | None:
        try:
            return self._path(number).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(
                f"record {number} cannot be read: {error}. Repair the storage and relaunch"
            ) from error

    def highest(self, after: int = 0) -> int:
        """The highest number that a listing shows, 0 for none. A listing may be late: never the only witness, and what
        it costs to list may depend on how many there are behind `after`."""
        try:
            names = [path.name for path in self.directory.iterdir()]
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise StorageError(
                f"the run log cannot be listed: {error}. Repair the storage and relaunch"
            ) from error
        return _highest(names)

    def where(self, number: int) -> str:
        return str(self._path(number))

    def sweep(self) -> list[str]:
        """Remove temporaries that killed writers left. A living writer that loses one writes it again."""
        stale = [
            path
            for path in self.directory.iterdir()
            if path.name.startswith(".") and path.suffix == _TEMPORARY
        ]
        for path in stale:
            path.unlink(missing_ok=True)
        return [path.name for path in stale]

    def _path(self, number: int) -> Path:
        return self.directory / f"{number:010d}.json"


class ObjectRecords:
    """Records as `<place>/<number, 10 digits>.json` in an object store."""

    def __init__(self, place: ObjectPath) -> None:
        self.place = place

    def create(self, number: int, data: bytes) -> bool:
        """As LocalRecords.create. False is no more than "taken": a lost answer of our own may have done it."""
        return objects.create(self._path(number), data)

    def get(self, number: int, within_s: float | None = None) -> bytes | None:
        try:
            return objects.read(self._path(number), within_s)
        except FileNotFoundError:
            return None

    def highest(self, after: int = 0) -> int:
        return _highest(objects.sizes(self.place, f"{after:010d}.json"))

    def where(self, number: int) -> str:
        return str(self._path(number))

    def sweep(self) -> list[str]:
        """Nothing: an object is there whole or not at all."""
        return []

    def _path(self, number: int) -> ObjectPath:
        return self.place / f"{number:010d}.json"


def records_of(run_path: RunPath) -> LocalRecords | ObjectRecords:
    """The run log's own. Creates nothing."""
    log = run_path / LOG
    return ObjectRecords(log) if isinstance(log, ObjectPath) else LocalRecords(log)


def _highest(names: Iterable[str]) -> int:
    return max(
        (int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit()), default=0
    )
