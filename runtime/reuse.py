"""May this configuration go on with a run that was begun with another? Pure.

Only what would make the checkpoints meaningless is compared; everything else may change and is recorded. What looks
like a secret is neither stored nor compared, so a rotated token is no difference.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from shaketable.runtime.errors import ConfigurationError

COMPARED = ("framework", "accelerator", "topology", "train_loop_config")
REDACTED = "<redacted>"
_MISSING = "(not set)"
_SHOWN_CHARACTERS = 60
_SECRET_KEY = re.compile(
    r"(^|[_\-.])(secrets?|token|password|passwd|passphrase|credentials?|authorization|api_?key|access_?key|"
    r"private_?key|secret_?key|account_?key)$",
    re.IGNORECASE,
)
_CREDENTIALS_IN_URL = re.compile(r"(?<=://)[^/@\s]+:[^/@\s]+(?=@)")


def recordable(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as it goes into the log: plain JSON without secrets. What JSON cannot say is named by type."""
    return {str(key): _plain(value, str(key)) for key, value in configuration.items()}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted key -> (old, new), of two recordable configurations."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    keys = [*before, *(key for key in after if key not in before)]
    pairs = {key: (before.get(key, _MISSING), after.get(key, _MISSING)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def check_reuse(
    run: str, old: Mapping[str, Any], new: Mapping[str, Any], on_config_change: Literal["error", "accept"]
) -> list[str]:
    """Keys that changed, for the record. ConfigurationError, with the difference, if checkpoints would mean nothing."""
    if old == new:
        return []
    changed = differences(old, new)
    compared = [key for key in COMPARED if key != "train_loop_config" or on_config_change != "accept"]
    wrong = {key: pair for key, pair in changed.items() if key.split(".")[0] in compared}
    if wrong:
        raise ConfigurationError(_explain(run, wrong))
    return list(changed)


def _explain(run: str, wrong: Mapping[str, tuple[Any, Any]]) -> str:
    width = max(map(len, wrong))
    lines = [f"  {key:<{width}}  {_show(was)} -> {_show(now)}" for key, (was, now) in wrong.items()]
    advice = "Use another RunConfig(name=...), or the old values"
    if all(key.startswith("train_loop_config") for key in wrong):
        advice += ', or RunConfig(on_config_change="accept") if its checkpoints still mean the same'
    head = f"the run {run} was begun with another configuration; its checkpoints would mean nothing with this one:"
    return "\n".join([head, *lines, advice + "."])


def _show(value: Any) -> str:
    text = value if value in (_MISSING, REDACTED) else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        elif prefix or (value is not None and value != {}):  # an empty section is the same as none
            yield f"{prefix}{key}", value


def _plain(value: Any, key: str) -> Any:
    if value is None or isinstance(value, int | float):  # never a secret, whatever its name
        return _plain_leaf(value)
    if isinstance(value, Mapping):
        return {str(inner): _plain(item, str(inner)) for inner, item in value.items()}
    if _secret(key):
        return REDACTED
    if isinstance(value, list | tuple):
        return [_plain(item, key) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(item, key) for item in value), key=repr)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name), item.name) for item in dataclasses.fields(value)}
    return _plain_leaf(value)


@functools.lru_cache(maxsize=256)
def _secret(key: str) -> bool:
    return _SECRET_KEY.search(key) is not None


def _plain_leaf(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _CREDENTIALS_IN_URL.sub(REDACTED, str(value))
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)  # JSON has no nan
    if hasattr(value, "__fspath__"):
        return str(value)
    kind = value if isinstance(value, type) or callable(value) else type(value)
    name = getattr(kind, "__qualname__", type(value).__qualname__)  # never repr: it may hold an address
    return f"<{getattr(kind, '__module__', '?')}.{name}>"
