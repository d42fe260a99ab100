"""What the invariants know of the JAX job beforehand, and what they must catch of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shaketable.chaos.exact import ExactConfig, batch, lineage
from shaketable.chaos.history import events as h
from shaketable.chaos.history.view import History
from shaketable.chaos.invariants.metrics_match import metrics_match
from shaketable.chaos.invariants.resume_from_checkpoint import resume_from_checkpoint
from shaketable.chaos.invariants.sample_accounting import sample_accounting
from shaketable.chaos.plan import Configuration, Finding
from shaketable.chaos.run.baseline import needed
from shaketable.chaos.run.baseline_verdict import reference
from shaketable.suites.tests.rigs.story import Story

STEPS = {"steps": 6}
CONFIG = ExactConfig.of(STEPS)
KNOWN = lineage(CONFIG, 6)
JOB = "shaketable.workloads:jax_sharded"
Lies = dict[tuple[int, int], dict[str, Any]]
Invariant = Callable[[History], Finding]


def told(
    lies: Lies | None = None,
    *,
    begin: str = KNOWN[0],
    end: str = KNOWN[6],
    loss: float = 0.5,
    without: h.ReferenceRun | None = None,
) -> History:
    """Two workers, of which one dies; then one. `lies`: what is said otherwise, by (attempt, step)."""
    story = Story(max_failures=1, job=JOB, job_config=STEPS).launch()
    if without is not None:
        story.say(without)
    story.attempt(2, found=(0, begin))
    take(story, 1, 4, lies or {})
    story.fault("sigkill_worker", ranks=[1]).end("worker_death", "max_failures")
    story.attempt(1, found=(4, KNOWN[4]))
    take(story, 5, 6, lies or {})
    return story.finish(metrics={"step": 6, "digest": end, "loss": loss}).history


def take(story: Story, first: int, last: int, lies: Lies) -> None:
    for step in range(first, last + 1):
        for rank in range(story.world):
            said: dict[str, Any] = {"digest": KNOWN[step], "samples": list(batch(step, CONFIG)[rank :: story.world])}
            said |= lies.get((story.number, step), {})
            story.step(step, rank, checkpoint=True, **said)
        story.commit(step)


@pytest.mark.parametrize("invariant", [sample_accounting, resume_from_checkpoint])
def test_a_run_as_it_is_known_beforehand_passes(invariant: Invariant) -> None:
    assert invariant(told()).status == "PASS"


@pytest.mark.parametrize(
    ("invariant", "history", "said"),
    [
        (sample_accounting, told({(2, 5): {"digest": KNOWN[4]}}), "after step 5, but it must be"),
        (sample_accounting, told({(2, 5): {"samples": list(batch(6, CONFIG))}}), "does not belong to it"),
        (sample_accounting, told({(2, 5): {"samples": list(batch(5, CONFIG))[1:]}}), "is missing"),
        (sample_accounting, told(end=KNOWN[5]), "the run finished with digest"),
        (resume_from_checkpoint, told(begin=KNOWN[1]), "but nothing had been committed"),
    ],
)
def test_another_state_other_samples_and_another_beginning_are_caught(
    invariant: Invariant, history: History, said: str
) -> None:
    finding = invariant(history)
    assert finding.status == "FAIL" and said in finding.reason


def test_its_loss_is_compared_with_a_run_without_faults_to_the_bit_in_any_world() -> None:
    configuration = Configuration(job=JOB)
    without = reference(told(loss=0.5).events, configuration)
    assert needed(configuration) and without.metrics["loss"] == 0.5
    verdicts = {loss: metrics_match(told(loss=loss, without=without)).status for loss in (0.5, 0.5 + 1e-12)}
    assert verdicts == {0.5: "PASS", 0.5 + 1e-12: "FAIL"}
