"""sample-accounting and metrics-match: what they must catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shaketable.chaos.chain import reference_digest
from shaketable.chaos.history import events as h
from shaketable.chaos.history.view import History
from shaketable.chaos.invariants.metrics_match import metrics_match
from shaketable.chaos.invariants.sample_accounting import sample_accounting
from shaketable.suites.tests.rigs.story import JOB, Story, always, change, crash_and_finish


def two(step: int = 3) -> Story:
    """Two workers, in the middle of a run, about to take `step`."""
    return Story().launch().attempt(2).steps(1, step - 1)


def with_a_step_left_out() -> Story:
    return two().step(4, 0).step(4, 1)


def doubled() -> Story:
    return two().step(2, 0)


def forged() -> Story:
    return two().step(3, 0, digest="f" * 64)


def shared() -> Story:
    story = two().step(3, 0)
    samples = [e.samples for e in story.events if isinstance(e, h.Stepped)][-1]
    return story.step(3, 1, samples=samples)


def foreign() -> Story:
    return two().step(3, 0, samples=[10_000])


def with_a_sample_left_out() -> Story:
    return two().step(3, 0).step(3, 1, samples=[])


def committed_without_rank_1() -> Story:
    return two().step(3, 0, checkpoint=True).commit(3)


def resumed_too_late() -> Story:
    """Nobody did step 3: the second attempt claims to resume from it."""
    story = Story(max_failures=1).launch().attempt(2).steps(1, 2)
    story.fault("sigkill_worker", ranks=[1]).end("worker_death", "max_failures")
    return story.attempt(2, found=(3, reference_digest(3, JOB))).steps(4, 6).finish()


def wrong_result() -> Story:
    story = Story().launch().attempt(2).steps(1, 6)
    return story.finish(metrics={"step": 6, "digest": reference_digest(5, JOB)})


def returned_early() -> Story:
    """All ranks have returned from the function, which was not done."""
    return Story().launch().attempt(2).steps(1, 4).finish()


WRONG: list[tuple[Callable[[], Story], str]] = [
    (with_a_step_left_out, "rank 0 of attempt 1 took step 4 after step 2"),
    (doubled, "rank 0 of attempt 1 took step 2 after step 2"),
    (forged, "rank 0 of attempt 1 had digest ffffffff after step 3, but it must be"),
    (shared, "was consumed twice"),
    (foreign, "step 3 of attempt 1: sample 10000 does not belong to it"),
    (with_a_sample_left_out, "is missing"),
    (committed_without_rank_1, "committed, but only ranks [0] of 2 recorded it"),
    (resumed_too_late, "no attempt did step 3, but the run finished with 6"),
    (returned_early, "the run finished, but the last step that was done is 4 of 6"),
    (wrong_result, "the run finished with digest"),
]


@pytest.mark.parametrize(("tell", "reason"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_a_wrong_step_is_caught(tell: Callable[[], Story], reason: str) -> None:
    finding = sample_accounting(tell().history)
    assert finding.status == "FAIL", finding
    assert reason in finding.reason


def test_steps_done_twice_with_the_right_digest_are_counted_not_blamed() -> None:
    finding = sample_accounting(crash_and_finish().history)
    assert (finding.status, finding.reason) == ("PASS", "6 steps accounted for, 1 of them done more than once")


def test_a_job_without_digests_and_samples_is_not_judged() -> None:
    events = change(crash_and_finish().events, h.Stepped, always, digest=None, samples=None)
    assert sample_accounting(History(events)).status == "NOT APPLICABLE"


def compared(loss: float, *, worlds: tuple[int, int] = (3, 3), reference: tuple[int, ...] = (3,)) -> History:
    story = Story(max_failures=1, job="shaketable.workloads:torch_ddp").launch()
    story.say(h.ReferenceRun(metrics={"step": 6, "loss": 0.5}, tolerance=1e-4, world_sizes=list(reference)))
    story.attempt(worlds[0]).steps(1, 4).fault("sigkill_worker", ranks=[1]).end("worker_death", "max_failures")
    return story.attempt(worlds[1]).steps(5, 6).finish(metrics={"step": 6, "loss": loss}).history


@pytest.mark.parametrize(
    ("found", "kwargs", "status"),
    [
        (0.5, {}, "PASS"),
        (0.5 + 1e-9, {}, "FAIL"),
        (0.5 + 1e-9, {"worlds": (3, 2)}, "PASS"),
        (0.5 + 1e-9, {"reference": ()}, "PASS"),
        (0.5 + 1e-9, {"reference": (2, 3)}, "PASS"),
        (0.51, {"worlds": (3, 2)}, "FAIL"),
        (float("nan"), {"worlds": (3, 2)}, "FAIL"),
    ],
)
def test_metrics_match_to_the_bit_or_within_the_tolerance(found: float, kwargs: Any, status: str) -> None:
    assert metrics_match(compared(found, **kwargs)).status == status


def test_a_metric_that_is_missing_or_a_step_short_is_caught() -> None:
    story = Story(job="shaketable.workloads:torch_ddp").launch()
    story.say(h.ReferenceRun(metrics={"step": 6, "loss": 0.5}, tolerance=0.1))
    story.attempt(1).steps(1, 6).finish(metrics={"step": 6})
    assert metrics_match(story.history).reason == "loss is missing; in the baseline it is 0.5"
    events = change(story.events, h.RunEnded, always, metrics={"step": 5, "loss": 0.5})
    assert metrics_match(History(events)).reason.startswith("step is 5, in the baseline 6")


def nothing_left(metrics: dict[str, Any]) -> History:
    """All steps are committed when a worker dies: the next attempt only returns."""
    story = Story(max_failures=1, job="shaketable.workloads:torch_ddp").launch()
    story.say(h.ReferenceRun(metrics={"step": 6, "loss": 0.5}, tolerance=1e-4, world_sizes=[3]))
    story.attempt(3).steps(1, 6).fault("sigkill_worker", ranks=[1]).end("worker_death", "max_failures")
    return story.attempt(3).finish(metrics=metrics).history


@pytest.mark.parametrize(
    ("metrics", "status", "says"),
    [
        ({"step": 6, "loss": 0.5}, "PASS", "2 metrics as in the baseline, to the bit"),
        ({"step": 6, "loss": 0.6}, "FAIL", "loss is 0.6, in the baseline 0.5"),
        ({"step": 6}, "FAIL", "loss is missing; in the baseline it is 0.5"),
    ],
    ids=["those of its commit", "others", "none of them"],
)
def test_a_bundled_run_that_had_nothing_left_to_do_has_the_metrics_of_its_last_commit(
    metrics: dict[str, Any], status: str, says: str
) -> None:
    found = metrics_match(nothing_left(metrics))
    assert found.status == status and found.reason.startswith(says), found


def test_without_a_reference_run_metrics_are_not_judged() -> None:
    assert metrics_match(crash_and_finish().history).status == "NOT APPLICABLE"
