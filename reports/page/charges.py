"""The budget ledger as a table: how each attempt ended, what that was charged to, what was spent after it. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from shaketable.chaos.history.entries import End, Opening
from shaketable.chaos.history.view import History


@dataclass(frozen=True, slots=True)
class Charge:
    """One ending. `spent` of `limit` of its account after it; `limit` -1: unlimited, None: the account has none.
    `account` empty: it costs nothing."""

    at_s: float
    term: int
    attempt: int
    cause: str
    account: str
    spent: int
    limit: int | None
    detail: str

    @property
    def left(self) -> str:
        """`1 of 2`, `3 of any number`."""
        if not self.account:
            return ""
        most = "any number" if self.limit == -1 else "?" if self.limit is None else str(self.limit)
        return f"{self.spent} of {most}"


def charges(history: History) -> tuple[Charge, ...]:
    """In the order that counts. A run that is opened anew after it had failed begins with fresh budgets."""
    zero_s = min((event.at_s for event in history.events), default=0.0)
    spent: Counter[str] = Counter()
    rows = []
    for entry in history.entries:
        if isinstance(entry, Opening) and entry.reopened:
            spent.clear()
        if isinstance(entry, End):
            spent[entry.account or ""] += 1
            rows.append(_charge(history, entry, spent[entry.account or ""], zero_s))
    return tuple(rows)


def _charge(history: History, end: End, spent: int, zero_s: float) -> Charge:
    account = end.account or ""
    limit = getattr(history.settings(end.term), account, None) if account else None
    return Charge(end.at_s - zero_s, end.term, end.attempt, end.cause, account, spent, limit, end.detail)
