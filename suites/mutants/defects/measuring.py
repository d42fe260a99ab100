"""What would make the harness's own figures wrong: what a fault cost (docs/comparing.md), and what `compare` makes of
it. The tests of the figures catch them; no invariant can, for all verdicts stay right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as with_
from typing import Any

import msgspec

from shaketable.suites.mutants.defining import defect, replace

RECOVERIES, COMPARED = "shaketable.chaos.verdict.recoveries", "shaketable.reports.comparison.compared"
FIGURES = "chaos/test_recoveries.py::"
PARTS = FIGURES + "test_a_fault_has_the_parts_of_its_recovery_and_they_add_up"


def _marked(recoveries: Any, kind: str, mark: Callable[[list[float]], float | None]) -> None:
    """Ends a part elsewhere: `mark` gets the times of all events of `kind` of one attempt."""

    def make(original: Any) -> Any:
        def last_s(events: Any) -> dict[Any, float]:
            if not events or type(events[0]).__name__ != kind:
                return dict(original(events))
            told: dict[Any, list[float]] = {}
            for event in events:
                told.setdefault((event.term, event.attempt), []).append(event.at_s)
            marked = ((place, mark(times)) for place, times in told.items())
            return {place: at_s for place, at_s in marked if at_s is not None}

        return last_s

    replace(recoveries, "_last_s", make)


def _changed(recoveries: Any, **make: Callable[[Any], Any]) -> None:
    """A figure of each recovery, changed where there is one."""

    def made(original: Any) -> Any:
        def recovery(*arguments: Any) -> Any:
            found = original(*arguments)
            told = {name: change(getattr(found, name)) for name, change in make.items() if getattr(found, name)}
            return with_(found, **told)

        return recovery

    replace(recoveries, "_recovery", made)


@defect(RECOVERIES, tests=PARTS)
def noticed_at_once(recoveries: Any) -> None:
    """`detect_s` is always 0: a fault counts as noticed when it lands"""
    replace(recoveries, "_noticed_s", lambda original: lambda history, fault: fault.at_s)


@defect(RECOVERIES, tests=FIGURES + "test_the_first_sign_of_a_notice_is_that_the_run_holds")
def a_hold_is_no_sign(recoveries: Any) -> None:
    """`detect_s` of a notice lasts until its attempt ends, although the run held before"""
    replace(recoveries, "AS_BEFORE", lambda original: (*original, "HOLDING"))


@defect(RECOVERIES, tests=PARTS)
def decided_at_once(recoveries: Any) -> None:
    """`decide_s` is always 0, and `start_s` holds the wait for capacity"""
    _marked(recoveries, "AttemptStarted", lambda told: None)


@defect(RECOVERIES, tests=FIGURES + "test_a_part_ends_with_the_last_of_the_workers")
def started_with_the_first_worker(recoveries: Any) -> None:
    """`start_s` ends when the first worker is in the training function"""
    _marked(recoveries, "WorkerStarted", min)


@defect(RECOVERIES, tests=PARTS)
def restored_with_the_first_worker(recoveries: Any) -> None:
    """`restore_s` ends when the first worker has its checkpoint"""
    _marked(recoveries, "Resumed", min)


@defect(RECOVERIES, tests=PARTS)
def first_step_forgotten(recoveries: Any) -> None:
    """`first_step_s` is always 0, so that the parts do not add up"""
    _changed(recoveries, first_step_s=lambda seconds: 0.0)


@defect(RECOVERIES, tests=FIGURES + "test_what_one_ending_cost_is_booked_once_and_each_fault_has_its_own_time")
def back_since_the_last_fault(recoveries: Any) -> None:
    """`back_s` counts from the last fault of the attempt, for each of them"""

    def make(original: Any) -> Any:
        def backs(history: Any) -> Any:
            told = list(original(history))
            return [(msgspec.structs.replace(fault, at_s=told[-1][0].at_s), back) for fault, back in told]

        return backs

    replace(recoveries, "backs", make)


@defect(RECOVERIES, tests=PARTS)
def repeated_steps_not_counted(recoveries: Any) -> None:
    """`steps_lost` leaves out the step at which the fault landed"""
    _changed(recoveries, steps_lost=lambda steps: steps - 1)


@defect(RECOVERIES, tests=FIGURES + "test_what_one_ending_cost_is_booked_once_and_each_fault_has_its_own_time")
def losses_booked_to_every_fault(recoveries: Any) -> None:
    """what an attempt lost is booked to each fault that hit it, so that sums count it twice"""

    def make(original: Any) -> Any:
        def booked(history: Any) -> dict[int, int]:
            hit = {fault.fault: history.attempt_at(fault.at_s) for fault in history.all(recoveries.FaultInjected)}
            return {fault: attempt.start.position for fault, attempt in hit.items() if attempt is not None}

        return booked

    replace(recoveries, "_booked", make)


@defect(RECOVERIES, tests=PARTS)
def one_worker_wasted(recoveries: Any) -> None:
    """`wasted_worker_s` is the time of one worker, not of all"""
    replace(recoveries, "_wasted", lambda original: lambda kept, again_s: kept and original((kept[0], 1), again_s))


@defect(
    RECOVERIES,
    tests="chaos/test_judge_verdict.py::test_a_recovery_slower_than_expected_leaves_the_verdict_and_is_told_apart",
)
def limit_of_recoveries_ignored(recoveries: Any) -> None:
    """`recovery_within_s` is never exceeded"""
    replace(recoveries, "too_slow", lambda original: lambda history: iter(()))


COMPARING = "reports/test_compare.py::"


@defect(COMPARED, tests=COMPARING + "test_ten_pairs_of_identical_builds_are_quiet")
def every_difference_is_a_change(compared: Any) -> None:
    """`compare` calls a difference a change however probable it is by chance"""
    replace(compared, "MOST_CHANCE", lambda original: 1.0)


@defect(COMPARED, tests=COMPARING + "test_a_recovery_that_is_30_percent_slower_is_found_with_five_repeats")
def no_difference_is_a_change(compared: Any) -> None:
    """`compare` never calls a difference a change"""
    replace(compared, "MOST_CHANCE", lambda original: 0.0)


@defect(COMPARED, tests=COMPARING + "test_what_did_not_pass_is_not_measured_and_its_verdict_is_told")
def failures_are_measured_too(compared: Any) -> None:
    """`compare` measures results that did not pass"""
    replace(compared, "PASSED", lambda original: (*original, "FAIL", "INVALID"))


@defect(COMPARED, tests=COMPARING + "test_beyond_the_limit_the_exit_code_is_1_and_the_reason_is_printed")
def slower_than_allowed_is_allowed(compared: Any) -> None:
    """`compare --max-slower` finds nothing beyond its limit"""
    replace(compared, "_beyond", lambda original: lambda *arguments: iter(()))


# ---- what the report shows (docs/report.md)


@defect(
    "shaketable.reports.page.section",
    tests="reports/test_report_page.py::test_what_somebody_has_to_act_on_stands_first",
)
def failures_stand_anywhere(section: Any) -> None:
    """the report lists experiments in the order in which they ended, failed or not"""
    replace(section.Section, "rank", lambda original: property(lambda self: 0))


@defect("shaketable.reports.html", tests="reports/test_reports_html.py::test_whatever_comes_from_users_is_escaped")
def page_not_escaped(html: Any) -> None:
    """what stands in an experiment file or a history becomes part of the page's code"""

    def make(original: Any) -> Any:
        def environment() -> Any:
            made = original()
            made.autoescape = False
            return made

        return environment

    replace(html, "environment", make)


@defect(
    "shaketable.reports.page.violations",
    tests="reports/test_report_page.py::test_a_violation_stands_where_the_attempt_began_that_its_reason_names",
)
def violations_at_the_end(violations: Any) -> None:
    """every violation is marked at the end of the run"""
    replace(violations, "_place", lambda original: lambda history, reason: violations._end(history))
