"""Texts from users' code, made fit to be told: an exception whose `__str__` raises, a name that is not UTF-8. Pure."""

from __future__ import annotations

import traceback
from typing import Any


def told(text: str) -> str:
    """`text` as UTF-8 can say it; what it cannot say is escaped (a lone surrogate becomes `\\udcff`)."""
    return text.encode("utf-8", "backslashreplace").decode()


def described(error: BaseException) -> str:
    """Type and message in one line; never raises."""
    return told(f"{type(error).__name__}: {_said(error)}")


def traced(error: BaseException) -> str:
    """The traceback; never raises."""
    try:
        return told("".join(traceback.format_exception(error)))
    except Exception as broken:  # noqa: BLE001 - whatever the user's `__str__`, `__cause__` or `__notes__` does
        frames = "".join(traceback.format_tb(error.__traceback__))
        lost = f"(its traceback could not be made: {type(broken).__name__})"
        return told(f"Traceback (most recent call last):\n{frames}{described(error)} {lost}\n")


def _said(error: BaseException) -> Any:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - whatever the user's `__str__` does
        return f"(its __str__ raised {type(broken).__name__})"
