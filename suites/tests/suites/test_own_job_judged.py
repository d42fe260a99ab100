"""What the reports of a user's own job prove, told as stories: what catches what, and what is never held against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from shaketable.chaos.history import events as h
from shaketable.chaos.invariants.metrics_match import metrics_match
from shaketable.chaos.invariants.no_leaks import no_leaks
from shaketable.chaos.invariants.resume_from_checkpoint import resume_from_checkpoint
from shaketable.chaos.invariants.sample_accounting import sample_accounting
from shaketable.chaos.verdict.judge import judge
from shaketable.suites.tests.rigs.own_job_rig import SCRIPT, configured
from shaketable.suites.tests.rigs.story import JOB, Story, change

# ---- what its reports prove ------------------------------------------------------------------------------------------


class Own(Story):
    """The story of a script: its workers report, and record nothing else."""

    def __init__(self, *, key: str = "", **more: Any) -> None:
        told = {"max_failures": 1, "job": SCRIPT, "step_key": key, "job_config": dict(JOB), **more}
        super().__init__(subject="ray-train", **told)
        self.key = key

    def control(
        self,
        *steps: int,
        metrics: dict[str, Any] | None = None,
        worlds: Sequence[int] = (3,),
        tolerance: float = 0.0,
        losses: Sequence[float] = (),
    ) -> Own:
        """`losses`: of every rank, at each of the steps."""
        said = h.ReferenceRun(
            metrics=metrics or {"loss": 0.5},
            tolerance=tolerance,
            world_sizes=list(worlds),
            steps=list(steps),
            commits=[1, 2],
            reports={
                rank: [h.ToldMetrics(step, {"loss": loss}) for step, loss in zip(steps, losses, strict=True)]
                for rank in range(worlds[0] if losses else 0)
            },
        )
        return self.say(said)

    def begin(self, world: int = 3) -> Own:
        """An attempt that resumes from the latest commit."""
        return self.attempt(world, enter=())

    def reports(self, *steps: int, first: int, commit: Sequence[int] = (), loss: float = 0.5) -> Own:
        """Of every rank; `first`: the report index of the first one. A checkpoint with the reports in `commit`."""
        for index, step in enumerate(steps, first):
            self.wait(0.05)
            for rank in range(self.world):
                self.worker(
                    rank,
                    h.Stepped(
                        term=self.term,
                        attempt=self.number,
                        rank=rank,
                        step=step,
                        world_size=self.world,
                        index=index if self.key else None,
                        metrics={"loss": loss},
                        checkpoint=index in commit,
                    ),
                )
            if index in commit:
                self.commit(index, name=f"c{index}")
        return self

    def crash(self) -> Own:
        return self.wait(2.0).fault("sigkill_worker", ranks=[1]).end("worker_death", "max_failures").wait(2.0)

    def done(self) -> Own:
        return self.finish(metrics={"loss": 0.5})


def resumed(
    *after: int,
    key: str = "epoch",
    worlds: tuple[int, int] = (3, 3),
    control: Sequence[int] = range(5),
    commit: int = 3,
) -> Own:
    """Epochs 0 to 3 in the first attempt, the commit of report `commit`, then what follows."""
    story = Own(key=key).control(*control).launch().begin(worlds[0])
    story.reports(*range(4), first=1, commit=(commit,)).crash().begin(worlds[1])
    return story.reports(*after, first=commit + 1)


@pytest.mark.parametrize(
    ("after", "more"),
    [
        # goes on where it was
        ((3, 4), {}),
        # saved before the step was done
        ((2, 3, 4), {}),
        # reports every so often
        ((30, 40), {"control": (0, 1, 2, 30, 40)}),
        # without a control run a gap cannot be told
        ((3,), {"control": ()}),
        # in another world steps may be counted otherwise
        ((5, 6), {"worlds": (3, 2)}),
        ((1, 2), {"worlds": (3, 2)}),
    ],
)
def test_a_healthy_job_goes_on_from_the_step_of_its_checkpoint(after: Sequence[int], more: dict[str, Any]) -> None:
    finding = resume_from_checkpoint(resumed(*after, **more).history)
    assert finding.status == "PASS", finding.reason


@pytest.mark.parametrize(
    ("after", "more", "says"),
    [
        ((0, 1), {}, "continued with epoch 0 after resuming from c3, which was reported with epoch 2: work of that"),
        ((1,), {}, "work of that checkpoint was done again"),
        ((4,), {}, "in the baseline 3 follows, so work was skipped"),
        ((0, 1), {"worlds": (3, 2)}, "it started over"),
    ],
)
def test_a_job_that_does_its_steps_again_or_leaves_some_out_is_red(
    after: Sequence[int], more: dict[str, Any], says: str
) -> None:
    finding = resume_from_checkpoint(resumed(*after, **more).history)
    assert finding.status == "FAIL" and says in finding.reason


def test_a_single_rank_that_does_not_restore_is_named() -> None:
    events = resumed(3, 4).events
    changed = change(events, h.Stepped, lambda e: e.attempt == 2 and e.rank == 1, step=0)
    finding = resume_from_checkpoint(Own.history.fget(_told(changed)))  # type: ignore[attr-defined]
    assert finding.status == "FAIL" and finding.reason.startswith("rank 1 of attempt 1.2 continued with epoch 0")


def _told(events: Sequence[h.AnyEvent]) -> Story:
    story = Own()
    story.events = list(events)
    return story


def counted_reports(after: int, *, worlds: tuple[int, int] = (3, 3), whole: int = 6, commit: int = 3) -> Own:
    """Without a step key: four reports, a commit of the third, a crash, and `after` more."""
    story = Own().control(*range(1, whole + 1)).launch().begin(worlds[0])
    story.reports(1, 2, 3, 4, first=1, commit=(commit,)).crash().begin(worlds[1])
    return story.reports(*range(commit + 1, commit + 1 + after), first=commit + 1).done()


@pytest.mark.parametrize(
    ("after", "more", "status", "says"),
    [
        (3, {}, "PASS", "6 reports, as in the baseline"),
        (6, {}, "FAIL", "made 6 reports after it; the whole baseline makes 6: it started over"),
        (4, {}, "NOT APPLICABLE", "the run needed 7 reports, the baseline 6"),
        (2, {}, "NOT APPLICABLE", "name it with --step-key"),
        (6, {"worlds": (3, 2)}, "NOT APPLICABLE", "at another world size"),
    ],
)
def test_reports_are_counted_against_those_of_a_whole_run(
    after: int, more: dict[str, Any], status: str, says: str
) -> None:
    finding = sample_accounting(counted_reports(after, **more).history)
    assert finding.status == status and says in finding.reason


def compared(
    loss: float, *, controls: Sequence[float] = (0.5,), worlds: tuple[int, int] = (3, 3), tolerance: float = 0.0
) -> Own:
    story = Own()
    for control_loss in controls:
        story.control(*range(1, 7), metrics={"loss": control_loss}, tolerance=tolerance)
    story.launch().begin(worlds[0]).reports(1, 2, first=1, commit=(1,)).crash().begin(worlds[1])
    return story.reports(2, 3, 4, 5, 6, first=2, loss=loss).done()


@pytest.mark.parametrize(
    ("loss", "more", "status", "says"),
    [
        (0.5, {}, "PASS", "1 metric as in the baseline, to the bit"),
        (
            0.5 + 1e-9,
            {},
            "NOT APPLICABLE",
            "loss is 0.500000001, in the baseline 0.5; after a restart that may be rounding",
        ),
        (0.5 + 1e-4, {}, "FAIL", "loss is 0.5001, in the baseline 0.5 (tolerance 0)"),
        (0.5 + 1e-9, {"tolerance": 1e-6}, "PASS", "within 1e-06"),
        (0.6, {"tolerance": 1e-6}, "FAIL", "tolerance 1e-06"),
        (0.6, {"controls": (0.5, 0.55)}, "NOT APPLICABLE", "two baselines differ in loss: seed"),
        (0.6, {"controls": (0.5, 0.5)}, "FAIL", "loss is 0.6"),
        (0.6, {"worlds": (3, 2)}, "NOT APPLICABLE", "was 3, then 2, in the baseline 3; set metrics_tolerance"),
        (0.6, {"worlds": (3, 2), "tolerance": 1e-3}, "FAIL", "tolerance 0.001"),
    ],
)
def test_metrics_are_compared_as_far_as_that_means_anything(
    loss: float, more: dict[str, Any], status: str, says: str
) -> None:
    finding = metrics_match(compared(loss, **more).history)
    assert finding.status == status and says in finding.reason


def parted(*controls: Sequence[float], worlds: tuple[int, int] = (3, 3), tolerance: float = 0.0) -> Own:
    """Without faults the loss is 0.9, 0.8, ... to 0.4 at step 6; here it stays at 0.6 from step 4 on."""
    story = Own()
    for losses in controls or ((0.9, 0.8, 0.7, 0.6, 0.5, 0.4),):
        story.control(*range(1, 7), metrics={"loss": losses[-1]}, losses=losses, tolerance=tolerance)
    story.launch().begin(worlds[0]).reports(1, first=1, loss=0.9).reports(2, first=2, commit=(2,), loss=0.8)
    story.reports(3, first=3, loss=0.7).crash().begin(worlds[1])
    story.reports(3, first=3, loss=0.7 + 1e-9)
    return story.reports(4, 5, 6, first=4, loss=0.6).done()


def test_metrics_that_differ_are_followed_to_the_first_report_that_does() -> None:
    assert metrics_match(parted().history).reason == (
        "loss is 0.6, in the baseline 0.4 (tolerance 0); the first report that differs is of rank 0 of attempt 1.2 at"
        " step 5: loss 0.6, not 0.5; so do 5 of the 5 reports after it"
    )


def test_a_single_rank_that_parts_from_the_baseline_first_is_named() -> None:
    events = parted().events
    changed = change(events, h.Stepped, lambda e: (e.attempt, e.rank, e.step) == (2, 1, 4), metrics={"loss": 0.9})
    reason = metrics_match(_told(changed).history).reason
    assert "rank 1 of attempt 1.2 at step 4: loss 0.9, not 0.6; so do 6 of the 7 reports after it" in reason


# what `parted` reports
SAME = (0.9, 0.8, 0.7, 0.6, 0.6, 0.6)


def rank_1_ends_with(loss: float, story: Own) -> Story:
    last = (2, 1, 6)
    return _told(change(story.events, h.Stepped, lambda e: (e.attempt, e.rank, e.step) == last, metrics={"loss": loss}))


def test_what_another_rank_reports_last_has_to_be_that_of_the_baseline_too() -> None:
    assert metrics_match(parted(SAME).history).status == "PASS"
    finding = metrics_match(rank_1_ends_with(0.9, parted(SAME)).history)
    assert finding.status == "FAIL"
    assert (
        "loss of rank 1 is 0.9, in the baseline 0.6 (tolerance 1e-05); the first report that differs" in finding.reason
    )


def test_what_rank_0_may_have_rounded_hides_no_other_rank() -> None:
    def last_of(rank: int, loss: float, events: list[h.AnyEvent]) -> list[h.AnyEvent]:
        last = (2, rank, 6)
        return change(events, h.Stepped, lambda e: (e.attempt, e.rank, e.step) == last, metrics={"loss": loss})

    rounded = last_of(0, 0.6 + 1e-9, parted(SAME).events)
    assert "may be rounding" in metrics_match(_told(rounded).history).reason
    finding = metrics_match(_told(last_of(1, 0.9, rounded)).history)
    assert finding.status == "FAIL" and finding.reason.startswith("loss of rank 1 is 0.9, in the baseline 0.6")


def test_what_another_rank_reports_last_is_not_compared_where_it_may_differ() -> None:
    rounded = rank_1_ends_with(0.6 + 1e-9, parted(SAME))
    resized = rank_1_ends_with(0.9, parted(SAME, worlds=(3, 2), tolerance=1e-6))
    by_chance = rank_1_ends_with(0.9, parted(SAME, SAME))
    first, second = (event for event in by_chance.events if isinstance(event, h.ReferenceRun))
    other = msgspec.structs.replace(second, reports={**first.reports, 1: [h.ToldMetrics(6, {"loss": 0.7})]})
    by_chance.events[by_chance.events.index(second, by_chance.events.index(first) + 1)] = other
    assert [metrics_match(story.history).status for story in (rounded, resized, by_chance)] == ["PASS"] * 3


def test_in_another_world_only_rank_0_is_followed() -> None:
    reason = metrics_match(parted(worlds=(3, 2), tolerance=1e-6).history).reason
    assert "rank 0 of attempt 1.2 at step 5: loss 0.6, not 0.5; so do 1 of the 1 reports after it" in reason


def test_a_metric_that_differs_without_faults_is_not_where_two_runs_part() -> None:
    usual = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
    assert "first report" not in metrics_match(parted(usual, (0.9, 0.81, *usual[2:])).history).reason


def test_reports_of_one_epoch_are_told_apart_by_their_number() -> None:
    story = Own(key="epoch").control(0, 0, 1, 1, metrics={"loss": 0.2}, losses=(0.5, 0.4, 0.3, 0.2)).launch().begin()
    for index, (step, loss) in enumerate([(0, 0.5), (0, 0.4), (1, 0.3)], 1):
        story.reports(step, first=index, commit=(index,), loss=loss)
    story.crash().begin().reports(1, first=4, loss=0.25).done()
    assert (
        "rank 0 of attempt 1.2 at step 1: loss 0.25, not 0.2; so do 2 of the 2" in metrics_match(story.history).reason
    )


@pytest.mark.parametrize(("loss", "status"), [(0.5, "PASS"), (0.6, "FAIL")])
def test_a_run_that_had_nothing_left_to_do_is_asked_for_the_report_of_its_last_commit(loss: float, status: str) -> None:
    """Its driver died between the last checkpoint and the end."""
    story = Own().control(*range(1, 7), metrics={"loss": 0.5}).launch().begin()
    story.reports(*range(1, 7), first=1, commit=(6,), loss=loss).crash().begin().done()
    finding = metrics_match(story.history)
    assert finding.status == status and "is missing" not in finding.reason


def test_an_upload_that_ray_train_never_removes_is_said_and_not_held_against_the_job() -> None:
    story = counted_reports(3)
    orphan = "checkpoint_9: not in the snapshot, never removed"

    def left(*files: str) -> str:
        return no_leaks(_told(change(story.events, h.LeakCheck, lambda e: True, files=list(files))).history).status

    assert (left(orphan), left(orphan, "x.tmp: a temporary")) == ("PASS", "FAIL")


# ---- what makes the experiment void ----------------------------------------------------------------------------------


def test_a_failed_control_run_is_invalid_whatever_else_there_is() -> None:
    story = counted_reports(3).say(h.ControlFailed(reason="the job does not finish without faults: x"))
    assert (judge(story.events).verdict, judge(story.events).reason) == (
        "INVALID",
        "the job does not finish without faults: x",
    )


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (configured(term=2, name="run-2"), "has another run name (run-1, then run-2), so it cannot resume"),
        (configured(term=2, storage_path="/t"), "has another run storage_path (/s, then /t)"),
        (configured(fit=2, name="run-2"), "calls fit() again, for the run 'run-2'"),
    ],
)
def test_a_script_that_is_another_run_the_second_time_is_invalid(second: h.RunConfigured, says: str) -> None:
    story = Own().say(configured()).say(second)
    assert judge(story.events).verdict == "INVALID" and says in judge(story.events).reason


def test_bounds_and_budgets_are_those_of_the_scripts_own_trainer() -> None:
    story = Own(max_failures=7).launch().say(configured(min_workers=2, max_workers=3, max_failures=0))
    settings = story.history.settings(1)
    assert (settings.num_workers, settings.max_failures) == ((2, 3), 0)


def test_a_script_that_allows_no_failure_is_told_the_line_to_add() -> None:
    story = Own(expect={"charged": {"max_failures": 1}}).launch().say(configured(max_failures=0, max_workers=3))
    story.begin().reports(1, first=1, commit=(1,)).crash().fail("WorkerGroupError").leak_check()
    judgement = judge(story.events)
    assert judgement.verdict == "FAIL" and "failure_config=ray.train.FailureConfig(max_failures=1)" in judgement.reason
