"""`shaketable cost` and `goodput`: what interruptions cost in money and in time."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shaketable.reports import results
from shaketable.reports.console import Console
from shaketable.reports.cost import Cost, Spot, exact, short
from shaketable.reports.goodput import PARTS, Goodput
from shaketable.suites.catalogue import UsageError
from shaketable.suites.commands import Json, check_json, command, encoded, write
from shaketable.suites.durations import hours as in_hours


@command(
    examples="""
shaketable cost --hours 5 --alpha 0.6 --failures 5 --overhead 12m --discount 0.9
shaketable cost --hours 72 --alpha 1 --failures 40 --overhead 3m --discount 0.65 --price 98.32
shaketable cost --hours 5 --alpha 0.3 --overhead 12m --json cost.json
"""
)
def cost(
    hours: Annotated[
        float, typer.Option(metavar="T", help="How long the run takes, all of it on demand and in peace.")
    ],
    alpha: Annotated[float, typer.Option(metavar="SHARE", help="The share of it that runs on spot, 0 to 1.")],
    failures: Annotated[int, typer.Option(metavar="M", help="Interruptions in the whole run.")] = 0,
    overhead: Annotated[
        str, typer.Option(metavar="DURATION", help="What one of them adds to the run: 12m, 90s, 1h30m.")
    ] = "0s",
    discount: Annotated[
        float, typer.Option(metavar="SHARE", help="Of the spot price: 0.9 where spot costs a tenth.")
    ] = 0.9,
    price: Annotated[
        float | None, typer.Option(metavar="P", min=0, help="Co, an hour on demand, in any currency.")
    ] = None,
    json: Json = None,
) -> int:
    """What a run costs that is partly on spot capacity, and at how many interruptions that stops paying.

    Costs are in units of Co, the price of one hour on demand. The short form spreads what interruptions add over spot
    and on demand, the exact form pays it on demand."""
    spot = _spot(hours, alpha, failures, overhead, discount)
    if price is not None and not math.isfinite(price):
        raise UsageError(f"--price is {price:g}: give what an hour on demand costs, such as 98.32")
    check_json(json)
    try:
        answers = {"short": short(spot), "exact": exact(spot)}
    except OverflowError:
        raise UsageError(
            f"--hours {hours:g}, --failures {failures}, --overhead {overhead}: too large"
        ) from None
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
    ]  # fmt: skip
    return [
        _heading(spot, price),
        *(f"{name:<24}{''.join(f'{value:>14}' for value in row)}" for name, row in rows),
    ]


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
        typer.Argument(metavar="RESULT_DIR", help="A result folder, a directory of them, or a recording."),
    ],
    json: Json = None,
) -> int:
    """Where the time of a recorded run went: productive, checkpoint, lost work, detect, restart, waiting, degraded.

    Every second belongs to one part, so that the parts add up to wall time, from the start of the first driver to the
    exit of the last. Nothing is run and nothing is written to RESULT_DIR."""
    from shaketable.suites.judging import judge_folder

    check_json(json)
    judged = judge_folder(result_dir)
    measured = {result.name: result.goodput for result in (*judged.results, *filter(None, (judged.canary,)))}
    if not any(measured.values()):
        raise UsageError(f"{result_dir} holds no run that was ever started: there is no time to divide")
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
    return [f"{name}: goodput {100 * measured.share:.1f} % of {measured.wall_s:.2f} s", *parts]


def goodput_json(name: str, measured: Goodput | None) -> dict[str, Any]:
    """With the name that ml-goodput-measurement has for each part."""
    if measured is None:
        return {"name": name, "wall_s": None}
    parts = [
        {"part": part, "ml_goodput": theirs, "seconds": measured.seconds[part]}
        for part, (theirs, _) in PARTS.items()
    ]
    return {"name": name, "wall_s": measured.wall_s, "goodput": measured.share, "parts": parts}
