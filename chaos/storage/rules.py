"""The rules of the S3 fault gateway: which requests are hurt, and how. Values only.

Whether a rule with a probability strikes depends on its seed and on how often that method has asked for that key, not
on the order in which requests arrive: so a run that sends the same requests is hurt in the same places.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, get_args

from shaketable.chaos.errors import ExperimentError

Effect = Literal[
    "slow_down",
    "internal_error",
    "expired_credentials",
    "outage",
    "reset",
    "lose_answer",
    "truncate_answer",
    "latency",
    "bandwidth",
]
EFFECTS: tuple[Effect, ...] = get_args(Effect)


@dataclass(frozen=True, slots=True)
class Rule:
    """`methods` and `key` (a pattern as in a shell, on `bucket/key`) say what is hit; requests with a body of fewer
    than `min_bytes` are not; `probability` how often, at most `times` times (None: always).

    slow_down: 503. internal_error: 500. expired_credentials: 403. outage: no answer, the connection is closed at once.
    reset: closed when `after_bytes` of the request have come. lose_answer: the request is carried out, then closed.
    truncate_answer: closed after `after_bytes` of the answer's body. latency: `latency_s` before anything is done.
    bandwidth: bodies pass at `bytes_per_s`, both ways.
    """

    effect: Effect
    methods: tuple[str, ...] = ()
    key: str = "*"
    min_bytes: int = 0
    probability: float = 1.0
    times: int | None = None
    after_bytes: int = 0
    latency_s: float = 0.0
    bytes_per_s: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.effect not in EFFECTS:
            raise ExperimentError(f"storage fault: effect {self.effect!r} is none of {', '.join(EFFECTS)}")
        if not 0 < self.probability <= 1:
            raise ExperimentError(f"storage fault: probability {self.probability!r} is not above 0 and up to 1")
        if self.effect == "latency" and self.latency_s <= 0:
            raise ExperimentError("storage fault: latency needs latency_s above 0")
        if self.effect == "bandwidth" and self.bytes_per_s <= 0:
            raise ExperimentError("storage fault: bandwidth needs bytes_per_s above 0")

    def about(self, method: str, key: str, size: int) -> bool:
        return (not self.methods or method in self.methods) and fnmatchcase(key, self.key) and size >= self.min_bytes


@dataclass(slots=True)
class Struck:
    """A rule at work, and what it did: the evidence."""

    rule: Rule
    done: int = 0
    # the first of them, in words
    hits: list[str] = field(default_factory=list)
    _asked: Counter[tuple[str, str]] = field(default_factory=Counter)

    def strikes(self, method: str, key: str, size: int) -> bool:
        """Whether this very request is hit; counted if so."""
        rule = self.rule
        if not rule.about(method, key, size) or (rule.times is not None and self.done >= rule.times):
            return False
        self._asked[method, key] += 1
        nth = self._asked[method, key]
        if rule.probability < 1 and random.Random(f"{rule.seed}/{method}/{key}/{nth}").random() >= rule.probability:
            return False
        self.done += 1
        if len(self.hits) < 20:
            self.hits.append(f"{method} {key}")
        return True
