"""`shaketable explore`: random schedules of faults, in simulation hundreds of thousands of faults a minute, on
processes of this machine a schedule or two a second."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from shaketable.chaos.plan import Plan
from shaketable.reports import results
from shaketable.suites import mutants
from shaketable.suites.command.commands import Json, check_json, command, encoded, write
from shaketable.suites.exploring import PLAYS_A_CORE
from shaketable.suites.gate.catalogue import UsageError

# What plays schedules takes a second to import, and `shaketable --help` comes by here: the functions import it.
if TYPE_CHECKING:
    from shaketable.chaos.exploration.draw import Schedule
    from shaketable.suites.exploring.explored import Explored, Violation
    from shaketable.suites.exploring.processes import Numbered, Players

# a line of progress where nobody watches a terminal
EVERY_S = 5.0
INVALID_SHOWN = 5


class Where(StrEnum):
    """Where schedules are played."""

    SIMULATED = "simulated"
    PROCESSES = "processes"


DEFAULT_SCHEDULES = {Where.SIMULATED: 20_000, Where.PROCESSES: 200}


@command(
    examples="""
shaketable explore                                    20,000 schedules with today's seed
shaketable explore --schedules 20000 --seed 1         the same schedules on any machine
shaketable explore --minutes 60 --jobs 8              for an hour, on eight processes
shaketable explore --mutant budget-off-by-one         is a broken runtime caught, and by which invariant?
shaketable explore --cluster processes --minutes 30   real drivers, agents and workers, without Ray
"""
)
def explore_(
    schedules: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Number of schedules. Default: 20,000; on processes 200.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(metavar="M", min=0.01, help="Explore for M minutes instead.")] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="S", min=0, help="Seed for all randomness. Default: today's date.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=64, help=f"Schedules at a time. Default: 2; on processes {PLAYS_A_CORE} a core."
        ),
    ] = None,
    cluster: Annotated[Where, typer.Option(help="Where schedules are played.")] = Where.SIMULATED,
    mutant: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Plant this bug in the runtime, or several (with commas). Stop when it is caught."
        ),
    ] = "",
    results_dir: Annotated[
        Path | None,
        typer.Option("--results", metavar="DIR", help="Where to write a violation. Default: ./shaketable-results."),
    ] = None,
    json: Json = None,
) -> int:
    """Play random fault schedules against the runtime.

    They are simulated, or played on processes.
    Shrinks the first violation and writes it as an experiment that runs on any cluster."""
    from shaketable.suites.gate.outputs import ROOT, check_results

    if schedules is not None and minutes is not None:
        raise UsageError("--schedules and --minutes: give only one")
    mutants.known(mutant)
    check_json(json)
    results_dir = results_dir or ROOT
    check_results(results_dir)
    chosen = seed if seed is not None else int(time.strftime("%Y%m%d"))
    wanted = None if minutes is not None else schedules or DEFAULT_SCHEDULES[cluster]
    print(_header(wanted, minutes, chosen, cluster, mutant), flush=True)
    if cluster is Where.PROCESSES:
        jobs = jobs or PLAYS_A_CORE * (os.cpu_count() or 1)
        explored, written = _on_processes(chosen, wanted, minutes, jobs, mutant, results_dir)
    else:
        explored, written = _in_simulation(chosen, wanted, minutes, jobs or 2, mutant, results_dir)
    write(json, encoded(as_json(explored, written)))
    return _close(explored, written, mutant)


# Explored, and the experiment of the first violation.
Outcome = tuple["Explored", Path | None]


def _in_simulation(
    seed: int, schedules: int | None, minutes: float | None, jobs: int, mutant: str, folder: Path
) -> Outcome:
    from shaketable.suites.exploring import simulated

    if not shrinks():
        print("Hypothesis is not installed: what is found is written, not shrunk. pip install 'shaketable[explore]'")
    explored = simulated.explore(
        seed,
        schedules=schedules,
        minutes=minutes,
        jobs=jobs,
        mutant=mutant,
        progress=Progress(schedules),
        until_violated=bool(mutant),
    )
    for line in summary(explored):
        print(line)
    return explored, _write_first(explored, mutant, folder)


def _on_processes(
    seed: int, schedules: int | None, minutes: float | None, jobs: int, mutant: str, folder: Path
) -> Outcome:
    from shaketable.suites.exploring import processes

    folder.mkdir(parents=True, exist_ok=True)
    with processes.players(jobs, mutant) as there:
        explored, broke = processes.explore(
            there,
            seed,
            schedules=schedules,
            minutes=minutes,
            jobs=jobs,
            results=folder,
            progress=Progress(schedules),
            until_violated=bool(mutant),
        )
        for line in summary(explored):
            print(line)
        return explored, _replayed(there, seed, broke[0]) if broke else None


def _replayed(there: Players, seed: int, found: Numbered) -> Path | None:
    """The experiment of what was found, in its place the smallest that is found within some minutes. Ctrl-C leaves it
    as it was found."""
    from shaketable.chaos.exploration import replays
    from shaketable.chaos.exploration.real_schedules import draw_real
    from shaketable.suites.exploring.processes import write as written

    assert found.written is not None and found.play.violation is not None
    invariant = found.play.violation.invariant
    print(f"shrinking schedule {found.number}, for at most {replays.SHRINK_WITHIN_S:.0f} s ...", flush=True)
    try:
        small = replays.shrunk(draw_real(seed, found.number), found.play, there.submit)
    except KeyboardInterrupt:
        print(f"not shrunk   {found.written}")
        return found.written
    written(found.written, small.plan)
    what = "smallest" if small.times >= replays.TIMES else "not shrunk"
    said = f"{len(small.plan.faults)} faults break {invariant} in {small.times} of {small.of} plays"
    print(f"{what:12} {said}: {found.written}")
    return found.written


def shrinks() -> bool:
    return importlib.util.find_spec("hypothesis") is not None


class Progress:
    """A line that renews itself in a terminal, one every few seconds elsewhere; and one for each violation, at once."""

    def __init__(self, wanted: int | None) -> None:
        self._wanted, self._said_s = wanted, time.monotonic()
        self._live = sys.stderr.isatty()
        self._told: set[int] = set()

    def __call__(self, explored: Explored) -> None:
        from shaketable.chaos.simulation.subject.run import DECLARED

        for violation in explored.violations:
            if violation.number not in self._told:
                self._told.add(violation.number)
                found = f"schedule {violation.number}: {violation.finding.invariant}: {violation.finding.reason}"
                print(f"\r\033[K{found}" if self._live else found, file=sys.stderr, flush=True)
        now = time.monotonic()
        if now - self._said_s < (0.2 if self._live else EVERY_S):
            return
        self._said_s = now
        of = f" of {self._wanted:,}" if self._wanted else ""
        rate = sum(explored.faults.values()) / max(explored.seconds, 1e-9) * 60
        taken = f"{_taken(explored)} of {len(DECLARED)} transitions" if explored.transitions else _invalid(explored)
        text = (
            f"{explored.schedules:,}{of} schedules, {rate:,.0f} faults a minute, {taken},"
            f" {explored.violated} violations"
        )
        print(f"\r\033[K{text}" if self._live else text, end="" if self._live else "\n", file=sys.stderr, flush=True)


def _header(wanted: int | None, minutes: float | None, seed: int, cluster: Where, mutant: str) -> str:
    much = f"{wanted:,} schedules" if wanted is not None else f"{minutes:g} minutes"
    return f"exploring {much} · seed {seed} · bundled on {cluster}{f' · mutant {mutant}' if mutant else ''}"


def summary(explored: Explored) -> list[str]:
    """What was explored, in lines for people."""
    from shaketable.chaos.simulation.subject.run import DECLARED

    if not explored.schedules and not explored.errors:
        return [f"no schedule ended within {explored.seconds:.1f} s"]
    landed = sum(explored.faults.values())
    kinds = ", ".join(f"{name} {count:,}" for name, count in explored.faults.most_common())
    states = {state for before, _, after in explored.transitions for state in (before, after)}
    each = landed / max(1, explored.schedules)
    lines = [
        f"{explored.schedules:,} schedules in {explored.seconds:.1f} s, {landed:,} faults landed, {each:.1f} each",
        f"faults       {kinds or 'none'}",
    ]
    if explored.transitions:
        lines += [
            f"states       {', '.join(sorted(states))}",
            f"transitions  {_taken(explored)} of the {len(DECLARED)} in the controller's tables",
        ]
        lines += [f"  never taken: {state} -> {target}: {why}" for state, why, target in explored.never_taken]
    if explored.invalid:
        lines.append(f"invalid      {_invalid(explored)}; what they did was judged all the same")
        lines += [f"  {count} x {why}" for why, count in explored.invalid.most_common(INVALID_SHOWN)]
    lines += [f"harness      {error}" for error in explored.errors]
    lines += [
        f"violation    schedule {v.number}: {v.finding.invariant}: {v.finding.reason}" for v in explored.violations
    ]
    if explored.violated > len(explored.violations):
        lines.append(f"  and {explored.violated - len(explored.violations)} more")
    return lines


def _taken(explored: Explored) -> int:
    from shaketable.chaos.simulation.subject.run import DECLARED

    return len(DECLARED) - len(explored.never_taken)


def _invalid(explored: Explored) -> str:
    return f"{sum(explored.invalid.values()):,} did not take place as drawn"


def as_json(explored: Explored, written: Path | None) -> dict[str, Any]:
    from shaketable.chaos.simulation.subject.run import DECLARED

    return {
        "seed": explored.seed,
        "schedules": explored.schedules,
        "seconds": round(explored.seconds, 3),
        "interrupted": explored.interrupted,
        "faults": dict(explored.faults),
        "declared": len(DECLARED),
        "never_taken": explored.never_taken,
        "transitions": [[*key, count] for key, count in sorted(explored.transitions.items())],
        "invalid": dict(explored.invalid),
        "errors": explored.errors,
        "violated": explored.violated,
        "experiment": str(written) if written else None,
        "violations": [
            {"schedule": v.number, "invariant": v.finding.invariant, "reason": v.finding.reason}
            for v in explored.violations
        ],
    }


def _write_first(explored: Explored, mutant: str, folder: Path) -> Path | None:
    """The first violation as an experiment file that runs anywhere: as it was found, and in its place the smallest."""
    if not explored.violations:
        return None
    from shaketable.chaos.exploration import draw
    from shaketable.chaos.exploration.shrink import unshrunk

    first = explored.violations[0]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"explored-{explored.seed}-{first.number}.yaml"
    found = unshrunk(draw.draw(explored.seed, first.number))
    _write(path, found)
    if not shrinks():
        print(f"not shrunk   {len(found.faults)} faults break {first.finding.invariant}: {path}")
        return path
    print(f"shrinking schedule {first.number} ...", flush=True)
    plan, faults = _shrunk(explored.seed, first, mutant)
    _write(path, plan)
    print(f"smallest     {faults} faults still break {first.finding.invariant}: {path}")
    return path


def _write(path: Path, plan: Plan) -> None:
    from shaketable.chaos.experiment.file import dump

    path.write_text(yaml.safe_dump(dump(plan), sort_keys=False, width=110))


def _shrunk(seed: int, first: Violation, mutant: str) -> tuple[Plan, int]:
    from shaketable.chaos.exploration import draw
    from shaketable.chaos.exploration.shrink import shrink_violation
    from shaketable.suites.exploring.simulated import broken

    schedule = draw.draw(seed, first.number)
    if not mutant:
        shrunk = shrink_violation(schedule, first.finding)
        return shrunk.plan, shrunk.faults

    def still_fails(simpler: Schedule) -> bool:
        with broken(mutant):
            found = draw.explore_one(simpler).violation
        return found is not None and found.invariant == first.finding.invariant

    # Outside of the mutant: what the experiment expects is what the healthy runtime comes to.
    shrunk = shrink_violation(schedule, first.finding, still_fails)
    return shrunk.plan, shrunk.faults


def _close(explored: Explored, written: Path | None, mutant: str) -> int:
    if explored.violated:
        print("RED")
        suffix = f" --mutant {mutant}" if mutant else ""
        print(f"reproduce    shaketable run {written}{suffix}")
        return results.EXIT_FAIL
    if explored.errors:
        print(f"RED  {len(explored.errors)} schedules broke the harness ({results.NOT_YOUR_JOB})")
        return results.EXIT_HARNESS
    if not explored.interrupted:
        print("GREEN")
        return results.EXIT_PASS
    print("interrupted, GREEN so far" if explored.schedules else "interrupted before the first schedule ended")
    return results.EXIT_INTERRUPTED
