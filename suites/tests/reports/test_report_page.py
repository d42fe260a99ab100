"""What the page shows besides its time line, from histories written out literally or played."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

import msgspec
import pytest

from shaketable.chaos.experiment.file import load
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history import events as h
from shaketable.chaos.history.view import History
from shaketable.chaos.plan import Finding
from shaketable.chaos.simulation import player
from shaketable.chaos.verdict.judge import judge
from shaketable.chaos.verdict.recoveries import Recovery
from shaketable.reports.html import Page
from shaketable.reports.page.charges import charges
from shaketable.reports.page.focus import focuses
from shaketable.reports.page.links import links
from shaketable.reports.page.records import packed, shown
from shaketable.reports.page.section import section
from shaketable.reports.page.series import series
from shaketable.reports.page.titles import title_of
from shaketable.reports.page.violations import Violation, violations
from shaketable.reports.page.waterfall import waterfalls
from shaketable.reports.results import Result, Run
from shaketable.reports.timeline import MAX_ALL_STEP_MARKS, timeline
from shaketable.suites.mutants import patches
from shaketable.suites.tests.rigs import recorded

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def played(name: str) -> list[h.AnyEvent]:
    plan = load(EXPERIMENTS / f"{name}.yaml", {"cluster": "simulated"}).plan
    return list(player.play(plan, arm(plan)).events)


def found(events: list[h.AnyEvent], reason: str) -> Violation:
    (one,) = violations(History(events), [Finding("an-invariant", "FAIL", reason)])
    return one


def second(events: list[h.AnyEvent], violation: Violation) -> float:
    return round(violation.at_s - events[0].at_s, 3)


# ---- violations ----


def test_a_violation_stands_where_the_attempt_began_that_its_reason_names() -> None:
    events = recorded.worker_crash()
    violation = found(events, "attempt 2 resumed from checkpoint-3, but the latest commit before it was another")
    event = events[violation.record - 1]
    assert isinstance(event, h.AttemptStarted) and event.attempt == 2
    assert violation.at_s == event.at_s


def test_a_violation_by_a_rank_stands_at_what_that_rank_did() -> None:
    events = recorded.worker_crash()
    violation = found(events, "attempt 1 has 3 workers, step 7 was taken by rank 2 of 4")
    event = events[violation.record - 1]
    assert isinstance(event, h.Stepped) and (event.attempt, event.rank, event.step) == (1, 2, 7)


def test_a_violation_in_the_log_stands_when_the_record_was_written_not_when_it_was_read_back() -> None:
    events = played("worker-crash")
    violation = found(events, "the run gave up (log record 14) with 0 of 1 charged")
    event = events[violation.record - 1]
    assert isinstance(event, h.LogRecord) and event.number == 14
    assert violation.at_s == event.record["at_s"] < event.at_s


def test_a_violation_of_the_whole_run_stands_at_its_end() -> None:
    events = recorded.worker_crash()
    assert isinstance(events[found(events, "2 processes are left").record - 1], h.RunEnded)


@pytest.mark.parametrize(
    ("experiment", "mutant", "attempt"),
    [("node-sigkill", "node-loss-not-charged", 1), ("worker-crash", "resume-not-passed-on", 2)],
)
def test_what_a_broken_runtime_violates_is_marked_in_the_attempt_that_did_it(
    experiment: str, mutant: str, attempt: int
) -> None:
    with patches.applied(mutant):
        events = played(experiment)
    judged = judge(events)
    assert judged.verdict == "FAIL"
    violation = violations(History(events), judged.findings)[0]
    begins = [event.at_s for event in events if isinstance(event, h.AttemptStarted)] + [float("inf")]
    assert begins[attempt - 1] <= violation.at_s <= begins[attempt]
    picture = timeline(events, [violation])
    assert picture is not None
    (mark,) = picture.lanes[0].marks
    assert (picture.lanes[0].kind, mark.label) == ("violations", f"{violation.invariant} violated")


# ---- what is plotted ----


def test_the_step_rate_has_a_gap_between_attempts_and_counts_steps_of_all_ranks() -> None:
    plotted = series(History(recorded.worker_crash()))
    rates = [value for _, value in plotted.rate if value is not None]
    assert rates == pytest.approx([20.0] * len(rates), rel=0.01)
    assert sum(value is None for _, value in plotted.rate) == 2
    assert plotted.loss == () and plotted.loss_name == ""


def test_the_loss_is_plotted_where_the_job_reports_one() -> None:
    events = [
        msgspec.structs.replace(event, metrics={"step": event.step, "val_loss": 1 / event.step})
        if isinstance(event, h.Stepped)
        else event
        for event in recorded.worker_crash()
    ]
    plotted = series(History(events))
    assert plotted.loss_name == "val_loss"
    assert plotted.loss[0][1] == 1.0 and plotted.loss[1][1] == 0.5


def test_the_loss_of_the_baseline_is_plotted_at_the_seconds_of_the_same_steps() -> None:
    events = [
        msgspec.structs.replace(event, metrics={"loss": 1 / event.step + (event.attempt == 2)})
        if isinstance(event, h.Stepped)
        else event
        for event in recorded.worker_crash()
    ]
    steps = sorted({event.step for event in events if isinstance(event, h.Stepped)})
    told = {0: [h.ToldMetrics(step, {"loss": 1 / step}) for step in steps[:-1]]}
    plotted = series(History([*events, h.ReferenceRun(metrics={}, tolerance=0.0, reports=told)]))
    assert [at_s for at_s, _ in plotted.expected] == [at_s for at_s, _ in plotted.loss]
    apart = [
        None if one is None or other is None else round(one - other)
        for (_, one), (_, other) in zip(plotted.loss, plotted.expected, strict=True)
    ]
    gap = apart.index(None)
    # up to the restart, from there on, and the last step, which the baseline does not have
    assert set(apart[:gap]) == {0} and set(apart[gap + 1 : -2]) == {1} and apart[-2:] == [None, None]
    assert series(History(events)).expected == ()


def test_a_fault_is_shaded_until_the_run_trains_again() -> None:
    events = recorded.worker_crash()
    (shade,) = series(History(events)).shades
    first = min(e.at_s for e in events if isinstance(e, h.Stepped) and e.attempt == 2) - events[0].at_s
    assert shade.name == "sigkill_worker"
    assert shade.end_s == pytest.approx(first, abs=0.01) and shade.begin_s < shade.end_s


def test_a_long_run_is_thinned_in_picture_and_plot() -> None:
    timed = [(0.0, recorded.began()), *recorded.attempt(0.5, 1, {0: 1, 1: 2, 2: 3}, 1, 9000, step_s=0.001)]
    events = recorded.stamped(timed)
    picture = timeline(events)
    assert picture is not None
    assert sum(mark.kind == "step" for lane in picture.lanes for mark in lane.marks) <= MAX_ALL_STEP_MARKS
    assert len(series(History(events)).rate) <= 1002


def test_buttons_lead_around_each_fault_and_behind_the_start() -> None:
    history = History(recorded.worker_crash())
    (shade,) = series(history).shades
    around, training = focuses(history, (shade,), ())
    assert around.label == "Around the fault"
    assert around.begin_s < shade.begin_s < shade.end_s < around.end_s
    assert training.label == "Without the start" and training.begin_s > 0


# ---- tables ----


def test_the_ledger_has_each_ending_with_what_was_spent_after_it() -> None:
    rows = charges(History(played("worker-crash-beyond-budget")))
    assert [(row.cause, row.account, row.left) for row in rows] == [
        ("worker_death", "max_failures", "1 of 1"),
        ("worker_death", "max_failures", "2 of 1"),
    ]


def test_the_waterfall_puts_the_parts_of_a_recovery_behind_one_another() -> None:
    fast = Recovery(0, "sigkill_worker", 1.0, 0.1, 0.2, 0.3, 0.15, 0.25, 1, 3.5)
    slow = Recovery(1, "sigkill_node", 2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0, None)
    never = Recovery(2, "freeze_node")
    first, second, third = waterfalls([fast, slow, never])
    assert [part.name for part in first.parts] == ["detect", "decide", "start", "restore", "first step"]
    assert [round(part.begin, 3) for part in first.parts] == [0.0, 0.05, 0.15, 0.3, 0.375]
    assert (first.back, first.wasted, second.wasted, third.back, third.parts) == ("1.00 s", "3.50 s", "-", "-", ())


def test_a_title_says_the_step_that_was_hit() -> None:
    def titled(planned: int, hit: int) -> str:
        fault = h.PlannedFault(name="sigkill_worker", at={"step": planned})
        events: list[h.AnyEvent] = [
            msgspec.structs.replace(recorded.began(), faults=[fault]),
            h.FaultTriggered(fault=0, name="sigkill_worker", trigger={"step": planned}, by="w:1", step=hit),
        ]
        return title_of(History(events), "A worker is killed at step 12")

    assert titled(12, 12) == "A worker is killed at step 12"
    assert titled(2, 2) == "A worker is killed at step 2 (12, scaled)"
    assert titled(12, 13) == "A worker is killed at step 13 (planned: 12)"


# ---- records, links, order ----


def test_the_records_in_the_page_are_those_of_the_history() -> None:
    events = recorded.worker_crash()
    picture = timeline(events)
    assert picture is not None
    lines = shown(picture)
    unpacked = json.loads(zlib.decompress(base64.b64decode(packed(events, lines))))
    assert set(unpacked) == {str(line) for line in lines}
    assert unpacked[str(min(lines))] == json.loads(h.encode(events[min(lines) - 1]))


def test_links_lead_to_every_log_there_is_and_to_the_baseline(tmp_path: Path) -> None:
    names = ("history.jsonl", "driver-0.log", "driver-1.log", "witness/worker-9.jsonl")
    baseline = [f"control-runs/abc/0/{name}" for name in ("history.jsonl", "driver-0.log")]
    for name in (*(f"crash/{name}" for name in names), *baseline):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    made = {link.text: link.href for link in links(tmp_path / "crash", tmp_path, baseline=True)}
    assert made == {
        "history": "crash/history.jsonl",
        "log of driver 0": "crash/driver-0.log",
        "log of driver 1": "crash/driver-1.log",
        "recorded by worker 9": "crash/witness/worker-9.jsonl",
        "history of baseline abc/0": "control-runs/abc/0/history.jsonl",
        "log of baseline abc/0": "control-runs/abc/0/driver-0.log",
    }


def result(name: str, verdict: str) -> Result:
    return Result(name=name, verdict=verdict, reason="why", seconds=1.0, folder=name)  # type: ignore[arg-type]


def test_what_somebody_has_to_act_on_stands_first() -> None:
    page = Page()
    for name, verdict in (("one", "PASS"), ("two", "INVALID"), ("three", "FAIL")):
        page.add(result(name, verdict), ())
    text = page.render(Run("0.1.0", "2.60.0", 7, ""))
    assert text.index('id="three"') < text.index('id="two"') < text.index('id="one"')
    assert text.index('href="#three"') < text.index('href="#one"')


def test_a_page_of_a_run_that_goes_on_says_what_is_still_to_come() -> None:
    page = Page()
    page.add(result("one", "PASS"), ())
    run = Run("0.1.0", "2.60.0", 7, "", results=(result("one", "PASS"),), canary_expected=True)
    text = page.render(run, ["two", "three"])
    assert "1 of 3 are here. Still to come: two, three." in text
    assert ">RUNNING<" in text and "The canary" not in text
    assert "The canary was not caught" in page.render(run)


def test_a_history_that_cannot_be_drawn_takes_no_verdict_with_it() -> None:
    broken = msgspec.structs.replace(recorded.began(), configuration={"num_workers": "many"})
    events = [broken if isinstance(e, h.ExperimentBegan) else e for e in recorded.worker_crash()]
    made = section(result("one", "FAIL"), events)
    assert made.problem.startswith("the picture could not be drawn") or made.drawing is not None
    page = Page()
    page.add(result("one", "FAIL"), [msgspec.structs.replace(recorded.began(), configuration=7), *events])
    text = page.render(Run("0.1.0", "2.60.0", 7, ""))
    assert "the picture could not be drawn" in text and ">FAIL<" in text
