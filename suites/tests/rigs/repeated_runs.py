"""Runs of several experiments with repeats, as a gate writes them, with recoveries that vary by chance from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from shaketable.chaos.plan import Finding
from shaketable.chaos.verdict.recoveries import Recovery
from shaketable.reports.goodput import PARTS, Goodput
from shaketable.reports.results import Result, ResultVerdict, Run
from shaketable.suites.gate.outputs import as_json

# as a gate has them: from a twentieth of a second to a minute
EXPERIMENTS = {f"experiment-{number}": 0.05 * 1.4**number for number in range(22)}


def run(
    seed: int,
    *,
    repeats: int = 5,
    noise: float = 0.07,
    slower: Mapping[str, float] | None = None,
    verdicts: Mapping[str, ResultVerdict] | None = None,
    experiments: Mapping[str, float] = EXPERIMENTS,
) -> Run:
    """`noise`: the standard deviation of a logarithm. `slower`: how many times, by experiment."""
    dice = random.Random(seed)
    results = [
        result(
            name, repeat, back_s * (slower or {}).get(name, 1.0) * dice.lognormvariate(0, noise), verdicts or {}, dice
        )
        for name, back_s in experiments.items()
        for repeat in range(1, repeats + 1)
    ]
    return Run("0.1.0", "2.60.0", 7, "2026-11-21T03:12:00+00:00", seconds=60.0, results=tuple(results))


def measured(back_s: Sequence[float], goodput: Sequence[float]) -> Run:
    """One experiment with these recoveries, and shares of time that were productive."""
    results = []
    for repeat, (each_s, share) in enumerate(zip(back_s, goodput, strict=True), 1):
        made = result("worker-crash", repeat, each_s, {}, random.Random(0))
        seconds = dict.fromkeys(PARTS, 0.0) | {"productive": share, "restart": 1 - share}
        results.append(replace(made, goodput=Goodput(1.0, seconds)))
    return Run("0.1.0", "2.60.0", 7, "2026-11-21T03:12:00+00:00", seconds=60.0, results=tuple(results))


def result(name: str, repeat: int, back_s: float, verdicts: Mapping[str, ResultVerdict], dice: random.Random) -> Result:
    """One that fails does so by metrics-match."""
    verdict = verdicts.get(name, "PASS")
    seconds = dict.fromkeys(PARTS, 0.0) | {"productive": 4 * dice.lognormvariate(0, 0.02), "restart": back_s}
    return Result(
        name=f"{name}-{repeat}",
        verdict=verdict,
        reason="because",
        seconds=8.0,
        folder=f"{name}-{repeat}",
        subject="bundled",
        cluster="local",
        goodput=Goodput(sum(seconds.values()), seconds),
        recoveries=(Recovery(0, "sigkill_worker", back_s=back_s, steps_lost=1),),
        experiment=name,
        repeat=repeat,
        findings=(Finding("metrics-match", "FAIL", "because"),) if verdict == "FAIL" else (),
    )


def write(run: Run, folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "results.json").write_bytes(as_json(run))
    return folder
