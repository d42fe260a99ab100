"""A disk that keeps only what was synced, and a process that can be killed at any of its calls to it.

`Disk.traced()` notes every call with which this process changes files below a directory. `survivors(n)` is what a power
cut behind the first n of them leaves in the worst case: names whose directory was synced since, with the content that
was synced, or torn. `kill_at` raises `Killed` instead of the call of that number.
"""

from __future__ import annotations

import io
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

TORN = b"torn"


def can_mount() -> bool:
    """Whether this process may mount a disk (`storage: disk`)."""
    tried = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True)
    return os.geteuid() == 0 and tried.returncode == 0


class Killed(BaseException):
    """SIGKILL: nothing catches it, nothing is cleaned up by those who do not expect it."""


@dataclass
class Disk:
    root: Path
    calls: list[tuple[str, ...]] = field(default_factory=list)
    kill_at: int | None = None
    dead: bool = False
    # what each file held when it was synced last
    content: dict[str, bytes] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @contextmanager
    def traced(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(io, "open", self._opening(io.open))
            patch.setattr(os, "fsync", self._syncing(os.fsync))
            for name in ("link", "rename", "replace", "mkdir", "unlink", "rmdir"):
                patch.setattr(os, name, self._noting(name, getattr(os, name)))
            yield

    def _note(self, *call: str) -> None:
        with self._lock:
            if self.dead or len(self.calls) == self.kill_at:
                # also what it would still tidy up on its way out
                self.dead = True
                raise Killed(call)
            self.calls.append(call)

    def _noting(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*paths: Any, **more: Any) -> Any:
            if self._ours(paths[0]) and more.get("dir_fd") is None:
                self._note(name, *(os.fspath(path) for path in paths if not isinstance(path, int)))
            return original(*paths, **more)

        return call

    def _opening(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
            if not isinstance(path, int) and set(mode) & set("wxa") and self._ours(path):
                self._note("create", os.fspath(path))
            return original(path, mode, *more, **named)

        return call

    def _syncing(self, original: Callable[[int], None]) -> Callable[[int], None]:
        def call(descriptor: int) -> None:
            path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
            if self._ours(path):
                self._note("fsync", path)
                if Path(path).is_file():
                    self.content[path] = Path(path).read_bytes()
            original(descriptor)

        return call

    def _ours(self, path: Any) -> bool:
        return not isinstance(path, int) and os.fspath(path).startswith(str(self.root))

    # ---- the power cut

    def survivors(self, count: int) -> dict[str, bytes]:
        """Path below the root -> content, after a power cut behind the first `count` calls."""
        # entry -> inode, by the name it was created under; directories too
        now: dict[str, str] = {}
        kept: dict[str, str] = {}
        synced: set[str] = set()
        for name, *paths in self.calls[:count]:
            match name:
                case "create" | "mkdir":
                    now[paths[0]] = paths[0]
                    synced.discard(paths[0])
                case "link":
                    now[paths[1]] = now[paths[0]]
                case "rename" | "replace":
                    now[paths[1]] = now.pop(paths[0])
                case "unlink" | "rmdir":
                    now.pop(paths[0], None)
                case "fsync" if paths[0] in now and paths[0] in self.content:
                    synced.add(now[paths[0]])
                case "fsync":
                    kept = {entry: inode for entry, inode in kept.items() if _above(entry) != paths[0]}
                    kept |= {entry: inode for entry, inode in now.items() if _above(entry) == paths[0]}
        found = {}
        for entry, inode in kept.items():
            if inode in self.content and self._reachable(entry, kept):
                found[str(Path(entry).relative_to(self.root))] = self.content[inode] if inode in synced else TORN
        return found

    def _reachable(self, entry: str, kept: dict[str, str]) -> bool:
        above = _above(entry)
        return above == str(self.root) or (above in kept and self._reachable(above, kept))


def _above(entry: str) -> str:
    return str(Path(entry).parent)
