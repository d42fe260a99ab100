"""What the error of a failed run says: the budget that was spent, its limit, the charges, and the ending with its
culprit. A part of failure-budget, for the bundled runtime, whose errors name all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from shaketable.chaos.history.entries import End
from shaketable.chaos.history.events import RunEnded
from shaketable.chaos.history.view import History

_SPENT = re.compile(
    r"(?P<limit>max_\w+) is (?P<allowed>-?\d+)(?: on tier '(?P<tier>[^']*)')? and (?P<count>\d+) were charged"
)
_LAST = re.compile(
    r"the last by an attempt that ended with (?P<cause>\w+)(?: \(rank (?P<rank>\d+) on node (?P<node>\w+)\))?:"
)
# `fit()` may say it in more words, and cut what is long
SAME = 60


def wrong_words(
    error: str, *, allowed: Callable[[str], int], counted: Callable[[str], int], beyond: bool, last: End | None
) -> Iterator[str]:
    """What is not so. `beyond`: a limit was exceeded, so the error has to name it."""
    spent = _SPENT.match(error)
    if spent is None:
        if beyond:
            yield f"a limit was exceeded, but the error does not name it: {error[:SAME]!r}"
        return
    name = spent["limit"]
    if int(spent["allowed"]) != allowed(name):
        yield f"the error says that {name} is {spent['allowed']}, it is {allowed(name)}"
    if int(spent["count"]) != counted(name):
        yield f"the error says that {spent['count']} were charged to {name}, {counted(name)} were"
    if counted(name) <= allowed(name):
        yield f"the error blames {name}, which was not exceeded"
    said = _LAST.search(error)
    if said is None or last is None:
        # an earlier driver has seen it
        return
    if said["cause"] != last.cause:
        yield f"the error says that the last attempt ended {said['cause']}, it ended {last.cause} ({last.place})"
    if said["rank"] != (None if last.rank is None else str(last.rank)):
        yield f"the error blames rank {said['rank']}, {last.place} rank {last.rank}"
    if said["node"] is not None and not (last.node_id or "?").startswith(said["node"]):
        yield f"the error blames node {said['node']}, {last.place} node {str(last.node_id)[:8]}"


def told_otherwise(history: History, term: int, error: str) -> str | None:
    """`fit()` raised something else than what the log holds."""
    first = error.strip().partition("\n")[0][:SAME]
    for ended in history.all(RunEnded):
        if ended.term == term and ended.outcome == "failed" and first not in (ended.error or ""):
            return f"the log says {first!r}, fit() raised {(ended.error or '')[:SAME]!r}"
    return None
