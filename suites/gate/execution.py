"""The one core behind `shaketable run`, the pytest plugin and `shake(...)`: `run_plan`, from a prepared experiment to a
`Result`, which is left in the result folder.

The engine judges; what is added here is what only a runner knows: the folder, the seconds, the mutant that is loaded,
and what is on record of the subject.
"""

from __future__ import annotations

import copy
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from chaoslib.exceptions import InterruptExecution

from shaketable.chaos import toolkit
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.history.view import History
from shaketable.chaos.plan import Configuration, Judgement
from shaketable.chaos.run import engine
from shaketable.chaos.run.engine import Executed
from shaketable.chaos.run.preparation import Prepared, armed_anew
from shaketable.chaos.verdict.recoveries import recoveries
from shaketable.chaos.verdict.views import viewed
from shaketable.reports.console import shown
from shaketable.reports.cost import by_tier
from shaketable.reports.goodput import Goodput, accounted
from shaketable.reports.landed import landed, output
from shaketable.reports.results import Result
from shaketable.suites import mutants
from shaketable.suites.gate import deviations
from shaketable.suites.gate.catalogue import Entry, UsageError
from shaketable.suites.gate.environment import machine_problem

# brings ray
if TYPE_CHECKING:
    from shaketable.clusters.local.pool import ClusterPool

HISTORY, EXPERIMENT, RESULT, TRACEBACK = "history.jsonl", "experiment.yaml", "result.json", "traceback.txt"
# the try before, which was INVALID, within the folder of an experiment that was run again
BEFORE = "invalid"


@dataclass(frozen=True, slots=True)
class Trial:
    """One experiment that is about to be run, and what is known of it besides its plan. `keep_storage`: checkpoints
    stay after a PASS too. `repeat`: which time this is, from 1; 0: there is but one."""

    name: str
    prepared: Prepared
    tags: tuple[str, ...] = ()
    mutant: str = ""
    canary: bool = False
    keep_storage: bool = False
    repeat: int = 0

    @property
    def label(self) -> str:
        """What it is called among the others of a run: its name, with a number where it is repeated."""
        return f"{self.name}-{self.repeat}" if self.repeat else self.name

    @property
    def configuration(self) -> Configuration:
        return self.prepared.plan.configuration

    @property
    def shape(self) -> str:
        """Experiments of one shape share clusters."""
        made = self.configuration
        if made.on_pods:
            # a RayCluster is made anew for other worker groups and another head, not for other numbers
            tiers = [tier.get("name", "") for tier in made.tiers]
            head = (made.gcs_storage, made.autoscaler, str(made.max_nodes), made.launcher, made.tpus)
            return "-".join([made.cluster, made.accelerator_type, made.topology, *tiers, *head])
        return made.cluster if made.attach else f"{made.cluster}-{made.nodes}"


# ---- from a file ----


def trials(entry: Entry, variables: Mapping[str, str], mutant: str = "", canary: str = "") -> list[Trial]:
    """The experiment of a file and, where the mutant `canary` is played with it, that one too, which breaks our own
    runtime. Raises UsageError for whatever is wrong with either, before anything is started."""
    made = [Trial(entry.name, _loaded(entry, variables), entry.tags, mutant)]
    for each in mutants.named(mutant):
        if why := _not_run(each, made[0].configuration.cluster):
            raise UsageError(f"--mutant {each.name} breaks a part of the runtime that {why}")
    if canary and mutants.MUTANTS[canary].experiment == entry.name:
        # one that hangs has been seen to be caught within that time
        hangs_s = mutants.MUTANTS[canary].within_s
        limit = {} if hangs_s is None else {"within_s": f"{hangs_s:g}"}
        ours = _loaded(entry, {**limit, **variables, "subject": "bundled"})
        made.append(Trial(mutants.canary_name(canary), ours, entry.tags, canary, canary=True))
    return made


def repeated(trials: Sequence[Trial], times: int) -> list[Trial]:
    """Each of them so many times; the canary, which says nothing of speed, once."""
    if times == 1:
        return list(trials)
    return [
        trial if trial.canary else replace(trial, repeat=repeat, prepared=armed_anew(trial.prepared))
        for trial in trials
        for repeat in range(1, 2 if trial.canary else times + 1)
    ]


def _not_run(mutant: mutants.Mutant, cluster: str) -> str:
    """Why it would be planted in vain; empty: it would not."""
    if cluster == "simulated" and mutant.tried in ("processes", "local"):
        return f"the simulation does not run: use --cluster {mutant.tried}"
    if cluster == "processes" and mutant.tried == "local":
        return "only Ray uses: use --cluster local"
    return ""


def _loaded(entry: Entry, variables: Mapping[str, str]) -> Prepared:
    try:
        return toolkit.load(entry.path, copy.deepcopy(dict(entry.document)), variables)
    except ExperimentError as error:
        raise UsageError(str(error)) from None


# ---- to a result ----


def run_until_valid(trial: Trial, folder: Path, pool: ClusterPool, results: Path, retries: int) -> Result:
    """As `run_plan`, and again while it is INVALID, up to `retries` times. A try that proves nothing hides nothing.
    The earlier try is left below the folder, and the result says what it came to."""
    before: tuple[str, ...] = ()
    while True:
        began_s = time.monotonic()
        try:
            result = run_plan(trial, folder, pool, results)
        except Exception as error:
            if not _at_fault(error):
                raise
            result = broken(trial, folder, results, error, time.monotonic() - began_s)
        if result.verdict != "INVALID" or len(before) == retries:
            break
        before = (*before, result.reason)
        _set_aside(folder)
        trial = replace(trial, prepared=armed_anew(trial.prepared))
    if before:
        result = replace(result, invalid_before=before)
        (folder / RESULT).write_bytes(dump(result))
    return result


def _set_aside(folder: Path) -> None:
    aside = folder.rename(folder.with_name(f".{folder.name}"))
    folder.mkdir()
    aside.rename(folder / BEFORE)


def run_plan(trial: Trial, folder: Path, pool: ClusterPool, results: Path | None = None) -> Result:
    """Run it in `folder` and leave its result there. `results`: the directory that the folder is one of, where runs
    without faults are shared; None: it stands alone. Whatever is unexpected is left to escape."""
    began_s = time.monotonic()
    with _broken_by(trial):
        executed = _executed(trial, folder, pool, results)
    result = replace(_described(trial, folder, results), seconds=time.monotonic() - began_s, took=dict(executed.took))
    result = judged(result, executed.judgement, executed.history, accounted)
    (folder / RESULT).write_bytes(dump(result))
    return result


def judged(
    result: Result, judgement: Judgement, history: History, measure: Callable[[History], Goodput | None]
) -> Result:
    """The result with everything that its history says. Raises UsageError for a file of deviations that cannot be
    read."""
    measured, no_goodput = viewed("goodput", lambda: measure(history))
    recovered, no_recovery = viewed("recovery", lambda: recoveries(history))
    hits, no_hits = viewed("what landed", lambda: landed(history.events))
    printed, no_output = viewed("output", lambda: output(history.events))
    tiers, no_tiers = viewed("tiers", lambda: by_tier(history))
    told = replace(
        result,
        verdict=judgement.verdict,
        reason=judgement.reason,
        findings=judgement.findings,
        exceeded=judgement.exceeded,
        landed=hits or (),
        output=printed or (),
        goodput=measured,
        recoveries=recovered or (),
        notes=(*judgement.notes, *no_goodput, *no_recovery, *no_hits, *no_output, *no_tiers),
        tiers=tiers or (),
    )
    return deviations.held_against(told, judgement, history)


def broken(trial: Trial, folder: Path, results: Path, error: BaseException, seconds: float) -> Result:
    """The result of an experiment that came to no verdict: the machine or the experiment is at fault where the error
    says so, and the harness itself where not, with its traceback in a file."""
    if said := _at_fault(error):
        blank = _described(trial, folder, results)
        return replace(blank, verdict="INVALID", reason=said, seconds=seconds)
    (folder / TRACEBACK).write_text("".join(traceback.format_exception(error)))
    reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    blank = _described(trial, folder, results)
    return replace(blank, reason=reason, seconds=seconds, traceback=shown(folder / TRACEBACK))


def _at_fault(error: BaseException) -> str:
    """What the machine or the experiment is blamed for; empty: the harness is."""
    return machine_problem(error) or (str(error) if isinstance(error, UsageError | ExperimentError) else "")


def reproduce(folder: Path, mutant: str = "") -> str:
    command = f"shaketable run {shown(folder / EXPERIMENT)}"
    return f"{command} --mutant {mutant}" if mutant else command


def fresh_folder(results: Path, name: str) -> Path:
    """Two experiments may share a name: the second gets a number."""
    for number in range(1, 1000):
        folder = results / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"{results} already holds a thousand folders called {name}")


def dump(result: Result) -> bytes:
    return msgspec.json.encode(result)


def load(text: str | bytes) -> Result:
    return msgspec.json.decode(text, type=Result)


@contextmanager
def _broken_by(trial: Trial) -> Iterator[None]:
    """With its mutant, if it has one: in every driver started inside, and in this process where it plays the driver."""
    from shaketable.suites.mutants import patches

    here = trial.mutant if trial.configuration.cluster == "simulated" else ""
    with mutants.loaded(trial.mutant), patches.applied(here):
        yield


def _executed(trial: Trial, folder: Path, pool: ClusterPool, results: Path | None) -> Executed:
    prepared = trial.prepared
    try:
        if prepared.document is None:
            return engine.execute(prepared, folder, pool=pool, keep_storage=trial.keep_storage)
        return toolkit.run(prepared, folder=folder, pool=pool, controls=results)
    except InterruptExecution as error:
        # Chaos Toolkit's own handler of SIGTERM stands before ours
        raise KeyboardInterrupt from error
    finally:
        # so that there always is something to reproduce with
        if not (folder / EXPERIMENT).exists():
            engine.write_experiment(prepared, folder)


def _described(trial: Trial, folder: Path, results: Path | None) -> Result:
    """What is known before anything has come of it."""
    made = trial.configuration
    return Result(
        name=folder.name if results else trial.label,
        verdict="ERROR",
        reason="",
        seconds=0.0,
        title=trial.prepared.plan.title,
        tags=trial.tags,
        folder=str(folder.relative_to(results) if results else folder.absolute()),
        subject=made.subject,
        cluster=made.cluster,
        nodes=made.nodes,
        seed=made.seed,
        reproduce=reproduce(folder, trial.mutant),
        mutant=trial.mutant,
        canary=trial.canary,
        experiment=trial.name,
        repeat=trial.repeat or 1,
        must_fail=next((each.caught_by[0] for each in mutants.named(trial.mutant) if each.caught_by), ""),
    )
