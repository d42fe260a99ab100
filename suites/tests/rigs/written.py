"""Parts of files that are made from the code: compared with it in a test, and written anew by a command."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def part(path: Path, name: str) -> str:
    """What stands between `<!-- name: begin -->` and `<!-- name: end -->`."""
    begin, end = _marks(name)
    return path.read_text().split(begin)[1].split(end)[0]


def write_part(path: Path, name: str, text: str) -> None:
    (begin, end), old = _marks(name), path.read_text()
    path.write_text(old.split(begin)[0] + begin + text + end + old.split(end)[1])


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
