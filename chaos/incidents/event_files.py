"""Events that others wrote, found at a path: Ray's export files, those of KubeRay's History Server, and what
`kubectl get events -o json` printed.

Each is a file, or a directory of them: JSON, or one JSON object a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.incidents import kubernetes_events, ray_events
from shaketable.chaos.incidents.logged_losses import Logged

MAX_BYTES = 256 << 20
SUFFIXES = (".log", ".json", ".jsonl", "")
EXPECTED = (
    "or events of others: a directory export_events of Ray (RAY_enable_export_api_write=1), the events of a session in"
    " KubeRay's History Server, or what `kubectl get events -o json` printed"
)
READERS: tuple[tuple[Callable[[Any], bool], Callable[[Iterable[Mapping[str, Any]]], Logged]], ...] = (
    (ray_events.is_event, ray_events.read),
    (kubernetes_events.is_event, kubernetes_events.read),
)


def logged(path: Path) -> Logged | None:
    """None where there are no such events. Raises ExperimentError for a file that has gone wrong half-way."""
    records = list(_records(path))
    for knows, read in READERS:
        if known := [record for record in records if knows(record)]:
            return read(known)
    return None


def _records(path: Path) -> Iterator[Mapping[str, Any]]:
    for file in _files(path):
        yield from _in_file(file)


def _files(path: Path) -> list[Path]:
    """Of Ray's export only what tells of workers, nodes and runs: of tasks there are very many."""
    if path.is_file():
        return [path]
    files = sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file())
    return [each for each in files if "EXPORT_TASK" not in each.name]


def _in_file(file: Path) -> Iterator[Mapping[str, Any]]:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise ExperimentError(
                f"{file}: larger than {MAX_BYTES >> 20} MiB: give the part in which something happened"
            )
        content = file.read_bytes()
    except OSError as error:
        raise ExperimentError(f"{file}: cannot be read: {error.strerror or error}") from error
    if content.lstrip()[:1] not in (b"{", b"["):
        return
    try:
        whole = msgspec.json.decode(content)
    except msgspec.DecodeError:
        yield from _in_lines(content, file)
        return
    items = whole.get("items") if isinstance(whole, dict) and isinstance(whole.get("items"), list) else whole
    yield from (each for each in (items if isinstance(items, list) else [items]) if isinstance(each, dict))


def _in_lines(content: bytes, file: Path) -> Iterator[Mapping[str, Any]]:
    """The last line may be cut off: who wrote it was killed."""
    lines = content.splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            if number == len(lines):
                return
            raise ExperimentError(f"{file}:{number}: not JSON: {error}") from error
        if isinstance(record, dict):
            yield record
