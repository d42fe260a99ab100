"""`shaketable explore`: random schedules of faults in simulation, hundreds of thousands of faults a minute."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from shaketable.chaos import exploration
from shaketable.chaos.experiment_file import dump
from shaketable.chaos.plan import Plan
from shaketable.chaos.subjects.simulated.run import ROWS
from shaketable.reports import results
from shaketable.suites import mutants
from shaketable.suites.catalogue import UsageError, nearest
from shaketable.suites.commands import Json, check_json, command, encoded, write
from shaketable.suites.exploring import Explored, Violation, broken, explore
from shaketable.suites.outputs import ROOT, check_results

EVERY_S = 5.0  # a line of progress where nobody watches a terminal
DEFAULT_SCHEDULES = 20_000


@command(
    examples="""
shaketable explore                                    20,000 schedules, of the seed of the day
shaketable explore --schedules 20000 --seed 1         the same ones anywhere
shaketable explore --minutes 60 --jobs 8              as many as an hour allows
shaketable explore --mutant budget-off-by-one         is a broken runtime noticed, and by what?
"""
)
def explore_(
    schedules: Annotated[
        int | None, typer.Option(metavar="N", min=1, help=f"How many; else {DEFAULT_SCHEDULES:,}.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(metavar="M", min=0.01, help="For so long, instead.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="S", min=0, help="Of everything random; else the date.")
    ] = None,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, max=64, help="Processes side by side.")] = 2,
    mutant: Annotated[
        str, typer.Option(metavar="NAME", help="Break the runtime on purpose; ends once caught.")
    ] = "",
    results_dir: Annotated[
        Path | None,
        typer.Option(
            "--results", metavar="DIR", help="Where a violation is written; else ./shaketable-results."
        ),
    ] = None,
    json: Json = None,
) -> int:
    """Random schedules of faults against the simulated runtime; a violation is shrunk and written as an experiment."""
    if schedules is not None and minutes is not None:
        raise UsageError("--schedules and --minutes: give one of them")
    if mutant and mutant not in mutants.MUTANTS:
        raise UsageError(f"no mutant is called {mutant!r}{nearest(mutant, mutants.MUTANTS)}")
    check_json(json)
    results_dir = results_dir or ROOT
    check_results(results_dir)
    chosen = seed if seed is not None else int(time.strftime("%Y%m%d"))
    wanted = None if minutes is not None else schedules or DEFAULT_SCHEDULES
    print(_header(wanted, minutes, chosen, mutant), flush=True)
    explored = explore(
        chosen, schedules=wanted, minutes=minutes, jobs=jobs, mutant=mutant, progress=Progress(wanted),
        until_violated=bool(mutant),
    )  # fmt: skip
    for line in summary(explored):
        print(line)
    written = _write_first(explored, mutant, results_dir)
    write(json, encoded(as_json(explored, written)))
    return _close(explored, written, mutant)


class Progress:
    """A line that renews itself in a terminal, one every few seconds elsewhere."""

    def __init__(self, wanted: int | None) -> None:
        self._wanted, self._said_s = wanted, time.monotonic()
        self._live = sys.stderr.isatty()

    def __call__(self, explored: Explored) -> None:
        now = time.monotonic()
        if now - self._said_s < (0.2 if self._live else EVERY_S):
            return
        self._said_s = now
        of = f" of {self._wanted:,}" if self._wanted else ""
        rate = sum(explored.faults.values()) / max(explored.seconds, 1e-9) * 60
        text = (
            f"{explored.schedules:,}{of} schedules, {rate:,.0f} faults a minute, "
            f"{len(ROWS) - len(explored.unreached)} of {len(ROWS)} rows, {explored.violated} violations"
        )
        print(
            f"\r\033[K{text}" if self._live else text,
            end="" if self._live else "\n",
            file=sys.stderr,
            flush=True,
        )


def _header(wanted: int | None, minutes: float | None, seed: int, mutant: str) -> str:
    much = f"{wanted:,} schedules" if wanted is not None else f"{minutes:g} minutes"
    return f"exploring {much} · seed {seed} · bundled on simulated{f' · mutant {mutant}' if mutant else ''}"


def summary(explored: Explored) -> list[str]:
    """What was explored, in lines for people."""
    if not explored.schedules:
        return [f"no schedule has come to its end in {explored.seconds:.1f} s"]
    landed = sum(explored.faults.values())
    kinds = ", ".join(f"{name} {count:,}" for name, count in explored.faults.most_common())
    states = {state for before, _, after in explored.transitions for state in (before, after)}
    reached, each = len(ROWS) - len(explored.unreached), landed / max(1, explored.schedules)
    lines = [
        f"{explored.schedules:,} schedules in {explored.seconds:.1f} s, {landed:,} faults landed, {each:.1f} each",
        f"faults       {kinds or 'none'}",
        f"states       {', '.join(sorted(states))}",
        f"transitions  {reached} of {len(ROWS)} rows of the table, {len(explored.transitions)} different transitions",
    ]
    lines += [f"  never reached: {event} in {state}" for state, event in explored.unreached]
    lines += [
        f"violation    schedule {v.number}: {v.finding.invariant}: {v.finding.reason}"
        for v in explored.violations
    ]
    if explored.violated > len(explored.violations):
        lines.append(f"  and {explored.violated - len(explored.violations)} more")
    return lines


def as_json(explored: Explored, written: Path | None) -> dict[str, Any]:
    return {
        "seed": explored.seed, "schedules": explored.schedules, "seconds": round(explored.seconds, 3),
        "interrupted": explored.interrupted, "faults": dict(explored.faults),
        "rows": len(ROWS), "unreached": explored.unreached,
        "transitions": [[*key, count] for key, count in sorted(explored.transitions.items())],
        "violated": explored.violated, "experiment": str(written) if written else None,
        "violations": [
            {"schedule": v.number, "invariant": v.finding.invariant, "reason": v.finding.reason}
            for v in explored.violations
        ],
    }  # fmt: skip


def _write_first(explored: Explored, mutant: str, folder: Path) -> Path | None:
    """The first violation, shrunk, as an experiment file that runs anywhere."""
    if not explored.violations:
        return None
    first = explored.violations[0]
    print(f"shrinking schedule {first.number} ...", flush=True)
    plan, faults = _shrunk(explored.seed, first, mutant)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"explored-{explored.seed}-{first.number}.yaml"
    path.write_text(yaml.safe_dump(dump(plan), sort_keys=False, width=110))
    print(f"smallest     {faults} faults still break {first.finding.invariant}: {path}")
    return path


def _shrunk(seed: int, first: Violation, mutant: str) -> tuple[Plan, int]:
    from shaketable.chaos.shrinking import shrink_violation

    schedule = exploration.draw(seed, first.number)
    if not mutant:
        shrunk = shrink_violation(schedule, first.finding)
        return shrunk.plan, shrunk.faults

    def still_fails(simpler: exploration.Schedule) -> bool:
        with broken(mutant):
            found = exploration.explore_one(simpler).violation
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
    if not explored.interrupted:
        print("GREEN")
        return results.EXIT_PASS
    print("interrupted, GREEN so far" if explored.schedules else "interrupted, nothing is known yet")
    return results.EXIT_INTERRUPTED
