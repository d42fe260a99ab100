"""The report and its timeline, from histories written out literally."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from shaketable.chaos.experiment.file import load
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history import events as h
from shaketable.chaos.plan import Finding
from shaketable.chaos.simulation import player
from shaketable.reports.cost import by_tier
from shaketable.reports.drawing import LEFT, RIGHT, WIDTH, draw, ticks
from shaketable.reports.goodput import goodput
from shaketable.reports.html import render
from shaketable.reports.landed import landed
from shaketable.reports.results import Result, Run
from shaketable.reports.timeline import MAX_NODES, Timeline, attempts, timeline
from shaketable.suites.tests.rigs import recorded
from shaketable.suites.tests.rigs.story import Story

NASTY = "<script>alert('x')</script>\"&"


def drawn(events: list[h.AnyEvent]) -> Timeline:
    shown = timeline(events)
    assert shown is not None
    return shown


def page(reason: str = "fine", events: list[h.AnyEvent] | None = None) -> str:
    events = recorded.worker_crash() if events is None else events
    result = Result(
        name="worker-crash",
        verdict="FAIL",
        reason=reason,
        seconds=4.1,
        folder="worker-crash",
        title=reason,
        findings=(Finding("no-leaks", "FAIL", reason), Finding("grow-back", "NOT APPLICABLE", "nothing to grow")),
        landed=(reason,),
        reproduce=f"shaketable run {reason}",
        goodput=goodput(events),
        tiers=by_tier(events),
    )
    run = Run("0.1.0", "2.60.0", 7, "2026-11-21T03:12:00+00:00", 4.2, (result,))
    return render(run, {"worker-crash": events})


def test_what_landed_is_told_from_the_history_alone() -> None:
    assert landed(recorded.worker_crash()) == ("SIGKILL worker rank 1 pid 4001 at step 12, gone after 8 ms",)
    assert landed(recorded.node_lost_and_back())[:3] == (
        "SIGKILL node 2 of rank 1 at step 12, gone after 8 ms",
        "SIGKILL node 3 of rank 2 at step 12, gone after 8 ms",
        "add node at step 30, alive in Ray's view after 1.6 s",
    )


def test_a_fault_without_evidence_says_so() -> None:
    unseen = [e for e in recorded.worker_crash() if not isinstance(e, h.FaultObserved)]
    assert landed(unseen)[0].endswith("at step 12, no evidence")


def test_a_node_that_was_quarantined_says_so_in_its_lane() -> None:
    events = recorded.node_lost_and_back()
    at_s = events[-1].at_s - 2.0
    quarantined = h.NodeQuarantined(
        term=1, node_id=recorded.NODES[2], failures=3, until_s=at_s + 1800.0, writer="driver", seq=9, at_s=at_s
    )
    lane = next(lane for lane in drawn([*events, quarantined]).lanes if lane.label == "node 2")
    (span,) = (span for span in lane.spans if span.kind == "quarantined")
    assert span.tip == "node 2 quarantined for 1800 s: it failed 3 times"
    assert span.end_s <= drawn([*events, quarantined]).duration_s


def test_a_run_with_tiers_says_what_each_has_cost() -> None:
    file = Path(__file__).parents[2] / "experiments" / "spot-to-on-demand.yaml"
    plan = load(file, {"cluster": "simulated"}).plan
    played = player.play(plan, arm(plan)).events
    spot, on_demand = by_tier(played)
    assert (spot.tier, spot.attempts, on_demand.tier, on_demand.attempts) == ("spot", 2, "on-demand", 2)
    text = " ".join(re.sub(r"<[^>]+>", " ", page(events=played)).split())
    assert f"spot 2 {spot.worker_h:.5f} 0.1 {spot.worker_h / 10:.6f}" in text
    assert f"on-demand 2 {on_demand.worker_h:.5f} 1.0 {on_demand.worker_h:.6f}" in text
    assert "Cost by tier" not in page()


def test_an_attempt_costs_its_workers_from_its_start_to_its_end() -> None:
    story = Story(tiers=[{"name": "spot", "nodes": 3, "price_per_hour": 0.5}]).launch()
    story.record("attempt_started", attempt=1, world_size=3, members=[], resume=None, first_index=1, tier="spot")
    story.wait(1200.0).record("attempt_ended", attempt=1, cause="resized", account=None)
    (spot,) = by_tier([*story.events, *story.records])
    assert spot.worker_h == pytest.approx(1.0, abs=1e-3) and spot.cost == 0.5 * spot.worker_h


def test_the_world_size_line_follows_the_attempts() -> None:
    shown = drawn(recorded.node_lost_and_back())
    assert [size for _, size in shown.world] == [0, 3, 0, 1, 0, 2, 0, 0]
    assert shown.bounds == (1, 3)


def test_every_node_has_a_lane_and_a_lost_one_ends() -> None:
    lanes = {lane.label: lane for lane in drawn(recorded.node_lost_and_back()).lanes}
    assert [label for label in lanes if label.startswith("node")] == ["node 1", "node 2", "node 3", "node 4"]
    alive = next(span for span in lanes["node 2"].spans if span.kind == "alive")
    assert round(alive.end_s, 3) == 4.0


def test_of_a_large_cluster_the_nodes_that_something_happened_to_are_drawn() -> None:
    """And one lane says how many are not."""
    joined = [h.NodeJoined(writer="harness", seq=n, at_s=0.0, node=n, node_id=f"{n:04x}" * 14) for n in range(1, 201)]
    left = h.NodeLeft(writer="harness", seq=201, at_s=9.0, node=190, node_id=f"{190:04x}" * 14)
    lanes = [lane for lane in drawn([*joined, left]).lanes if lane.kind == "node"]
    assert [lane.label for lane in lanes[:-1]] == [f"node {n}" for n in (*range(1, MAX_NODES), 190)]
    assert lanes[-1].spans[0].label == f"{200 - MAX_NODES} more nodes are not drawn"


def test_workers_that_share_a_node_have_rows_of_their_own() -> None:
    timed = [(0.0, recorded.began()), *recorded.attempt(0.5, 1, {0: 1, 1: 1, 2: 2}, 1, 3)]
    lanes = {lane.label: lane for lane in drawn(recorded.stamped(timed)).lanes}
    # never seen to join, so it is called by Ray's id
    assert lanes["aaaaaaaa"].rows == 2
    assert lanes["bbbbbbbb"].rows == 1


def test_a_killed_worker_ends_where_it_was_hit() -> None:
    lanes = {lane.label: lane for lane in drawn(recorded.worker_crash()).lanes}
    killed = next(span for span in lanes["node 2"].spans if span.label == "rank 1")
    assert round(killed.end_s, 3) == 1.922


def test_attempts_say_how_they_ended_and_what_that_cost() -> None:
    rows = attempts(recorded.worker_crash())
    assert [(row.attempt, row.resume, row.cause, row.account) for row in rows] == [
        (1, "from scratch", "worker_death", "max_failures"),
        (2, "from commit 11", "finished", ""),
    ]


def test_nothing_is_drawn_outside_the_sheet_and_every_fault_has_a_guide() -> None:
    drawing = draw(drawn(recorded.node_lost_and_back()))
    assert all(
        rect.x >= LEFT - 0.1 and rect.x + rect.width <= WIDTH - RIGHT + 2 for rect in (*drawing.rects, *drawing.lanes)
    )
    assert sum(path.css == "guide injected" for path in drawing.paths) == 4
    assert all(0 < label.y < drawing.height for label in drawing.labels)


def test_the_axis_has_about_ten_round_seconds() -> None:
    assert list(ticks(4.0)) == [0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
    assert 5 <= len(list(ticks(287.0))) <= 12


def test_a_history_of_one_event_or_none_has_no_picture_but_a_page() -> None:
    assert timeline([]) is None
    assert timeline(recorded.stamped([(0.0, recorded.began())])) is None
    assert '<svg class="timeline"' not in page(events=[])


def test_the_page_shows_where_the_time_went() -> None:
    text = page()
    assert "Goodput: 40.9 % of 2.30 s" in text
    assert '<span class="lost_work" style="width: 3.130%"' in text
    # there was none
    assert "waiting for capacity" not in text
    assert "Goodput" not in page(events=[])


def test_the_page_needs_nothing_from_outside() -> None:
    assert re.findall(r"""(?:src|href)=["'](?!#|data:,)""", page()) == []
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest", page())


def test_whatever_comes_from_users_is_escaped() -> None:
    events = recorded.stamped(
        [
            (0.0, recorded.began(NASTY, note=NASTY)),
            (0.5, h.NodeJoined(node=1, node_id=NASTY)),
            *recorded.attempt(0.6, 1, {0: 1}, 1, 2),
            (0.8, h.AttemptEnded(term=1, attempt=1, cause=NASTY, account=NASTY, detail=NASTY)),
            *recorded.fault(0.9, 0, NASTY, ranks=[0]),
        ]
    )
    text = page(NASTY, events)
    assert "alert" in text
    assert "<script>alert" not in text
    assert "alert('x')" not in text


def test_the_page_is_well_formed_html_with_all_that_is_needed_to_act() -> None:
    class Balance(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag not in ("meta", "link", "input", "br"):
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

    parser = Balance()
    parser.feed(page())
    assert parser.open == []
    for wanted in ("no-leaks", "grow-back", "shaketable run fine", "worker_death", "max_failures", "1.30 s"):
        assert wanted in page()
