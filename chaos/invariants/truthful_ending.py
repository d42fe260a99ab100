"""truthful-ending: what `fit()` said, how the driver exited, what the log holds and what the workers did
agree."""

from __future__ import annotations

from collections.abc import Iterator

from shaketable.chaos.fault_kinds import kind_of, takes_driver
from shaketable.chaos.history.entries import Commit, Finale
from shaketable.chaos.history.events import (
    DeadlinePassed,
    FaultInjected,
    FaultObserved,
    LogRecord,
    RunEnded,
    TermBegan,
    UploadStarted,
)
from shaketable.chaos.history.view import DriverLife, History
from shaketable.chaos.invariants.findings import failed, invariant, not_applicable, passed
from shaketable.chaos.invariants.log_facts import wrong_facts
from shaketable.chaos.plan import Finding

NAME = "truthful-ending"
CODES = {"finished": (0,), "failed": (1,), "interrupted": (130, 143)}
KILLED = 137


@invariant(
    NAME, order=110, unrecorded="a Recorder does not see how a driver exits, nor who interrupted it", exit_codes=CODES
)
def truthful_ending(history: History) -> Finding:
    ended = history.run_ended
    if ended is None and not any(life.exited for life in history.driver_lives):
        return not_applicable(NAME, "the history ends before the run does")
    if history.all(DeadlinePassed):
        return not_applicable(NAME, "the harness ended the run at its deadline")
    for check in (_exits, _finished, _handed_over, _failed, _interrupted, _log, wrong_facts):
        if (wrong := next(check(history), None)) is not None:
            return failed(NAME, wrong)
    if ended is None:
        return passed(NAME, "the driver was killed and said nothing")
    return passed(NAME, f"said {ended.outcome}, which is true")


def _exits(history: History) -> Iterator[str]:
    """Each driver's exit code is that of what its `fit()` said; a killed one says nothing."""
    for life in history.driver_lives:
        if life.exited is None:
            continue
        if _superseded(history, life):
            # a fenced driver has no say in how the run ends
            continue
        said = [event for event in history.all(RunEnded) if history.driver_life_of(event) is life]
        code, name = life.exited.code, f"the driver of launch {life.started.launch}"
        fits = said and (_fits(history, said[-1].outcome, code) or _asked_after(history, life, said[-1], code))
        if said and not fits and code != KILLED:
            yield f"{name} said {said[-1].outcome} and exited with {code}"
        if not said and code != KILLED and _took_over(history, life) and not _asked_to_go(history, code):
            yield f"{name} exited with {code}, but fit() said nothing"
        if code == KILLED and not _driver_killed(history, life):
            yield f"{name} died by SIGKILL, but no fault did that"


def _fits(history: History, outcome: str, code: int) -> bool:
    """A script chooses for itself with which code it fails, and Ray Train with which it is interrupted."""
    if history.script and outcome != "finished":
        return code != 0 or outcome == "interrupted"
    return code in CODES.get(outcome, ())


def _superseded(history: History, life: DriverLife) -> bool:
    own = [event.term for event in history.all(TermBegan) if history.driver_life_of(event) is life]
    later = [event.term for event in history.all(TermBegan) if life.exited and event.at_s < life.exited.at_s]
    return bool(own) and max(later, default=0) > max(own)


def _took_over(history: History, life: DriverLife) -> bool:
    """Whether it came as far as the run at all; what ends a driver before that is no ending of the run."""
    return any(history.driver_life_of(event) is life for event in history.all(TermBegan))


def _asked_to_go(history: History, code: int) -> bool:
    faults = [event.name for event in history.all(FaultInjected)]
    asked = any(map(interrupts, faults))
    return (asked and code in CODES["interrupted"]) or any(code in kind_of(name).ends_with for name in faults)


def _asked_after(history: History, life: DriverLife, said: RunEnded, code: int) -> bool:
    """A signal that arrives after the last word of a driver ends an interpreter that was on its way out."""
    hit_s = {event.fault: (event.hit_ms or 0.0) / 1000 for event in history.all(FaultObserved)}
    asked = (event for event in history.all(FaultInjected) if interrupts(event.name))
    own = (event for event in asked if life.started.pid in event.pids)
    late = (event.at_s + hit_s.get(event.fault, 0.0) + history.skew_s >= said.at_s for event in own)
    return code in CODES["interrupted"] and any(late)


def interrupts(name: str) -> bool:
    return kind_of(name).manner == "interrupted"


def _driver_killed(history: History, life: DriverLife) -> bool:
    return any(
        takes_driver(event.name) and kind_of(event.name).manner == "killed" and event.at_s >= life.started.at_s
        for event in history.all(FaultInjected)
    )


def _finished(history: History) -> Iterator[str]:
    ended = history.run_ended
    if ended is None or ended.outcome != "finished":
        return
    planned = history.planned_steps
    step = (ended.metrics or {}).get("step")
    if planned is not None and step != planned:
        yield f"said finished at step {step} of {planned}"
    if not history.attempts:
        return
    last = history.attempts[-1]
    if last.end is not None and last.end.cause != "finished":
        yield f"said finished, but {last.name} ended {last.end.cause} ({last.end.place})"
    for rank in range(last.world_size) if planned is not None else ():
        if last.last_step(rank) != planned:
            yield f"said finished, but rank {rank} of {last.name} was at step {last.last_step(rank)} of {planned}"
    missing = sorted(set(range(last.world_size)) - last.finished)
    if missing:
        yield f"said finished, but ranks {missing} of {last.name} never returned from the training function"


def _handed_over(history: History) -> Iterator[str]:
    """Finished means that every checkpoint of the last attempt is committed, or named with the end of the run."""
    finale = next((event.record for event in history.all(LogRecord) if event.record["kind"] == "run_finished"), None)
    if finale is None or not history.hash_chained or not history.attempts:
        return
    last, ours = history.attempts[-1], history.all(UploadStarted)
    given = {event.step for event in ours if (event.term, event.attempt) == (last.start.term, last.number)}
    committed = [commit for commit in history.of(Commit) if commit.attempt == last.number]
    named = finale.get("uncommitted", [])
    if len(given) > len(committed) + len(named):
        yield (
            f"said finished, but of {len(given)} checkpoints of {last.name} {len(committed)} are committed and"
            f" {len(named)} named as not committed"
        )


def _failed(history: History) -> Iterator[str]:
    for ended in history.all(RunEnded):
        if ended.outcome != "failed":
            continue
        if not (ended.error or "").strip():
            yield f"term {ended.term} said failed but named no error"
        own = [attempt for attempt in history.attempts if attempt.end and attempt.end.term == ended.term]
        if own and own[-1].end is not None and own[-1].end.cause == "finished":
            yield f"term {ended.term} said failed, but {own[-1].name} had finished ({own[-1].end.place})"


def _log_is_gone(said: RunEnded) -> bool:
    """Then its end cannot be recorded, and the error says so; a driver that never opened the run has none to record."""
    return said.term == 0 or " log " in (said.error or "")


def _interrupted(history: History) -> Iterator[str]:
    faults = [event for event in history.all(FaultInjected) if interrupts(event.name)]
    for ended in history.all(RunEnded):
        superseded = any(event.term > ended.term for event in history.all(TermBegan))
        if ended.outcome == "interrupted" and not faults and not superseded:
            yield f"term {ended.term} said interrupted, but nothing interrupted it"


def _log(history: History) -> Iterator[str]:
    """The log ends as `fit()` said."""
    ended = history.run_ended
    if not history.has_log or ended is None:
        return
    finales = [entry for entry in history.of(Finale) if entry.term <= ended.term]
    last = finales[-1] if finales else None
    if last is None and ended.outcome == "failed" and history.storage_out_of_reach and _log_is_gone(ended):
        return
    if ended.outcome in ("finished", "failed") and (last is None or last.outcome != ended.outcome):
        yield f"said {ended.outcome}, but the log says {last.outcome if last else 'no end'}"
    for said in history.all(RunEnded):
        recorded = any(entry.outcome == "failed" and entry.term == said.term for entry in finales)
        if said.outcome == "failed" and said.term < ended.term and not recorded and not _log_is_gone(said):
            yield f"term {said.term} said failed, but the log holds no end"
    if ended.outcome == "interrupted" and last is not None and last.term == ended.term:
        yield f"said interrupted, but the log says {last.outcome} ({last.place})"
