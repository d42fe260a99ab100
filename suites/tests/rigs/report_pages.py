"""Results directories as `shaketable run` leaves them, played in this process in virtual time: for tests of pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from shaketable.chaos.experiment.file import load
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history import events as h
from shaketable.chaos.history.sealing import sealed
from shaketable.chaos.history.view import History
from shaketable.chaos.simulation import player
from shaketable.chaos.verdict.judge import judge
from shaketable.reports.goodput import goodput
from shaketable.reports.results import Result, Run
from shaketable.suites.gate import execution
from shaketable.suites.gate.outputs import LiveReport
from shaketable.suites.mutants import patches

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
# an experiment, and the mutant of the runtime that it is played with; empty: none
Played = tuple[str, str]


def run_in(folder: Path, experiments: Sequence[Played], *, loss: bool = False) -> Path:
    """The page of a run of `experiments`, with its histories beside it. `loss`: the job reports one, and did so without
    faults."""
    results = tuple(_played(folder, name, mutant, loss) for name, mutant in experiments)
    run = Run("0.1.0", "2.60.0", 7, "2026-11-22T03:12:00+00:00", sum(each.seconds for each in results), results)
    report = LiveReport.of(run, folder)
    report.write(run)
    return report.path


def _played(folder: Path, name: str, mutant: str, loss: bool) -> Result:
    plan = load(EXPERIMENTS / f"{name}.yaml", {"cluster": "simulated"}).plan
    with patches.applied(mutant):
        events = [_with_loss(event) if loss else event for event in player.play(plan, arm(plan)).events]
    if loss:
        events.append(_baseline(events))
    here = folder / name
    here.mkdir(parents=True)
    (here / "history.jsonl").write_bytes(sealed(events))
    (here / "driver-0.log").write_text("the driver says hello\n")
    history = History(events)
    told = Result(
        name=name,
        verdict="ERROR",
        reason="",
        seconds=round(events[-1].at_s - events[0].at_s, 1),
        folder=name,
        title=plan.title,
        reproduce=f"shaketable run shaketable-results/latest/{name}/experiment.yaml"
        + (f" --mutant {mutant}" if mutant else ""),
    )
    return execution.judged(told, judge(history), history, goodput)


def _baseline(events: Sequence[h.AnyEvent]) -> h.ReferenceRun:
    """In which every step had the same loss."""
    steps = [event for event in events if isinstance(event, h.Stepped) and event.metrics]
    reports = {
        rank: [h.ToldMetrics(number, metrics) for number, metrics in sorted(told.items())]
        for rank in {step.rank for step in steps}
        if (told := {step.step: step.metrics or {} for step in steps if step.rank == rank})
    }
    return h.ReferenceRun(at_s=events[-1].at_s, metrics={}, tolerance=0.0, reports=reports)


def _with_loss(event: h.AnyEvent) -> h.AnyEvent:
    if not isinstance(event, h.Stepped):
        return event
    return msgspec.structs.replace(event, metrics={"step": event.step, "loss": 2.3 / (1 + event.step / 8)})
