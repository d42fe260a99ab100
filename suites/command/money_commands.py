"""`shaketable cost` and `goodput`: what interruptions cost in money and in time."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shaketable.chaos.invariants.findings import counted
from shaketable.reports import results
from shaketable.reports.cost import Cost, Spot, exact, short
from shaketable.reports.goodput import PARTS, Goodput
from shaketable.suites.command.commands import Json, check_json, command, encoded, write
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.tools.durations import hours as in_hours


@command(
    examples="""
shaketable cost --hours 5 --alpha 0.6 --failures 5 --overhead 12m --discount 0.9
shaketable cost --hours 72 --alpha 1 --failures 40 --overhead 3m --discount 0.65 --price 98.32
shaketable cost --hours 5 --alpha 0.3 --overhead 12m --json cost.json
"""
)
def cost(
    hours: Annotated[
        float, typer.Option(metavar="T", help="Length of the run, all on demand and without interruptions.")
    ],
    alpha: Annotated[float, typer.Option(metavar="SHARE", help="Share of the run that is on spot, 0 to 1.")],
    failures: Annotated[int, typer.Option(metavar="M", help="Interruptions in the whole run.")] = 0,
    overhead: Annotated[
        str, typer.Option(metavar="DURATION", help="Time that one interruption adds: 12m, 90s, 1h30m.")
    ] = "0s",
    discount: Annotated[
        float, typer.Option(metavar="SHARE", help="Discount of the spot price. 0.9: spot costs a tenth.")
    ] = 0.9,
    price: Annotated[
        float | None, typer.Option(metavar="P", min=0, help="Co, the price of an hour on demand, in any currency.")
    ] = None,
    json: Json = None,
) -> int:
    """Compute what spot capacity saves.

    Prints the cost of a run, and the number of interruptions at which spot stops paying. Costs are in units of Co, the
    price of one hour on demand. The exact form charges the time that interruptions add at the on-demand price. The
    short form spreads it over spot and on demand."""
    from shaketable.reports.console import Console

    spot = _spot(hours, alpha, failures, overhead, discount)
    if price is not None and not math.isfinite(price):
        raise UsageError(f"--price is {price:g}: give what an hour on demand costs, such as 98.32")
    check_json(json)
    try:
        answers = {"short": short(spot), "exact": exact(spot)}
    except OverflowError:
        raise UsageError(f"--hours {hours:g}, --failures {failures}, --overhead {overhead}: too large") from None
    console = Console(sys.stdout)
    for line in lines(spot, answers, price):
        console.line(line)
    write(json, encoded(as_json(spot, answers, price)))
    return results.EXIT_PASS


def _spot(hours: float, alpha: float, failures: int, overhead: str, discount: float) -> Spot:
    try:
        return Spot(hours, alpha, failures, in_hours(overhead, "--overhead"), discount)
    except ValueError as error:
        raise UsageError(f"--{error}") from None


def lines(spot: Spot, answers: dict[str, Cost], price: float | None) -> list[str]:
    """What is printed: a column for each form."""
    both = list(answers.values())
    rows = [
        ("", [f"{name} form" for name in answers]),
        ("hours in all", [f"{spot.total_h:.2f}"] * 2),
        ("cost in Co", [f"{one.cost:.2f}" for one in both]),
        *([("cost", [f"{one.cost * price:.2f}" for one in both])] if price is not None else []),
        ("saved", [f"{100 * one.saved:.1f} %" for one in both]),
        ("may take longer by", [_percent(one.stretch) for one in both]),
        ("stops paying at failure", ["never" if one.stops_paying is None else f"{one.stops_paying}" for one in both]),
    ]
    return [_heading(spot, price), *(f"{name:<24}{''.join(f'{value:>14}' for value in row)}" for name, row in rows)]


def _heading(spot: Spot, price: float | None) -> str:
    times = f"{spot.failures} interruption{'' if spot.failures == 1 else 's'}"
    alone = f" ({spot.hours * price:.2f})" if price is not None else ""
    return (
        f"{spot.hours:g} h on demand{alone}, {100 * spot.alpha:g} % of it on spot at {100 * (1 - spot.discount):.3g} % "
        f"of the price, {times} of {60 * spot.overhead_h:g} min"
    )


def _percent(share: float) -> str:
    return "any time" if math.isinf(share) else f"{100 * share:.1f} %"


def as_json(spot: Spot, answers: dict[str, Cost], price: float | None) -> dict[str, Any]:
    forms = {name: _finite(dataclasses.asdict(answer)) for name, answer in answers.items()}
    return {**dataclasses.asdict(spot), "total_h": spot.total_h, "price": price, **forms}


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: null says that there is no limit."""
    return {key: None if value is not None and math.isinf(value) else value for key, value in values.items()}


@command(
    examples="""
shaketable goodput shaketable-results/latest                 every experiment of a run
shaketable goodput shaketable-results/latest/node-sigkill    one of them
shaketable goodput recordings/demo --json goodput.json       a production run under shaketable.Recorder
"""
)
def goodput(
    result_dir: Annotated[
        Path,
        typer.Argument(metavar="RESULT_DIR", help="A result folder, a directory of result folders, or a recording."),
    ],
    json: Json = None,
) -> int:
    """Show where the time of a recorded run went.

    The parts are productive, degraded, checkpoint, lost work, detect, restart, waiting, startup and other. They add up
    to wall time, from the start of the first driver to the exit of the last. Runs nothing, and writes nothing to
    RESULT_DIR."""
    from shaketable.reports.console import Console
    from shaketable.suites.command.judging import judge_folder

    check_json(json)
    judged = judge_folder(result_dir)
    measured = {result.name: result.goodput for result in (*judged.results, *filter(None, (judged.canary,)))}
    if not any(measured.values()):
        raise UsageError(f"{result_dir} holds no run that started: there is no time to measure")
    console = Console(sys.stdout)
    for name, one in measured.items():
        for line in goodput_lines(name, one):
            console.line(line)
    write(json, encoded({"experiments": [goodput_json(name, one) for name, one in measured.items()]}))
    return results.EXIT_PASS


def goodput_lines(name: str, measured: Goodput | None) -> list[str]:
    """One line for the whole, one for each part."""
    if measured is None:
        return [f"{name}: no attempt was ever started"]
    parts = [
        f"  {part.replace('_', ' '):<22}{measured.seconds[part]:>10.2f} s{100 * measured.of(part):>8.1f} %  {words}"
        for part, (_, words) in PARTS.items()
    ]
    again = f", {counted(measured.repeated_steps, 'step')} done again" if measured.repeated_steps else ""
    return [f"{name}: goodput {100 * measured.share:.1f} % of {measured.wall_s:.2f} s{again}", *parts]


def goodput_json(name: str, measured: Goodput | None) -> dict[str, Any]:
    """With the name that ml-goodput-measurement has for each part."""
    if measured is None:
        return {"name": name, "wall_s": None}
    parts = [
        {"part": part, "ml_goodput": theirs, "seconds": measured.seconds[part]} for part, (theirs, _) in PARTS.items()
    ]
    return {
        "name": name,
        "wall_s": measured.wall_s,
        "goodput": measured.share,
        "repeated_steps": measured.repeated_steps,
        "parts": parts,
    }
