"""What looks like a secret never enters the history. Pure.

A text is one where its key says so (`password`, `hf_token`), or where it is a user and a password inside a URL. Numbers
are never secrets, whatever they are called.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

REDACTED = "<redacted>"
_SECRET_KEY = re.compile(
    r"(^|[_\-.])(secrets?|token|password|passwd|passphrase|credentials?|authorization|"
    r"(api|access|private|secret|account)_?key)$",
    re.IGNORECASE,
)
_CREDENTIALS_IN_URL = re.compile(r"(?<=://)[^/@\s]+:[^/@\s]+(?=@)")


def redacted(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same mapping, JSON values only, without what looks like a secret."""
    return {key: _redacted(value, key) for key, value in values.items()}


def _redacted(value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        return redacted(value)
    if isinstance(value, list):
        return [_redacted(item, key) for item in value]
    if not isinstance(value, str):
        return value
    return REDACTED if _is_secret(key) else _CREDENTIALS_IN_URL.sub(REDACTED, value)


@functools.lru_cache(maxsize=256)
def _is_secret(key: str) -> bool:
    return _SECRET_KEY.search(key) is not None
