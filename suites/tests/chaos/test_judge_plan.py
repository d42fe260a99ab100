"""A history whose lines were taken out, changed or added to is never a PASS; a fault that missed, came late, or whose
evidence is another's proves nothing; and one broken check does not silence the others."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shaketable.chaos import invariants
from shaketable.chaos.experiment.file import load
from shaketable.chaos.fault_kinds import is_frozen
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history import events as h
from shaketable.chaos.history.collector import Collector, amend
from shaketable.chaos.history.sealing import read_history, sealed
from shaketable.chaos.history.view import History
from shaketable.chaos.injection.life_cycle import LifeCycle
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.redacting import redacted
from shaketable.chaos.simulation import injector, player
from shaketable.chaos.verdict import carried_out
from shaketable.chaos.verdict import judge as verdicts
from shaketable.chaos.verdict.judge import judge
from shaketable.reports.goodput import accounted
from shaketable.reports.results import Result
from shaketable.runtime.controller import budget
from shaketable.suites.command import judging
from shaketable.suites.command.judging import judge_folder
from shaketable.suites.gate import execution
from shaketable.suites.tests.rigs.shipped import PATHS, PLANS, SIMULATED, played
from shaketable.suites.tests.rigs.story import Story, always, change, renumbered

Events = list[h.AnyEvent]
FAULT_EVENTS = (h.FaultTriggered, h.FaultInjected, h.FaultObserved, h.FaultMissed, h.FaultHealed)
REPLACE = msgspec.structs.replace
HURT = [name for name in SIMULATED if PLANS[name].faults]


def play(plan: Plan) -> Events:
    played = player.play(plan, arm(plan))
    assert played.crash == ""
    return played.events


def without(events: Iterable[h.AnyEvent], taken: Callable[[h.AnyEvent], bool]) -> Events:
    """As a careful hand would leave it: the rest is numbered anew."""
    return renumbered(event for event in events if not taken(event))


def verdict(events: Iterable[h.AnyEvent]) -> tuple[str, str]:
    judgement = judge(list(events))
    return judgement.verdict, judgement.reason


# ---- the plan ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HURT)
def test_a_history_without_the_lines_of_its_faults_is_invalid(name: str) -> None:
    """All of them, those of the last fault, and one kind of line of one fault: no FAIL of a run that did all it should
    either."""
    events = played(name)
    last = max(event.fault for event in events if isinstance(event, FAULT_EVENTS))
    assert judge(list(events)).verdict == "PASS"
    assert judge(without(events, lambda e: isinstance(e, FAULT_EVENTS))).verdict == "INVALID"
    assert judge(without(events, lambda e: isinstance(e, FAULT_EVENTS) and e.fault == last)).verdict == "INVALID"
    for kind in {type(event) for event in events if isinstance(event, FAULT_EVENTS)}:
        taken = without(events, lambda e, kind=kind: isinstance(e, kind) and e.fault == last)  # type: ignore[misc]
        assert judge(taken).verdict == "INVALID" or taken == list(events), kind


@pytest.mark.parametrize("name", HURT)
def test_whichever_line_of_the_harness_is_missing_the_history_is_no_pass(name: str) -> None:
    """Taken out by a careful hand. There are dozens of records and probes: of these some."""
    events, rng = played(name), random.Random(name)
    own = [event for event in events if event.writer == "harness" and not isinstance(event, h.NodeLeft)]
    dozens = [event for event in own if isinstance(event, h.LogRecord | h.CheckpointProbed)]
    few = [event for event in own if event not in dozens]
    for gone in [*few, *rng.sample(dozens, 4), own[-1]]:
        assert verdict(without(events, lambda e, gone=gone: e is gone))[0] != "PASS", gone  # type: ignore[misc]


def test_that_a_node_has_left_need_not_be_said(tmp_path: Path) -> None:
    """On a real cluster that comes up to 14 s later, so it may come after the end. Only the digests of a stored history
    show that it was taken out."""
    events = list(played("node-sigterm"))
    gone = next(number for number, event in enumerate(events) if isinstance(event, h.NodeLeft))
    assert verdict(without(events, lambda e: e is events[gone]))[0] == "PASS"
    stored = sealed(events).splitlines(keepends=True)
    (tmp_path / "history.jsonl").write_bytes(b"".join([*stored[:gone], *stored[gone + 1 :]]))
    assert f"line {gone + 1} does not fit" in judge_folder(tmp_path).results[0].reason


def test_a_line_that_is_missing_is_seen_by_the_number_that_is() -> None:
    events = played("worker-crash")
    gone = next(event for event in events if isinstance(event, h.StateChanged))
    taken = [event for event in events if event is not gone]
    assert verdict(taken) == ("INVALID", f"line {gone.seq} of {gone.writer} is missing from the history")


def test_a_history_without_its_nodes_is_invalid() -> None:
    taken = without(played("worker-crash"), lambda e: isinstance(e, h.NodeJoined))
    assert verdict(taken) == ("INVALID", "the history does not say which nodes there were")


def test_the_plan_is_on_record_with_what_each_fault_needs() -> None:
    began = played("driver-frozen")[0]
    assert isinstance(began, h.ExperimentBegan) and began.faults is not None
    assert [(f.name, f.needs, f.helps, f.heals) for f in began.faults] == [
        ("freeze_driver", "driver", False, True),
        ("relaunch_driver", "run", True, False),
    ]
    assert began.faults[0].arguments == {"until": {"event": "attempt_started", "nth": 2}}


CHANGED: list[tuple[str, Callable[[Events], Events], str]] = [
    ("another trigger", lambda e: change(e, h.FaultTriggered, always, trigger={"step": 1}), "another trigger"),
    ("another target", lambda e: change(e, h.FaultInjected, always, target={"rank": 0}), "another target"),
    ("another fault", lambda e: change(e, h.FaultObserved, always, name="freeze_worker"), "nobody planned it"),
    ("a fault that nobody planned", lambda e: [*e, *one_more(e)], "nobody planned it"),
    ("healed alone", lambda e: [*e, alone(e, h.FaultHealed(fault=7, name="freeze_node"))], "nobody planned it"),
    ("missed alone", lambda e: [*e, alone(e, h.FaultMissed(fault=7, name="x", reason="y"))], "nobody planned it"),
    ("injected twice", lambda e: [*e, again(e, h.FaultInjected)], "2 times that it was injected"),
    ("observed before it was injected", lambda e: swapped(e, h.FaultInjected, h.FaultObserved), "an order in which"),
    ("another experiment before it", lambda e: [REPLACE(e[0], seq=next_seq(e)), *e], "more than one experiment"),
]


def next_seq(events: Events, writer: str = "harness") -> int:
    return 1 + max(event.seq for event in events if event.writer == writer)


def again(events: Events, kind: Any) -> h.AnyEvent:
    found: h.AnyEvent = REPLACE(next(e for e in events if isinstance(e, kind)), seq=next_seq(events))
    return found


def alone(events: Events, event: h.Event) -> h.AnyEvent:
    stamped: h.AnyEvent = REPLACE(event, writer="harness", seq=next_seq(events), at_s=events[-1].at_s)  # type: ignore[assignment]
    return stamped


def one_more(events: Events) -> Events:
    """All lines of a second fault, in order."""
    own = [event for event in events if isinstance(event, FAULT_EVENTS)]
    return [REPLACE(event, fault=1, seq=next_seq(events) + n) for n, event in enumerate(own)]


def swapped(events: Events, one: Any, other: Any) -> Events:
    first, second = (next(e for e in events if isinstance(e, kind)) for kind in (one, other))
    seqs = {id(first): second.seq, id(second): first.seq}
    return [REPLACE(event, seq=seqs.get(id(event), event.seq)) for event in events]


@pytest.mark.parametrize(("tampered", "says"), [row[1:] for row in CHANGED], ids=[row[0] for row in CHANGED])
def test_what_is_not_as_planned_is_invalid(tampered: Callable[[Events], Events], says: str) -> None:
    reached = verdict(tampered(list(played("worker-crash"))))
    assert reached[0] == "INVALID" and says in reached[1], reached


def test_an_older_history_without_a_plan_is_judged_as_before() -> None:
    older = change(played("worker-crash"), h.ExperimentBegan, always, faults=None)
    assert judge(older) == judge(list(played("worker-crash")))


# ---- the lines -----------------------------------------------------------------------------------------------


def test_two_different_lines_of_one_number_are_invalid_whichever_came_later() -> None:
    """The leak check that found something does not give way to a clean one."""
    events = list(played("worker-crash"))
    found = next(event for event in events if isinstance(event, h.LeakCheck))
    leaking = REPLACE(found, processes=["worker 4711"])
    for pair in ((found, leaking), (leaking, found)):
        rest = [event for event in events if event is not found]
        assert verdict(h.merge([[*rest, *pair]]))[1].startswith(f"two different lines are number {found.seq} of")
    assert h.merge([events, events]) == h.merge([events])


def lines(folder: Path, tamper: Callable[[list[bytes]], list[bytes]]) -> None:
    path = folder / "history.jsonl"
    path.write_bytes(b"".join(tamper(sealed(list(played("worker-crash"))).splitlines(keepends=True))))


FILES: list[tuple[str, Callable[[list[bytes]], list[bytes]], str]] = [
    ("a line taken out", lambda all: [*all[:20], *all[21:]], "line 21 does not fit"),
    ("the first line taken out", lambda all: all[1:], "does not say which experiment"),
    ("two lines swapped", lambda all: [*all[:20], all[21], all[20], *all[22:]], "line 21 does not fit"),
    ("a line doubled", lambda all: [*all[:20], all[19], *all[20:]], "line 21 does not fit"),
    ("one character changed", lambda all: [*all[:20], all[20].replace(b"1", b"2", 1), *all[21:]], "line 21 does not"),
    ("its end cut off", lambda all: all[:-3], "lines, its first line says"),
    ("cut in the last line", lambda all: [*all[:-1], all[-1][:-9]], "is cut off in the middle of line"),
    ("a digest taken off", lambda all: [*all[:20], all[20][:-29] + b"}\n", *all[21:]], "line 21 does not fit"),
]


@pytest.mark.parametrize(("tamper", "says"), [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_a_stored_history_that_was_changed_is_invalid(tmp_path: Path, tamper: Any, says: str) -> None:
    lines(tmp_path, tamper)
    [result] = judge_folder(tmp_path).results
    assert result.verdict == "INVALID" and says in result.reason, result.reason


def test_a_stored_history_as_it_was_written_passes_and_holds_the_same_events(tmp_path: Path) -> None:
    lines(tmp_path, lambda all: all)
    [result] = judge_folder(tmp_path).results
    assert (result.verdict, result.notes) == ("PASS", ()), result.reason
    stored = read_history(tmp_path / "history.jsonl").events
    assert list(map(h.encode, stored)) == list(map(h.encode, played("worker-crash")))


def test_a_history_with_a_plan_whose_digests_were_taken_off_is_invalid(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_bytes(b"".join(map(h.encode, played("worker-crash"))))
    [result] = judge_folder(tmp_path).results
    assert result.verdict == "INVALID" and "its lines carry no digests" in result.reason, result.reason


def test_an_older_history_without_digests_is_judged_and_says_so(tmp_path: Path) -> None:
    older = change(played("worker-crash"), h.ExperimentBegan, always, faults=None)
    (tmp_path / "history.jsonl").write_bytes(b"".join(map(h.encode, older)))
    [result] = judge_folder(tmp_path).results
    assert result.verdict == "PASS"
    assert [note.partition(":")[0] for note in result.notes] == ["its lines carry no digests", "it holds no plan"]


def test_what_a_collector_writes_and_amends_is_sealed(tmp_path: Path) -> None:
    collector = Collector(tmp_path / "witness")
    try:
        collector.emit(h.Healed())
        events = collector.finish()
    finally:
        collector.close()
    path = tmp_path / "history.jsonl"
    assert (read_history(path).sealed, read_history(path).damage) == (True, "")
    amend(path, events, h.DeadlinePassed(within_s=1.0))
    assert (len(read_history(path).events), read_history(path).damage) == (2, "")


def test_no_secret_is_in_the_history() -> None:
    said = redacted({"job_config": {"hf_token": "xyz", "steps": 3, "urls": ["s3://a:b@c/d"]}, "max_token": 4})
    assert said == {
        "job_config": {"hf_token": "<redacted>", "steps": 3, "urls": ["s3://<redacted>@c/d"]},
        "max_token": 4,
    }
    changed = {"job_config": {"token": "xyz"}}
    fault = FaultPlan("relaunch_driver", None, {"event": "driver_exited"}, {"changed": changed})
    job = {"steps": 4}
    configuration = Configuration(cluster="simulated", job_config=job, nodes=1, num_workers=1)
    events = play(Plan("secret", configuration, (fault,), Expect()))
    assert b"xyz" not in b"".join(map(h.encode, events))


# ---- faults that do nothing, and faults that come late -------------------------------------------------------

RUN = Configuration(cluster="simulated", nodes=3, num_workers=(1, 3), max_failures=1)
FAULTS_OF = {name: {fault.name for fault in PLANS[name].faults} for name in HURT}
WITH = {kind: next((name for name in HURT if kind in FAULTS_OF[name]), "") for kind in FAULTS}
UNDONE = sorted(name for name, fault in FAULTS.items() if fault.heals and not fault.apart and name != "second_run")
HELPERS = ("add_node", "relaunch_driver")
# no fault: that the trigger came true is all there is to it
WORKS_BY_ITSELF = ("reached",)
# needs machines that are apart: test_faults_apart.py
APART = tuple(name for name, fault in FAULTS.items() if fault.apart)


def experiment(name: str) -> Plan:
    """One of the catalogue that has such a fault, or the smallest there can be."""
    if WITH[name]:
        return PLANS[WITH[name]]
    kind = FAULTS[name]
    target = {"rank": 1} if kind.target_kind in ("worker", "node") else None
    faults = [FaultPlan(name, target, {"step": 12})]
    if kind.target_kind == "driver":
        faults.append(FaultPlan("relaunch_driver", None, {"event": "driver_exited"}))
    return Plan(name, RUN, tuple(faults), Expect(charged={"max_failures": 1} if name == "freeze_worker" else {}))


def no_op(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(FAULTS[name], "inject_simulated", lambda self, scene, hit: None)


@pytest.mark.parametrize("name", sorted(set(FAULTS) - {*WORKS_BY_ITSELF, *APART}))
def test_a_fault_that_does_nothing_makes_the_experiment_invalid(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    plan = experiment(name)
    healthy = judge(play(plan))
    no_op(monkeypatch, name)
    judgement = judge(play(plan))
    assert judgement.verdict == "INVALID" and name in judgement.reason, (judgement.reason, healthy.reason)


@pytest.mark.parametrize("name", HURT)
def test_in_every_experiment_every_fault_that_does_nothing_makes_it_invalid(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    plan = PLANS[name]
    for fault in {fault.name for fault in plan.faults} - set(WORKS_BY_ITSELF):
        with monkeypatch.context() as patched:
            no_op(patched, fault)
            reached = verdict(play(plan))
        assert reached[0] == "INVALID" and fault in reached[1], (fault, reached)


def without_help(name: str, story: Story) -> Story:
    """The history of `story` with a fault that helps, and missed."""
    return story.say(h.FaultMissed(fault=9, name=name, reason="no evidence that it landed within 10 s"))


def trained_small() -> Story:
    """Half a minute with two of three nodes."""
    return Story().launch().attempt(2).steps(1, 5).wait(30.0).steps(6, 6)


def started() -> Story:
    return Story().launch().attempt(3)


def launched_in_vain() -> Story:
    """The machine had no memory left for the second driver."""
    story = started().steps(1, 4).fault("sigkill_driver").exit(137)
    story.say(h.DriverStarted(launch=1, pid=4711)).say(h.DriverExited(launch=1, code=137))
    return story.leak_check()


UNHELPED: list[tuple[str, Callable[[], Story], str, str]] = [
    ("grow-back", lambda: trained_small().finish(), "add_node", "INVALID"),
    ("truthful-ending", launched_in_vain, "relaunch_driver", "INVALID"),
    (
        "liveness",
        lambda: Story().launch().attempt(3).steps(1, 4).say(h.DeadlinePassed(within_s=60.0)),
        "add_node",
        "INVALID",
    ),
    # what no help would have mended
    ("world-size-bounds", lambda: Story().launch().attempt(5).steps(1, 6).finish(), "add_node", "FAIL"),
]


@pytest.mark.parametrize(("invariant", "story", "help_", "expected"), UNHELPED, ids=[row[0] for row in UNHELPED])
def test_help_that_missed_outranks_only_what_needs_it(
    invariant: str, story: Callable[[], Story], help_: str, expected: str
) -> None:
    told = judge(story().events)
    assert told.verdict == "FAIL" and told.reason.startswith(f"{invariant}: "), told.reason
    judgement = judge(without_help(help_, story()).events)
    assert judgement.verdict == expected, judgement.reason
    says = f"{invariant}: " if expected == "FAIL" else f"{help_} did not land: "
    assert judgement.reason.startswith(says), judgement.reason


def test_a_node_that_left_by_itself_is_no_evidence_of_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drained first, it is gone before anybody looks; whichever seed."""
    no_op(monkeypatch, "sigkill_node")
    for seed in range(20):
        reached = verdict(play(load(PATHS["early-reclaim"], {"seed": str(seed)}).plan))
        assert reached[0] == "INVALID" and "sigkill_node" in reached[1], reached


# after the run, and before its time is up
LATE_S = 60.0


def inject_late(monkeypatch: pytest.MonkeyPatch, late_s: float = LATE_S, only: int | None = None) -> None:
    """A slow harness: what it is about to hit is known, and it hits so much later; `only`: with this fault alone."""
    original = injector.SimulatedInjector._inject

    def later(self: Any, armed: Any, hit: Any) -> None:
        self._timeline.later(late_s if only in (None, armed.number) else 0.0, original, self, armed, hit)

    monkeypatch.setattr(injector.SimulatedInjector, "_inject", later)


@pytest.mark.parametrize("name", sorted(set(FAULTS) - {*WORKS_BY_ITSELF, *HELPERS, *APART}))
def test_a_fault_that_lands_after_the_run_is_invalid(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    plan = experiment(name)
    first = next(fault for fault in plan.faults if fault.name == name)
    alone = Plan("late", plan.configuration, (FaultPlan(name, first.target, {"step": 12}, {}),), Expect())
    inject_late(monkeypatch)
    events = play(alone)
    landed = any(isinstance(event, h.FaultObserved) for event in events)
    says = "there was nothing left to hit" if landed else "did not land: no evidence that it landed within"
    reached = verdict(events)
    assert reached[0] == "INVALID" and name in reached[1] and says in reached[1], reached


def test_a_fault_that_lands_just_after_the_run_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow harness once killed a node 0.97 s after the driver had exited."""
    events = play(Plan("in time", RUN, (FaultPlan("reached", None, {"step": 12}),), Expect()))
    [reached], [exited] = ([e.at_s for e in events if isinstance(e, k)] for k in (h.FaultInjected, h.DriverExited))
    inject_late(monkeypatch, exited - reached + 0.97)
    late = verdict(play(Plan("late", RUN, (FaultPlan("sigkill_node", {"rank": 1}, {"step": 12}),), Expect())))
    assert late[0] == "INVALID" and "0.9" in late[1] and "s after the last driver had exited" in late[1], late


@pytest.mark.parametrize("late_s", [0.5, 2.0])
def test_a_worker_that_is_killed_after_its_attempt_is_nothing_to_kill(
    monkeypatch: pytest.MonkeyPatch, late_s: float
) -> None:
    """The run trains on, in the next attempt."""
    faults = tuple(FaultPlan("sigkill_worker", {"rank": rank}, {"step": 12}) for rank in (1, 0))
    inject_late(monkeypatch, late_s, only=1)
    run = replace(RUN, max_failures=2, job_config={"steps": 60})
    reached = verdict(play(Plan("twice", run, faults, Expect(charged={"max_failures": 1}))))
    assert reached[0] == "INVALID", reached
    assert "sigkill_worker (fault 1) landed" in reached[1] and "s after attempt 1 had ended" in reached[1]


def test_while_no_driver_runs_there_is_none_to_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a harness would tell it that sends a signal to a number of the past."""
    faults = [FaultPlan("sigkill_driver", None, {"step": 12}), FaultPlan("reached", None, {"event": "driver_exited"})]
    faults.append(FaultPlan("relaunch_driver", None, {"after": 1}))
    inject_late(monkeypatch, 2.0, only=2)
    events = play(Plan("gone", RUN, tuple(faults), Expect(driver=2)))
    assert verdict(events)[0] == "PASS", verdict(events)
    began = events[0]
    assert isinstance(began, h.ExperimentBegan) and began.faults is not None
    plan = [began.faults[0], REPLACE(began.faults[0], at=began.faults[1].at), began.faults[2]]
    events = change(events, h.ExperimentBegan, always, faults=plan)
    events = [
        REPLACE(event, name="sigkill_driver") if isinstance(event, FAULT_EVENTS) and event.fault == 1 else event
        for event in events
    ]
    reached = verdict(events)
    assert reached[0] == "INVALID" and "landed while no driver was running" in reached[1], reached


@pytest.mark.parametrize("name", [name for name in HURT if FAULTS_OF[name] - set(WORKS_BY_ITSELF)])
def test_an_experiment_whose_faults_all_land_late_is_invalid(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    inject_late(monkeypatch)
    assert judge(play(PLANS[name])).verdict == "INVALID"


def test_a_fault_that_was_on_record_in_time_and_done_when_the_run_was_over_is_invalid() -> None:
    events = played("node-sigkill")
    [injected] = [event for event in events if isinstance(event, h.FaultInjected)]
    over_s = max(event.at_s for event in events if isinstance(event, h.DriverExited))

    def done(at_s: float) -> tuple[str, str]:
        return verdict(change(events, h.FaultObserved, always, hit_ms=(at_s - injected.at_s) * 1000))

    assert done(over_s - 0.5)[0] == "PASS"
    reached = done(over_s + 0.97)
    assert reached[0] == "INVALID" and " s after the run was over" in reached[1], reached


def test_a_run_that_was_over_is_not_blamed_for_a_fault_that_was_still_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its time is up before the fault lands."""
    inject_late(monkeypatch, 600.0)
    reached = verdict(play(Plan("late", RUN, (FaultPlan("drain_node", {"rank": 1}, {"step": 12}),), Expect())))
    assert reached[0] == "INVALID" and "liveness" not in reached[1], reached


def test_a_fault_that_waits_for_the_end_of_the_run_comes_after_it() -> None:
    for name in ("damage_checkpoint", "sigterm_node", "lose_log"):
        target = {"node": 1} if name == "sigterm_node" else None
        fault = FaultPlan(name, target, {"event": "driver_exited"})
        reached = verdict(play(Plan("after it", RUN, (fault,), Expect())))
        assert reached[0] == "INVALID" and "after the last driver had exited" in reached[1], reached


def test_a_node_that_no_attempt_uses_is_nothing_to_kill_but_may_be_told_to_go() -> None:
    """Three nodes, at most one worker."""
    idle = Configuration(cluster="simulated", nodes=3, num_workers=1)
    for name, expected in (("sigkill_node", "INVALID"), ("freeze_node", "INVALID"), ("drain_node", "PASS")):
        fault = FaultPlan(name, {"node": 3}, {"step": 12})
        reached = verdict(play(Plan("idle", idle, (fault,), Expect())))
        assert reached[0] == expected, reached
        assert expected == "PASS" or "landed where no attempt was: there was nothing left to hit" in reached[1]


def test_a_node_may_be_killed_between_two_attempts() -> None:
    """What is lost while the run waits is lost for the next attempt."""
    faults = (
        FaultPlan("sigkill_node", {"rank": 0}, {"step": 12}),
        FaultPlan("sigkill_node", {"node": 2}, {"event": "attempt_ended", "after": 0}),
        FaultPlan("add_node", None, {"after": 1}),
    )
    run = Configuration(cluster="simulated", nodes=2, num_workers=(1, 2), max_failures=2)
    between = 0
    for seed in range(6):
        events = play(Plan("twice", replace(run, seed=seed), faults, Expect(charged={"max_failures": 1})))
        second = next(e for e in events if isinstance(e, h.FaultInjected) and e.fault == 1)
        between += second.ranks == []
        assert "nothing left to hit" not in verdict(events)[1], verdict(events)
    assert between


UNTIL: list[tuple[dict[str, Any], str, str]] = [
    # without `after: 0` a step that was long ago thaws the node in the moment it is frozen
    ({"step": 3}, "INVALID", "its `until` was true before it landed"),
    # what its own landing makes true does, too
    ({"event": "fault_triggered"}, "INVALID", "its `until` is true as soon as it lands"),
    ({"after": 0}, "INVALID", "its `until` is true as soon as it lands"),
    ({"event": "fault_injected"}, "INVALID", "its `until` is true as soon as it lands"),
    ({"event": "fault_observed"}, "INVALID", "its `until` is true as soon as it lands"),
    ({"step": 20, "after": 0}, "PASS", ""),
]


@pytest.mark.parametrize(("until", "expected", "says"), UNTIL, ids=[str(row[0]) for row in UNTIL])
def test_what_is_undone_at_once_is_invalid(until: dict[str, Any], expected: str, says: str) -> None:
    fault = FaultPlan("freeze_node", {"rank": 1}, {"step": 12}, {"until": until})
    charged = {"max_failures": 1} if expected == "PASS" else {}
    reached = verdict(play(Plan("frozen", RUN, (fault,), Expect(charged=charged))))
    assert reached[0] == expected and says in reached[1], reached


@pytest.mark.parametrize(
    ("name", "until"),
    [(name, until) for name in UNDONE for until in ({"step": 3}, {"after": 0}) if "step" in until or is_frozen(name)],
    ids=str,
)
def test_whatever_is_undone_at_once_is_invalid(name: str, until: dict[str, Any]) -> None:
    plan = experiment(name)
    first = next(fault for fault in plan.faults if fault.name == name)
    arguments = {**first.arguments, "until": until}
    alone = Plan("undone", plan.configuration, (replace(first, at={"step": 12}, arguments=arguments),), Expect())
    reached = verdict(play(alone))
    assert reached[0] == "INVALID" and f"{name} (fault 0) was undone at once" in reached[1], reached


def test_a_write_that_was_refused_is_an_effect_so_that_the_disk_may_be_well_again_at_once() -> None:
    fault = FaultPlan("fill_disk", None, {"step": 7}, {"until": {"after": 0}})
    reached = verdict(play(Plan("full", replace(RUN, storage="disk"), (fault,), Expect())))
    assert reached[0] == "PASS", reached


def test_a_fault_that_the_ledger_excuses_is_no_proof_of_the_charge_that_was_expected() -> None:
    """The last step is done when it is killed: 0 charged is right, and says nothing about a charge."""
    fault = FaultPlan("sigkill_worker", {"rank": 1}, {"event": "worker_finished"})
    run = Configuration(cluster="simulated", nodes=2, num_workers=2, max_failures=1, job_config={"steps": 20})
    reached = [verdict(play(plan_with(run, fault, seed))) for seed in range(8)]
    assert {each for each, _ in reached} == {"INVALID"}, reached


def plan_with(configuration: Configuration, fault: FaultPlan, seed: int) -> Plan:
    configured = replace(configuration, seed=seed)
    return Plan("at the end", configured, (fault,), Expect(charged={"max_failures": 1}))


def test_the_driver_that_came_to_the_end_is_the_one_that_the_title_names() -> None:
    events = list(played("driver-sigkill"))
    began = events[0]
    assert isinstance(began, h.ExperimentBegan) and began.expect["driver"] == 2
    first = change(events, h.ExperimentBegan, always, expect={**began.expect, "driver": 1})
    assert verdict(first) == ("FAIL", "expected driver 1 to come to the end of the run, driver 2 did")


# ---- what breaks in the harness ------------------------------------------------------------------------------


def breaks(*arguments: Any, **known: Any) -> Any:
    raise KeyError("no such rank")


def test_an_invariant_that_breaks_is_one_invalid_finding_and_the_others_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = replace(invariants.INVARIANTS["failure-budget"], check=breaks)
    monkeypatch.setitem(invariants.INVARIANTS, "failure-budget", broken)
    judgement = judge(list(played("worker-crash")))
    assert judgement.verdict == "INVALID"
    assert judgement.reason == "failure-budget: broke with KeyError: 'no such rank' (a bug in shaketable)"
    assert [f.status for f in judgement.findings].count("PASS") >= 8
    leaking = change(played("worker-crash"), h.LeakCheck, always, processes=["worker 4711"])
    assert judge(leaking).reason.startswith("no-leaks: ")


def test_a_log_that_cannot_be_read_is_invalid_and_no_crash() -> None:
    torn = change(played("worker-crash"), h.LogRecord, lambda e: e.number == 2, record={"kind": "attempt_started"})
    assert verdict(torn) == ("INVALID", "the history cannot be read: log record 2: not as expected: KeyError('term')")


@pytest.mark.parametrize("look", range(len(carried_out.LOOKS)))
def test_a_look_that_breaks_is_invalid_and_the_others_speak(monkeypatch: pytest.MonkeyPatch, look: int) -> None:
    looks, whole = list(carried_out.LOOKS), judge(list(played("worker-crash")))
    monkeypatch.setattr(breaks, "__name__", looks[look].__name__, raising=False)
    monkeypatch.setattr(carried_out, "LOOKS", (*looks[:look], breaks, *looks[look + 1 :]))
    judgement = judge(list(played("worker-crash")))
    name = looks[look].__name__.lstrip("_")
    assert judgement.verdict == "INVALID"
    assert judgement.reason == f"the check {name} broke with KeyError: 'no such rank' (a bug in shaketable)"
    assert judgement.findings == whole.findings
    leaking = change(played("worker-crash"), h.LeakCheck, always, processes=["worker 4711"])
    assert judge(leaking).reason.startswith("no-leaks: ")


def test_a_look_that_breaks_does_not_hide_what_another_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried_out, "LOOKS", (breaks, *carried_out.LOOKS))
    history = History(change(played("worker-crash"), h.FaultTriggered, always, trigger={"step": 1}))
    said = list(carried_out.lacking(history))
    assert len(said) == 2 and "waited for another trigger than was planned" in said[1], said


@pytest.mark.parametrize("what", ["contradictions", "charged"])
def test_what_else_breaks_in_the_judge_is_invalid(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(verdicts, what, breaks)
    judgement = judge(list(played("worker-crash")))
    assert judgement.verdict == "INVALID" and "KeyError: 'no such rank' (a bug in" in judgement.reason


@pytest.mark.parametrize(("view", "what"), [("too_slow", "what was too slow"), ("_praise", "what the run did")])
def test_what_only_tells_of_the_run_leaves_the_verdict_and_a_note(
    monkeypatch: pytest.MonkeyPatch, view: str, what: str
) -> None:
    whole = judge(list(played("worker-crash")))
    monkeypatch.setattr(verdicts, view, breaks)
    judgement = judge(list(played("worker-crash")))
    assert (judgement.verdict, judgement.findings) == ("PASS", whole.findings)
    assert judgement.reason in (whole.reason, whole.reason.rpartition("; ")[2])
    assert judgement.notes == (f"{what} was not computed: KeyError: 'no such rank' (a bug in shaketable)",)


@pytest.mark.parametrize("view", ["recoveries", "landed", "output", "by_tier", "measure"])
def test_no_view_of_a_result_takes_its_verdict_or_the_other_views(monkeypatch: pytest.MonkeyPatch, view: str) -> None:
    history, blank = History(played("worker-crash")), Result("worker-crash", "ERROR", "", 0.0, "")
    judgement = judge(history)
    assert execution.judged(blank, judgement, history, accounted).notes == ()
    if view != "measure":
        monkeypatch.setattr(execution, view, breaks)
    result = execution.judged(blank, judgement, history, breaks if view == "measure" else accounted)
    assert (result.verdict, result.findings) == (judgement.verdict, judgement.findings)
    [note] = result.notes
    assert note.endswith(" was not computed: KeyError: 'no such rank' (a bug in shaketable)")
    there = (result.goodput, result.recoveries, result.landed)
    assert [bool(seen) for seen in there] == [view != name for name in ("measure", "recoveries", "landed")]


def test_a_view_that_breaks_leaves_the_verdict_and_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines(tmp_path, lambda all: all)
    monkeypatch.setattr(judging, "goodput", breaks)
    [result] = judge_folder(tmp_path).results
    assert (result.verdict, result.goodput) == ("PASS", None)
    assert result.notes == ("goodput was not computed: KeyError: 'no such rank' (a bug in shaketable)",)


def test_what_breaks_in_the_harness_is_not_booked_on_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = PLANS["worker-crash"]
    monkeypatch.setattr(LifeCycle, "found", breaks)
    with pytest.raises(KeyError, match="no such rank"):
        play(plan)


def test_what_breaks_in_the_runtime_is(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = PLANS["worker-crash"]
    monkeypatch.delitem(budget.ACCOUNT_OF, "worker_death")
    assert player.play(plan, arm(plan)).crash == "KeyError: 'worker_death'"
