"""May this configuration go on with a run that was begun with another? Pure.

Only what would make the checkpoints meaningless is compared; everything else may change and is recorded. What looks
like a secret is neither stored nor compared, so a rotated token is no difference.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from shaketable.runtime.errors import ConfigurationError
from shaketable.runtime.log.redaction import REDACTED, redacted, secret_key

COMPARED = ("framework", "accelerator", "topology", "train_loop_config")
_MISSING = "(not set)"
_SHOWN_CHARACTERS = 60


def recordable(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as it goes into the log: plain JSON without secrets. What JSON cannot say is named by type."""
    return {str(key): _plain(value, str(key)) for key, value in configuration.items()}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted key -> (old, new), of two recordable configurations. A secret is no difference, nor is one that an earlier
    version of this package took for none."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    keys = [*before, *(key for key in after if key not in before)]
    pairs = {key: (before.get(key, _MISSING), after.get(key, _MISSING)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1] and not _of_secrets(*pair)}


def _of_secrets(before: Any, after: Any) -> bool:
    if _MISSING in (before, after):
        return False
    both_texts = isinstance(before, str) and isinstance(after, str)
    return REDACTED in (before, after) or (both_texts and redacted(before) == redacted(after))


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
    head = f"the run {run} began with another configuration; its checkpoints do not fit this one:"
    return "\n".join([head, *lines, advice + "."])


def _show(value: Any) -> str:
    text = value if value in (_MISSING, REDACTED) else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        elif prefix or (value is not None and value != {}):
            # an empty section is the same as none
            yield f"{prefix}{key}", value


def _plain(value: Any, key: str, inside: bool = False) -> Any:
    """`inside`: of something with the name of a secret. A number is none for its own name (`max_token`)."""
    if value is None or isinstance(value, bool) or (isinstance(value, int | float) and not inside):
        return _plain_leaf(value)
    secret = inside or secret_key(key)
    if isinstance(value, Mapping):
        return {str(inner): _plain(item, str(inner), secret) for inner, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {item.name: _plain(getattr(value, item.name), item.name, secret) for item in fields}
    if secret:
        return REDACTED
    if isinstance(value, list | tuple):
        return [_plain(item, key) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(item, key) for item in value), key=repr)
    return _plain_leaf(value)


def _plain_leaf(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return redacted(str(value))
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, float):
        # JSON has no nan
        return float(value) if math.isfinite(value) else str(value)
    if hasattr(value, "__fspath__"):
        return redacted(str(value))
    kind = value if isinstance(value, type) or callable(value) else type(value)
    # never repr: it may hold an address
    name = getattr(kind, "__qualname__", type(value).__qualname__)
    return f"<{getattr(kind, '__module__', '?')}.{name}>"
