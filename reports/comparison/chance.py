"""What repeated measurements say, without a guess about how they are distributed.

* An interval of a median is made of two of the values: each value lies above the true median with probability 1/2, so
  the binomial distribution says how surely the median lies between them.
* The ratio of two builds is the median of all ratios between a new and an old value (Hodges and Lehmann, 1963), and its
  interval is made of two of these ratios, by the exact distribution of Mann and Whitney's U.
* Whether a difference can be chance is asked of all figures at once (Westfall and Young, 1993): if both builds are the
  same, which pass was of which build is arbitrary. So all ways to deal the passes out to the two builds are tried. The
  chance of a difference is the share of these ways in which *any* figure differs as much. That keeps the share of false
  alarms of a whole comparison, however many figures it has and however they depend on each other.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

# of an interval not to hold the true value
MISSES = 0.05
# the ways to deal out that are tried; a sample of them where there are more
MOST_WAYS = 2_000
# Added to the standard error of a logarithm: a figure that hardly varies is not called different for a trifle, and none
# stands out by an accident of its spread (as in SAM of Tusher, Tibshirani and Chu, 2001).
SPREAD = 0.05
# a pass over the experiments: its build, and its number
Pass = tuple[str, int]
OLD, NEW = "old", "new"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A middle of `n` values, and an interval that holds the true one in 19 of 20 cases; of fewer than six values,
    which cannot say that much, their whole range."""

    value: float
    low: float
    high: float
    n: int


def middle(values: Iterable[float]) -> Estimate:
    """The median of at least one value."""
    told = sorted(values)
    beyond = list(itertools.accumulate(math.comb(len(told), k) / 2 ** len(told) for k in range(len(told) // 2)))
    return _between(told, median(told), beyond, len(told))


def ratio(old: Sequence[float], new: Sequence[float]) -> Estimate:
    """Of the new values to the old ones, all above 0."""
    told = sorted(after / before for after in new for before in old)
    ways = _rank_sums(len(old), len(new))
    beyond = list(itertools.accumulate(count / sum(ways) for count in ways[: len(told) // 2]))
    return _between(told, median(told), beyond, min(len(old), len(new)))


def _between(told: Sequence[float], value: float, beyond: Sequence[float], n: int) -> Estimate:
    """`beyond[k]`: how probable it is that the true value lies, on one side, beyond all but k of the values."""
    left_out = max(0, sum(2 * probability <= MISSES for probability in beyond) - 1)
    return Estimate(value, told[left_out], told[-1 - left_out], n)


def _rank_sums(n: int, m: int) -> list[int]:
    """In how many ways U is 0, 1, ..., n * m: the coefficients of a Gaussian binomial."""
    ways = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        for u in range(n * m, m + i - 1, -1):
            ways[u] -= ways[u - m - i]
        for u in range(i, n * m + 1):
            ways[u] += ways[u - i]
    return ways


def chances(figures: Sequence[Mapping[Pass, float]]) -> list[float]:
    """For each figure, values above 0 by pass, how probable a difference like the one seen is in any of them, if both
    builds are the same."""
    logs = [{place: math.log(value) for place, value in figure.items()} for figure in figures]
    passes = sorted({place for figure in logs for place in figure})
    new = frozenset(place for place in passes if place[0] == NEW)
    seen = [_apart(figure, new) for figure in logs]
    greatest = [max((_apart(figure, way) for figure in logs), default=0.0) for way in _ways(passes, new)]
    # a sum in another order may differ in the last bit
    return [sum(most >= one - 1e-9 for most in greatest) / len(greatest) for one in seen]


def least_chance(old: int, new: int) -> float:
    """The smallest that so many passes of each build can show. Of as many, dealing all of them the other way round
    differs as much."""
    return (2 if old == new else 1) / math.comb(old + new, new)


def _ways(passes: Sequence[Pass], new: frozenset[Pass]) -> Iterator[frozenset[Pass]]:
    """Which passes could have been the new ones, the real ones first."""
    if math.comb(len(passes), len(new)) <= MOST_WAYS:
        yield from map(frozenset, itertools.combinations(passes, len(new)))
        return
    yield new
    dice = random.Random(0)  # the same comparison always says the same
    yield from (frozenset(dice.sample(passes, len(new))) for _ in range(MOST_WAYS - 1))


def _apart(figure: Mapping[Pass, float], new: frozenset[Pass]) -> float:
    """How far the means of both groups are apart, in standard errors."""
    after = [value for place, value in figure.items() if place in new]
    before = [value for place, value in figure.items() if place not in new]
    if not after or not before:
        return 0.0
    error = math.sqrt(sum(_variance(group) / len(group) for group in (after, before) if len(group) > 1))
    return abs(fmean(after) - fmean(before)) / (error + SPREAD)


def _variance(values: Sequence[float]) -> float:
    """That of `statistics` reckons in fractions, which takes twenty times as long."""
    mean = fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
