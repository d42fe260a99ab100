"""`python -m shaketable.suites.mutants`: every mutant has to be caught, in simulation first, on a real cluster
where only that can tell. Ctrl-C ends it with what is known so far.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from shaketable.chaos.errors import nearest
from shaketable.suites.gate.catalogue import select
from shaketable.suites.mutants import MUTANTS, Mutant, cover, real, several, systematic, tested
from shaketable.suites.mutants.hunting import CONTROL, Caught, Sighted, hunt, ignore_interrupts, sight
from shaketable.suites.mutants.table import markdown, only_by, write_between_marks

AT_ONCE = 2
# clusters of real processes
REAL = ("processes", "local")
EXAMPLES = """examples:
  python -m shaketable.suites.mutants                       all of them; exit code 1 when one is missed
  python -m shaketable.suites.mutants --only growth-never   one (may be repeated)
  python -m shaketable.suites.mutants --simulated-only      without the real cluster
  python -m shaketable.suites.mutants --json mutants.json   also as a list of {name, caught, by, schedules}
  python -m shaketable.suites.mutants --table               which mutants only one invariant catches
  python -m shaketable.suites.mutants --cover               which experiments of the gate catch what
  python -m shaketable.suites.mutants --several 50          50 times three at once, in a gate on processes
  python -m shaketable.suites.mutants --alone               those that a good end can hide, one by one on processes
  python -m shaketable.suites.mutants --systematic 60       60 places of each room, drawn by chance (cosmic-ray)
  python -m shaketable.suites.mutants --list                names and what they break
"""

T = TypeVar("T")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    chosen = [MUTANTS[name] for name in options.only] or list(MUTANTS.values())
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name:38} {mutant.description}")
        return 0
    if options.table:
        return _table(chosen, options)
    if options.cover:
        return _cover(chosen, options)
    if options.several:
        return _several(options)
    if options.alone:
        return _alone(options)
    if options.systematic:
        return _systematic(options)
    return _hunt_all(chosen, options)


# ---- caught or missed


def _hunt_all(chosen: Sequence[Mutant], options: argparse.Namespace) -> int:
    wanted = [m for m in chosen if m.tried == "simulation" or not options.simulated_only]
    found: list[Caught] = []
    sound, interrupted = True, False
    try:
        for caught in _all_of_them(wanted, options):
            if caught.name == CONTROL:
                sound = not caught.caught
                print(_control_line(caught), flush=True)
            else:
                found.append(caught)
                print(_line(caught), flush=True)
    except KeyboardInterrupt:
        interrupted = True
    if options.json is not None:
        options.json.write_text(json.dumps([_as_json(each) for each in found], indent=2) + "\n")
    print(f"{sum(each.caught for each in found)} of {len(wanted)} caught", flush=True)
    if interrupted:
        return 130
    return 0 if sound and len(found) == len(wanted) and all(each.caught for each in found) else 1


def _all_of_them(wanted: Sequence[Mutant], options: argparse.Namespace) -> Iterator[Caught]:
    names = [CONTROL, *(mutant.name for mutant in wanted if mutant.tried == "simulation")]
    most = {CONTROL: options.control}
    with _pool() as pool:
        calls = [pool.submit(hunt, name, options.seed, most.get(name, options.schedules)) for name in names]
        yield from (call.result() for call in _cancelled_at_the_end(pool, calls))
    yield from tested.by_tests([mutant for mutant in wanted if mutant.tried == "tests"], AT_ONCE)
    yield from real.on_real_clusters([mutant for mutant in wanted if mutant.tried in REAL], AT_ONCE)


def _line(caught: Caught) -> str:
    if not caught.caught:
        where = f"in {caught.schedules} schedules" if caught.schedules else "on a real cluster"
        tried = f"{where}: {caught.reason}" if caught.reason else where
        return f"MISSED  {caught.name}  {tried}"
    after = f"after {caught.schedules} schedules" if caught.schedules else f"on a real cluster: {caught.reason}"
    return f"caught  {caught.name}  by {caught.by}  {after}"


def _control_line(control: Caught) -> str:
    if control.caught:
        return f"CONTROL FAILED: without a mutant {control.by} in schedule {control.schedules - 1}: {control.reason}"
    return f"control: no violation in {control.schedules} schedules without a mutant"


def _as_json(caught: Caught) -> dict[str, Any]:
    return {"name": caught.name, "caught": caught.caught, "by": caught.by or None, "schedules": caught.schedules}


# ---- which invariant is needed for what


def _table(chosen: Sequence[Mutant], options: argparse.Namespace) -> int:
    simulated = [mutant.name for mutant in chosen if mutant.tried == "simulation"]
    sighted: list[Sighted] = []
    with _pool() as pool:
        calls = [pool.submit(sight, name, options.seed, options.sightings) for name in simulated]
        for call in _cancelled_at_the_end(pool, calls):
            sighted.append(call.result())
            print(f"{sighted[-1].name}: {dict(sighted[-1].by)}", file=sys.stderr, flush=True)
    local = [mutant for mutant in chosen if mutant.tried in REAL]
    text = markdown(sighted, local, options.seed)
    print(text)
    if options.markdown is not None:
        write_between_marks(options.markdown, text)
    return 0 if all(only_by(sighted, local).values()) else 1


# ---- what the gate catches


def _cover(chosen: Sequence[Mutant], options: argparse.Namespace) -> int:
    """In simulation those that it can tell; on a real cluster also the others."""
    tried = ("simulation",) if options.cluster == "simulated" else ("simulation", options.cluster)
    names = [mutant.name for mutant in chosen if mutant.tried in tried]
    experiments = [entry.name for entry in select([], everything=options.everything)]
    caught: dict[str, list[str]] = {}
    with _pool() as pool:
        calls = [pool.submit(cover.reds, name, options.cluster, experiments) for name in names]
        for name, call in zip(names, _cancelled_at_the_end(pool, calls), strict=True):
            caught[name] = call.result()
            print(f"{name}: {', '.join(caught[name]) or 'none'}", file=sys.stderr, flush=True)
    for line in cover.lines(cover.matrix_of(experiments, caught), names):
        print(line)
    return 0


def _several(options: argparse.Namespace) -> int:
    red = 0
    for names in several.draws(options.seed, options.several):
        drawn = several.played(names)
        red += drawn.red
        print(f"{'RED   ' if drawn.red else 'MISSED'}  {' + '.join(drawn.names)}  {drawn.reason}", flush=True)
    print(f"{red} of {options.several} draws RED")
    return 0 if red == options.several else 1


def _alone(options: argparse.Namespace) -> int:
    names = options.only or list(several.SUBTLE)
    missed = []
    for name in names:
        drawn = several.alone(name, options.seed)
        missed += [] if drawn.red else [name]
        print(f"{'RED   ' if drawn.red else 'MISSED'}  {name}  {drawn.reason}", flush=True)
    print(f"{len(names) - len(missed)} of {len(names)} RED")
    return 1 if missed else 0


def _systematic(options: argparse.Namespace) -> int:
    """Says each survivor as soon as it is known, and the table in the end, also after Ctrl-C."""
    rooms, tried = options.room or list(systematic.ROOMS), []
    try:
        for one in systematic.all_tried(rooms, options.systematic, options.seed, AT_ONCE):
            tried.append(one)
            change = one.change
            if not one.killed_by:
                print(f"survived  {change.file}:{change.line}  {change.operator}\n{change.shown()}", flush=True)
            if len(tried) % 10 == 0:
                print(f"{len(tried)} of {options.systematic * len(rooms)} tried", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print(f"interrupted after {len(tried)} mutants", flush=True)
        return 130
    finally:
        print("\n".join(systematic.lines(tried)))
    return 0


# ---- processes


def _pool() -> Executor:
    return ProcessPoolExecutor(AT_ONCE, mp_context=get_context("spawn"), initializer=ignore_interrupts)


def _cancelled_at_the_end(pool: Executor, calls: Sequence[T]) -> Iterator[T]:
    try:
        yield from calls
    except BaseException:
        for process in (getattr(pool, "_processes", None) or {}).values():
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


# ---- arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m shaketable.suites.mutants",
        epilog=EXAMPLES,
        description="Plant one small bug at a time in the runtime. The harness must catch each of them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add: Callable[..., Any] = parser.add_argument
    add("--only", action="append", default=[], type=_name, metavar="NAME", help="run only this mutant; repeatable")
    add("--simulated-only", action="store_true", help="skip mutants that need a real cluster")
    add("--seed", type=int, default=1, metavar="N", help="seed of the schedules (default: %(default)s)")
    add(
        "--schedules",
        type=_count,
        default=1500,
        metavar="N",
        help="most schedules to try for each mutant (default: %(default)s)",
    )
    add(
        "--control",
        type=_count,
        default=300,
        metavar="N",
        help="schedules to play without a mutant (default: %(default)s)",
    )
    add("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    add("--table", action="store_true", help="instead, print which mutants only one invariant catches")
    add(
        "--sightings",
        type=_count,
        default=100,
        metavar="N",
        help="schedules per mutant for --table (default: %(default)s)",
    )
    add("--markdown", type=Path, metavar="FILE", help="also put the table between the marks in FILE")
    add("--cover", action="store_true", help="instead, print which experiments of the gate catch which mutants")
    add("--everything", action="store_true", help="with --cover: the whole catalogue in the place of the gate")
    add("--several", type=_count, metavar="N", help="instead, plant three at once, N times, and play the gate")
    add("--alone", action="store_true", help="instead, plant those that a good end can hide one by one on processes")
    add("--systematic", type=_count, metavar="N", help="instead, change N places of each room of the runtime")
    add("--room", action="append", choices=list(systematic.ROOMS), help="with --systematic: only this; repeatable")
    add(
        "--cluster",
        choices=("simulated", "processes", "local"),
        default="simulated",
        help="with --cover: where experiments are played (default: %(default)s)",
    )
    add("--list", action="store_true", help="print names and what they break, and exit")
    return parser


def _name(text: str) -> str:
    if text not in MUTANTS:
        raise argparse.ArgumentTypeError(f"no mutant is called {text!r}; {nearest(text, MUTANTS)}")
    return text


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least one")
    return value


if __name__ == "__main__":
    sys.exit(main())
