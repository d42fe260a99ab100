"""Which tests share an xdist worker: those of one `xdist_group`, with the clusters that they share.

pytest-xdist 3.8 hands the groups on as a suffix of test ids, which pytest 9.2 does not take over. The marks are then
ignored, and nobody says so (pytest-xdist issue 1386). So the group of a test is read from its file.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from xdist.scheduler import LoadGroupScheduling

GROUP = re.compile(r"xdist_group\(\"([\w-]+)\"\)")


class Grouping(LoadGroupScheduling):  # type: ignore[misc]
    """Sends a group to one worker, whether xdist has marked the test ids or not."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        if scope != nodeid:
            return scope
        file = Path(self.config.rootpath, nodeid.partition("::")[0])
        return group_of(file) or nodeid


@functools.cache
def group_of(file: Path) -> str:
    """The first group that the file names; empty without one. It holds for all tests of the file."""
    found = GROUP.search(file.read_text())
    return found[1] if found else ""
