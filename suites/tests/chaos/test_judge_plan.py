"""A history whose lines were taken out, changed or added to is never a PASS; a fault that missed, came late, or whose
evidence is another's proves nothing; and one broken check does not silence the others."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shaketable.chaos import invariants
from shaketable.chaos.experiment.file import load
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history import events as h
from shaketable.chaos.history.collector import Collector, amend
from shaketable.chaos.history.sealing import read_history, sealed
from shaketable.chaos.injection.life_cycle import LifeCycle
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.redacting import redacted
from shaketable.chaos.simulation import injector, player
from shaketable.chaos.verdict.judge import judge
from shaketable.runtime.controller import budget
from shaketable.suites.command import judging
from shaketable.suites.command.judging import judge_folder
from shaketable.suites.gate.catalogue import catalogue
from shaketable.suites.tests.rigs.story import always, change, renumbered

Events = list[h.AnyEvent]
FAULT_EVENTS = (h.FaultTriggered, h.FaultInjected, h.FaultObserved, h.FaultMissed, h.FaultHealed)
REPLACE = msgspec.structs.replace
PATHS = {entry.name: entry.path for entry in catalogue()}
SIMULATED = [name for name, path in PATHS.items() if not player.not_simulated(load(path).plan)]
HURT = [name for name in SIMULATED if load(PATHS[name]).plan.faults]


def play(plan: Plan) -> Events:
    played = player.play(plan, arm(plan))
    assert played.crash == ""
    return played.events


@functools.cache
def played(name: str) -> tuple[h.AnyEvent, ...]:
    return tuple(play(load(PATHS[name]).plan))


def without(events: Iterable[h.AnyEvent], taken: Callable[[h.AnyEvent], bool]) -> Events:
    """As a careful hand would leave it: the rest is numbered anew."""
    return renumbered(event for event in events if not taken(event))


def verdict(events: Iterable[h.AnyEvent]) -> tuple[str, str]:
    judgement = judge(list(events))
    return judgement.verdict, judgement.reason


# ---- the plan ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HURT)
def test_a_history_without_the_lines_of_its_faults_is_no_pass(name: str) -> None:
    """All of them, those of the last fault, and one kind of line of one fault."""
    events = played(name)
    last = max(event.fault for event in events if isinstance(event, FAULT_EVENTS))
    assert judge(list(events)).verdict == "PASS"
    assert judge(without(events, lambda e: isinstance(e, FAULT_EVENTS))).verdict != "PASS"
    assert judge(without(events, lambda e: isinstance(e, FAULT_EVENTS) and e.fault == last)).verdict != "PASS"
    for kind in {type(event) for event in events if isinstance(event, FAULT_EVENTS)}:
        taken = without(events, lambda e, kind=kind: isinstance(e, kind) and e.fault == last)  # type: ignore[misc]
        assert judge(taken).verdict != "PASS" or taken == list(events), kind


@pytest.mark.parametrize("name", HURT)
def test_whichever_line_of_the_harness_is_missing_the_history_is_no_pass(name: str) -> None:
    events = played(name)
    own = [event for event in events if event.writer == "harness"]
    for gone in random.Random(name).sample(own[:-1], min(6, len(own) - 1)):
        assert verdict(event for event in events if event is not gone)[0] != "PASS", gone


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
    ("injected twice", lambda e: [*e, again(e, h.FaultInjected)], "2 times that it was injected"),
    ("observed before it was injected", lambda e: swapped(e, h.FaultInjected, h.FaultObserved), "an order in which"),
    ("another experiment before it", lambda e: [REPLACE(e[0], seq=next_seq(e)), *e], "more than one experiment"),
]


def next_seq(events: Events, writer: str = "harness") -> int:
    return 1 + max(event.seq for event in events if event.writer == writer)


def again(events: Events, kind: Any) -> h.AnyEvent:
    found: h.AnyEvent = REPLACE(next(e for e in events if isinstance(e, kind)), seq=next_seq(events))
    return found


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


def test_a_history_without_digests_is_judged_and_says_so(tmp_path: Path) -> None:
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
FAULTS_OF = {name: {fault.name for fault in load(PATHS[name]).plan.faults} for name in HURT}
WITH = {kind: next((name for name in HURT if kind in FAULTS_OF[name]), "") for kind in FAULTS}
HELPERS = ("add_node", "relaunch_driver")
# no fault: that the trigger came true is all there is to it
WORKS_BY_ITSELF = ("reached",)
# needs machines that are apart: test_faults_apart.py
APART = tuple(name for name, fault in FAULTS.items() if fault.apart)


def experiment(name: str) -> Plan:
    """One of the catalogue that has such a fault, or the smallest there can be."""
    if WITH[name]:
        return load(PATHS[WITH[name]]).plan
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
    plan = load(PATHS[name]).plan
    for fault in {fault.name for fault in plan.faults} - set(WORKS_BY_ITSELF):
        with monkeypatch.context() as patched:
            no_op(patched, fault)
            reached = verdict(play(plan))
        assert reached[0] == "INVALID" and fault in reached[1], (fault, reached)


def test_a_node_that_left_by_itself_is_no_evidence_of_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drained first, it is gone before anybody looks; whichever seed."""
    no_op(monkeypatch, "sigkill_node")
    for seed in range(20):
        reached = verdict(play(load(PATHS["early-reclaim"], {"seed": str(seed)}).plan))
        assert reached[0] == "INVALID" and "sigkill_node" in reached[1], reached


# after the run, and before its time is up
LATE_S = 60.0


def inject_late(monkeypatch: pytest.MonkeyPatch, late_s: float = LATE_S) -> None:
    """A slow harness: what it is about to hit is known, and it hits so much later."""
    original = injector.SimulatedInjector._inject

    def later(self: Any, armed: Any, hit: Any) -> None:
        self._timeline.later(late_s, original, self, armed, hit)

    monkeypatch.setattr(injector.SimulatedInjector, "_inject", later)


@pytest.mark.parametrize("name", sorted(set(FAULTS) - {*WORKS_BY_ITSELF, *HELPERS, *APART}))
def test_a_fault_that_lands_after_the_run_is_invalid(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    plan = experiment(name)
    first = next(fault for fault in plan.faults if fault.name == name)
    alone = Plan("late", plan.configuration, (FaultPlan(name, first.target, {"step": 12}, {}),), Expect())
    inject_late(monkeypatch)
    reached = verdict(play(alone))
    assert reached[0] == "INVALID" and name in reached[1], reached


@pytest.mark.parametrize("name", [name for name in HURT if FAULTS_OF[name] - set(WORKS_BY_ITSELF)])
def test_an_experiment_whose_faults_all_land_late_is_no_pass(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    inject_late(monkeypatch)
    assert judge(play(load(PATHS[name]).plan)).verdict != "PASS"


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


def test_what_is_undone_at_once_is_invalid() -> None:
    """Without `after: 0` a step that was long ago thaws the node in the moment it is frozen."""
    for until, expected in (({"step": 3}, "INVALID"), ({"step": 20, "after": 0}, "PASS")):
        fault = FaultPlan("freeze_node", {"rank": 1}, {"step": 12}, {"until": until})
        charged = {"max_failures": 1} if expected == "PASS" else {}
        reached = verdict(play(Plan("frozen", RUN, (fault,), Expect(charged=charged))))
        assert reached[0] == expected, reached
        assert expected == "PASS" or "its `until` was true before it landed" in reached[1]


def test_a_fault_that_the_ledger_excuses_is_no_proof_of_the_charge_that_was_expected() -> None:
    """The last step is done when it is killed: 0 charged is right, and says nothing about a charge."""
    fault = FaultPlan("sigkill_worker", {"rank": 1}, {"event": "worker_finished"})
    run = Configuration(cluster="simulated", nodes=2, num_workers=2, max_failures=1, job_config={"steps": 20})
    verdicts = {verdict(play(plan_with(run, fault, seed)))[0] for seed in range(8)}
    assert "PASS" not in verdicts, verdicts


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


def test_a_view_that_breaks_leaves_the_verdict_and_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines(tmp_path, lambda all: all)
    monkeypatch.setattr(judging, "goodput", breaks)
    [result] = judge_folder(tmp_path).results
    assert (result.verdict, result.goodput) == ("PASS", None)
    assert result.notes == ("goodput was not computed: KeyError: 'no such rank' (a bug in shaketable)",)


def test_what_breaks_in_the_harness_is_not_booked_on_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = load(PATHS["worker-crash"]).plan
    monkeypatch.setattr(LifeCycle, "found", breaks)
    with pytest.raises(KeyError, match="no such rank"):
        play(plan)


def test_what_breaks_in_the_runtime_is(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = load(PATHS["worker-crash"]).plan
    monkeypatch.delitem(budget.ACCOUNT_OF, "worker_death")
    assert player.play(plan, arm(plan)).crash == "KeyError: 'worker_death'"
