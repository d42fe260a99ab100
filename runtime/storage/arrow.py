"""Ray Train's file systems are pyarrow's; ours are paths and URLs. Between the two, for who moves. Needs pyarrow, which
nothing else in the runtime needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shaketable.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow.fs

# as pyarrow calls them
_SCHEMES = {"s3": "s3", "gcs": "gs", "abfs": "az"}


def filesystem_of(path: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """Of a path or URL, and what it is there. Credentials come from the environment. Raises ConfigurationError."""
    try:
        import pyarrow.fs
    except ImportError as error:
        raise ConfigurationError(f"a pyarrow file system was asked for: {error}; pip install pyarrow") from error
    found: tuple[pyarrow.fs.FileSystem, str] = pyarrow.fs.FileSystem.from_uri(path)
    return found


def local_path(filesystem: Any, path: str) -> str:
    """`path` of a local pyarrow file system as a path; ConfigurationError for any other, and nothing is guessed about
    its endpoint and credentials."""
    if filesystem is None:
        return path
    kind = getattr(filesystem, "type_name", type(filesystem).__name__)
    if kind == "local":
        return path
    if kind == "subtree" and filesystem.base_fs.type_name == "local":
        return f"{filesystem.base_path.rstrip('/')}/{path.lstrip('/')}"
    scheme = next((scheme for prefix, scheme in _SCHEMES.items() if kind.startswith(prefix)), None)
    instead = (
        f'storage_path="{scheme}://{path}" and the credentials and endpoint in the environment'
        if scheme is not None
        else "a mounted directory, or an s3://, gs:// or az:// URL as storage_path"
    )
    raise ConfigurationError(f"storage_filesystem is a pyarrow file system of kind {kind!r}: instead, use {instead}")


def readable_url(filesystem: Any, path: str) -> str:
    """The same, to read what is there: of an object store the URL, read with what the environment has."""
    kind = str(getattr(filesystem, "type_name", ""))
    scheme = next((scheme for prefix, scheme in _SCHEMES.items() if kind.startswith(prefix)), None)
    return f"{scheme}://{path}" if scheme is not None else local_path(filesystem, path)
