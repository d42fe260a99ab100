"""How a stored history shows that it is what the harness wrote: every line carries a running digest.

The digest of a line is made from the line and from the digest of the line before it, so a line that was changed,
moved, doubled or taken out no longer fits. The first line also says how many lines there are, so a cut end is seen.
This finds damage and careless edits. It is no signature: whoever rewrites every digest is not found out.

A history without digests can be read too: older versions wrote none, and one process alone (a witness, a Recorder)
writes none either.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shaketable.chaos.history.events import AnyEvent, encode, read_events

DIGEST_BYTES = 8
_SEAL = re.compile(rb',"chain":"([0-9a-f]{16})"}$')
_COUNT = re.compile(rb',"lines":(\d+)}$')


@dataclass(frozen=True, slots=True)
class Stored:
    """What a history file holds. `sealed`: its lines carry digests; `damage`: what is wrong with them, or empty."""

    events: list[AnyEvent]
    sealed: bool
    damage: str


def sealed(events: Sequence[AnyEvent]) -> bytes:
    """The content of a history file: one line an event, each with its running digest."""
    return b"".join(_sealed([encode(event).rstrip(b"\n") for event in events]))


def read_history(path: Path) -> Stored:
    """Raises HistoryError for a line that is no event."""
    lines = path.read_bytes().split(b"\n")
    # A last line without a newline is no line: its writer was killed, or the file was cut.
    is_sealed = any(map(_SEAL.search, lines[:-1]))
    return Stored(read_events(path), is_sealed, _damage(lines[:-1]) if is_sealed else "")


def _sealed(lines: Sequence[bytes]) -> Iterator[bytes]:
    digest = b""
    for number, line in enumerate(lines):
        counted = line if number else b'%b,"lines":%d}' % (line[:-1], len(lines))
        digest = _digest(digest, counted)
        yield b'%b,"chain":"%b"}\n' % (counted[:-1], digest)


def _digest(before: bytes, line: bytes) -> bytes:
    return hashlib.blake2b(before + line, digest_size=DIGEST_BYTES).hexdigest().encode()


def _damage(lines: Sequence[bytes]) -> str:
    digest = b""
    for number, line in enumerate(lines, 1):
        content, found = _unsealed(line)
        digest = _digest(digest, content)
        if digest != found:
            return f"line {number} does not fit the lines before it: one was changed, moved, doubled or removed"
    said = _COUNT.search(_unsealed(lines[0])[0])
    if said is not None and int(said[1]) != len(lines):
        return f"it has {len(lines)} lines, its first line says {int(said[1])}"
    return ""


def _unsealed(line: bytes) -> tuple[bytes, bytes]:
    """The line as it was before it was sealed, and the digest it carries (empty: none)."""
    seal = _SEAL.search(line)
    return (line[: seal.start()] + b"}", seal[1]) if seal else (line, b"")
