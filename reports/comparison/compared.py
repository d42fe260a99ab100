"""A comparison of two runs as values: verdicts that changed, and each figure with its change.

Only experiments that passed are measured: what a run that failed took says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from shaketable.reports.comparison.chance import NEW, OLD, Estimate, Pass, chances, least_chance, middle, ratio
from shaketable.reports.results import Result, Run

SCHEMA = 1
# Of one false alarm among all recoveries, and of one among all goodputs: with five repeats of each build this is the
# strictest there is.
MOST_CHANCE = 0.01
# A smaller change is not worth a word. The seconds are few: a worker that is forked anew is back in 0.05 s, and a third
# more of that is a change.
LEAST_RATIO, LEAST_S = 1.1, 0.005
# of a limit, which looks at the ratio alone: so much may be chance
LEAST_BEYOND_S = 0.02
PASSED = ("PASS", "KNOWN")
RECOVERY, GOODPUT = "recovery", "goodput"
Call = Literal["slower", "faster", "lower", "higher", ""]


@dataclass(frozen=True, slots=True)
class Side:
    """What a run was: `repeats` is the most that any of its experiments has."""

    shaketable: str
    ray: str
    started: str
    subject: str
    cluster: str
    repeats: int


@dataclass(frozen=True, slots=True)
class VerdictChange:
    """`old` and `new` in words, such as `4 PASS, 1 FAIL (durability)`. `worse`: it passed each time, and does not
    now."""

    experiment: str
    old: str
    new: str
    worse: bool


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of one experiment: `recovery` in seconds for each fault, or `goodput` as a share. `call` is empty
    where chance may explain the difference, or it is small. `steps_lost`: medians, of a recovery."""

    experiment: str
    figure: str
    unit: Literal["s", "share"]
    old: Estimate
    new: Estimate
    ratio: Estimate
    chance: float
    call: Call
    steps_lost: tuple[float, float] | None = None

    @property
    def worse(self) -> bool:
        return self.call in ("slower", "lower")


@dataclass(frozen=True, slots=True)
class Comparison:
    """`enough`: there are repeats enough to tell a change from chance. `beyond`: what exceeds `max_slower`."""

    old: Side
    new: Side
    verdicts: tuple[VerdictChange, ...]
    changes: tuple[Change, ...]
    enough: bool
    only_old: tuple[str, ...] = ()
    only_new: tuple[str, ...] = ()
    max_slower: float | None = None
    beyond: tuple[str, ...] = ()
    schema: int = SCHEMA

    @property
    def called(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.call)


def compare(old: Run, new: Run, max_slower: float | None = None) -> Comparison:
    """Pure. `max_slower`: how many times slower a recovery may be."""
    sides = _side(old), _side(new)
    names = [name for name in _names(old) if name in _names(new)]
    verdicts = tuple(change for name in names if (change := _verdict(name, old, new)))
    changes = _changes(names, old, new)
    return Comparison(
        *sides,
        verdicts=verdicts,
        changes=changes,
        enough=least_chance(sides[0].repeats, sides[1].repeats) <= MOST_CHANCE,
        only_old=tuple(name for name in _names(old) if name not in names),
        only_new=tuple(name for name in _names(new) if name not in names),
        max_slower=max_slower,
        beyond=() if max_slower is None else tuple(_beyond(changes, verdicts, max_slower)),
    )


def experiment_of(result: Result) -> str:
    """Results of an older version do not say."""
    return result.experiment or result.name


def passed(run: Run, experiment: str) -> list[Result]:
    return [result for result in results_of(run, experiment) if result.verdict in PASSED]


def results_of(run: Run, experiment: str) -> list[Result]:
    return sorted((one for one in run.results if experiment_of(one) == experiment), key=lambda one: one.repeat)


def _names(run: Run) -> list[str]:
    return list(dict.fromkeys(map(experiment_of, run.results)))


def _side(run: Run) -> Side:
    counts = Counter(map(experiment_of, run.results))
    subjects, clusters = ({one.subject for one in run.results}, {one.cluster for one in run.results})
    return Side(
        run.shaketable,
        run.ray,
        run.started,
        " and ".join(sorted(subjects)),
        " and ".join(sorted(clusters)),
        max(counts.values(), default=0),
    )


# ---- verdicts ----


def _verdict(name: str, old: Run, new: Run) -> VerdictChange | None:
    """Another invariant that is red is a change too."""
    before, after = (Counter(map(_told, results_of(run, name))) for run in (old, new))
    if set(before) == set(after):
        return None
    worse = _all_passed(old, name) and not _all_passed(new, name)
    return VerdictChange(name, _counted(before), _counted(after), worse)


def _told(result: Result) -> str:
    """`FAIL (metrics-match)`: with what was red."""
    red = [finding.invariant for finding in result.findings if finding.status == "FAIL"]
    return f"FAIL ({', '.join(red)})" if result.verdict == "FAIL" and red else result.verdict


def _all_passed(run: Run, name: str) -> bool:
    return all(one.verdict in PASSED for one in results_of(run, name))


def _counted(verdicts: Counter[str]) -> str:
    if sum(verdicts.values()) == 1:
        return next(iter(verdicts))
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))


# ---- figures ----


@dataclass(frozen=True, slots=True)
class _Figure:
    experiment: str
    name: str
    values: Mapping[Pass, float]
    steps_lost: Mapping[Pass, int]

    def of(self, build: str) -> list[float]:
        return [value for (side, _), value in self.values.items() if side == build]

    def lost(self, build: str) -> float:
        return median(value for (side, _), value in self.steps_lost.items() if side == build)


def _changes(names: Sequence[str], old: Run, new: Run) -> tuple[Change, ...]:
    figures = [figure for name in names for figure in _figures(name, old, new) if figure.of(OLD) and figure.of(NEW)]
    probable = {**_probable(figures, GOODPUT), **_probable(figures, RECOVERY)}
    return tuple(_change(figure, probable[figure.experiment, figure.name]) for figure in figures)


def _probable(figures: Sequence[_Figure], kind: str) -> dict[tuple[str, str], float]:
    """Recoveries and goodput are asked apart. Goodput varies much more, for how long a driver takes to start is in it:
    with so many ways to deal the passes out, an accident of it would hide a change of a recovery."""
    family = [figure for figure in figures if figure.name.startswith(kind)]
    names = [(figure.experiment, figure.name) for figure in family]
    return dict(zip(names, chances([figure.values for figure in family]), strict=True))


def _figures(name: str, old: Run, new: Run) -> Iterator[_Figure]:
    results = {(build, number): one for build, run in ((OLD, old), (NEW, new)) for number, one in _numbered(run, name)}
    faults = dict.fromkeys((told.fault, told.name) for one in results.values() for told in one.recoveries)
    for fault, what in sorted(faults):
        told = {place: each for place, one in results.items() for each in one.recoveries if each.fault == fault}
        back_s = {place: each.back_s for place, each in told.items() if each.back_s}
        label = RECOVERY if len(faults) == 1 else f"{RECOVERY} from {what} ({fault + 1})"
        yield _Figure(name, label, back_s, {place: each.steps_lost for place, each in told.items()})
    shares = {place: one.goodput.share for place, one in results.items() if one.goodput is not None}
    yield _Figure(name, GOODPUT, {place: share for place, share in shares.items() if share > 0}, {})


def _numbered(run: Run, name: str) -> Iterable[tuple[int, Result]]:
    return ((number, one) for number, one in enumerate(results_of(run, name), 1) if one.verdict in PASSED)


def _change(figure: _Figure, chance: float) -> Change:
    old, new = figure.of(OLD), figure.of(NEW)
    times, is_time = ratio(old, new), figure.name != GOODPUT
    before, after = middle(old), middle(new)
    words: tuple[Call, Call] = ("slower", "faster") if is_time else ("higher", "lower")
    big = max(times.value, 1 / times.value) >= LEAST_RATIO and (not is_time or _apart_s(before, after) >= LEAST_S)
    call: Call = "" if chance > MOST_CHANCE or not big else words[0] if times.value > 1 else words[1]
    lost = (figure.lost(OLD), figure.lost(NEW)) if figure.steps_lost else None
    return Change(figure.experiment, figure.name, "s" if is_time else "share", before, after, times, chance, call, lost)


def _apart_s(before: Estimate, after: Estimate) -> float:
    return abs(after.value - before.value)


def _beyond(changes: Sequence[Change], verdicts: Sequence[VerdictChange], limit: float) -> Iterator[str]:
    """A recovery that takes too long, or can no longer be measured because the experiment does not pass."""
    for change in changes:
        if change.unit == "s" and change.ratio.value > limit and _apart_s(change.old, change.new) >= LEAST_BEYOND_S:
            yield (
                f"{change.experiment}: {change.figure} takes {change.ratio.value:.2f} times as long"
                f" ({change.old.value:.3g} s, now {change.new.value:.3g} s)"
            )
    for verdict in verdicts:
        if verdict.worse:
            yield f"{verdict.experiment}: passed before, and now {verdict.new}"
