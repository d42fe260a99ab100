"""What a later launch of the driver was given counts for it, and not what the first one had; and what is charged for a
cluster that goes as a whole."""

from __future__ import annotations

import pytest

from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history import events as h
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.simulation import player
from shaketable.chaos.verdict.judge import judge
from shaketable.suites.tests.rigs.story import Story

LONG = Configuration(cluster="simulated", job_config={"steps": 600, "step_s": 0.1}, nodes=3, num_workers=(1, 3))


@pytest.mark.parametrize("bounds", [1, [1, 2]])
def test_a_driver_launched_for_fewer_workers_need_not_grow_beyond_them(bounds: object) -> None:
    """An autoscaler's pods were there still: room for four, and a driver that was launched again for one."""
    faults = (
        FaultPlan("sigkill_driver", None, {"step": 20}),
        FaultPlan("relaunch_driver", None, {"event": "driver_exited"}, {"changed": {"num_workers": bounds}}),
    )
    plan = Plan("smaller", LONG, faults, Expect(driver=2, world_size=3))
    judgement = judge(player.play(plan, tuple(arm(plan)), versions={}).events)
    assert judgement.verdict == "PASS", judgement.reason


@pytest.mark.parametrize(
    ("account", "verdict"), [("max_preemption_failures", "PASS"), (None, "INVALID"), ("max_failures", "FAIL")]
)
def test_a_suspended_job_may_be_charged_for_the_notice_of_its_pods_and_for_no_failure(
    account: str | None, verdict: str
) -> None:
    """Whether Ray has told of its pods in time is chance: of another count than expected nothing is said."""
    charged = {"max_preemption_failures": 1}
    story = Story(max_failures=1, expect={"charged": charged, "driver": 2}).launch().attempt(3).steps(1, 2)
    story.wait(10.0).fault("suspend_job")
    if account:
        cause = "preempted" if account.startswith("max_pre") else "node_lost"
        story.end(cause, account).attempt(1).steps(3, 4)
    story.end("interrupted", None).drive(h.RunEnded(term=1, outcome="interrupted", error="SystemExit(143)"))
    judgement = judge(
        story.exit(143).fault("relaunch_driver").launch().attempt(3).steps(story.commits[-1][1] + 1, 6).finish().events
    )
    assert judgement.verdict == verdict, judgement.reason
