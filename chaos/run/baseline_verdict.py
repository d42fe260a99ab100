"""What a control run shows: a reason why no experiment can be made of this job, with what to do about it, or what a
whole run of it looks like. It sees the events and the driver's output, and nothing else.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

from shaketable.chaos.history.events import (
    AnyEvent,
    AttemptEnded,
    AttemptStarted,
    Committed,
    DeadlinePassed,
    DriverExited,
    Event,
    ReferenceRun,
    RunConfigured,
    RunEnded,
    Stepped,
    ToldMetrics,
)
from shaketable.chaos.job_kinds import is_bundled, is_command
from shaketable.chaos.plan import Configuration
from shaketable.chaos.subjects.protocol import Launch
from shaketable.chaos.verdict.judge import FIT_AGAIN

TAIL_LINES = 15
TAIL_WIDTH = 200
# of our workloads those that are compared with a run of theirs; relative, in another world size
COMPARED = {
    # it adds the same numbers up in another order there
    "torch_ddp": 1e-4,
    # its sums are exact
    "jax_sharded": 0.0,
}
NO_FAULTS = "the job does not finish without faults"
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
E = TypeVar("E", bound=Event)


def hopeless(event: AnyEvent, launch: Launch) -> str | None:
    """What is wrong the moment this is recorded, so that nobody has to wait for the end of it."""
    if isinstance(event, RunConfigured):
        return _elsewhere(event, launch) or _again(event) or _too_large(event, launch.effective)
    if isinstance(event, Stepped) and event.unkeyed:
        return _no_key(launch.effective.step_key, event)
    return None


def problem(events: Sequence[AnyEvent], launch: Launch, output: str) -> str | None:
    """The first thing that stands in the way, or None."""
    found = (why for event in events if (why := hopeless(event, launch)) is not None)
    return next(itertools.chain(found, _problems(events, launch, output)), None)


def _problems(events: Sequence[AnyEvent], launch: Launch, output: str) -> Iterator[str]:
    configuration, steps = launch.effective, _all(events, Stepped)
    for late in _all(events, DeadlinePassed):
        last = f"step {steps[-1].step}" if steps else "no step"
        yield (
            f"{NO_FAULTS}: not over within {late.within_s:g} s, {last} so far; make it shorter, or raise the limit with"
            " --within SECONDS"
        )
    for exit in _all(events, DriverExited):
        if exit.code:
            why = f"{_imports(configuration)}{_said(output)}"
            yield f"{NO_FAULTS}: {_called(configuration)} exited with {exit.code}{why}"
    if not _all(events, AttemptStarted):
        yield _unseen(configuration)
    yield from _untidy(events)
    if not steps:
        yield ("the job trained but never reported: its training function must call ray.train.report() on every rank")
    yield from _backwards(steps, configuration)


def _untidy(events: Sequence[AnyEvent]) -> Iterator[str]:
    ended = _all(events, RunEnded)
    if ended and ended[-1].outcome != "finished":
        yield f"{NO_FAULTS}: fit() said {ended[-1].outcome}: {ended[-1].error}"
    broken = [end for end in _all(events, AttemptEnded) if end.cause not in ("finished", "resized")]
    if broken:
        yield (
            f"the job fails by itself: without faults attempt {broken[0].attempt} ended {broken[0].cause}"
            f" ({broken[0].detail}); remove that failure, or the cost of a fault cannot be told"
        )


def _elsewhere(event: RunConfigured, launch: Launch) -> str | None:
    if event.address == launch.address:
        return None
    return (
        f"the script joined the cluster at {event.address}, not the experiment's at {launch.address}: replace its"
        " ray.init(address=...) by ray.init(), which follows RAY_ADDRESS"
    )


def _again(event: RunConfigured) -> str | None:
    if event.fit < 2:
        return None
    return FIT_AGAIN.format(event.name)


def _too_large(event: RunConfigured, configuration: Configuration) -> str | None:
    cpus = event.resources_per_worker.get("CPU", 0)
    other = {key: value for key, value in event.resources_per_worker.items() if key != "CPU" and value}
    if other:
        return f"the script asks for {_words(other)} per worker; the nodes here have one CPU each and nothing else"
    if cpus > 1:
        return f"the script asks for {cpus:g} CPUs per worker; the nodes here have one each"
    room = configuration.nodes * int(1 / cpus) if cpus else event.min_workers
    if event.min_workers <= room:
        return None
    return (
        f"the script asks for at least {event.min_workers} workers, but there are {configuration.nodes} nodes"
        f" with room for {room}: use --var nodes={event.min_workers}, or a smaller ScalingConfig(num_workers=...)"
    )


def _words(resources: dict[str, float]) -> str:
    return ", ".join(f"{value:g} {key}" for key, value in resources.items())


def _unseen(configuration: Configuration) -> str:
    if not is_command(configuration.job):
        return f"{_called(configuration)} ended without starting an attempt"
    return (
        f"{_called(configuration)} exited with 0 but did not train: it started no run of Ray Train. It must call"
        " fit() of a ray.train trainer with at least one worker, in a process that has its environment"
        " (RAY_TRAIN_CALLBACKS, RAY_ADDRESS)"
    )


def _no_key(key: str, event: Stepped) -> str:
    there = ", ".join(sorted(event.metrics or {})) or "none at all"
    return (
        f"the job reports no step: --step-key {key} is not a whole number among its metrics ({there});"
        " name another metric, or leave --step-key out to count reports"
    )


def _backwards(steps: Sequence[Stepped], configuration: Configuration) -> Iterator[str]:
    if not configuration.step_key:
        return
    for before, after in itertools.pairwise(_of_rank_0(steps)):
        if after.step < before.step:
            yield (
                f"--step-key {configuration.step_key} goes back from {before.step} to {after.step} without any fault,"
                " so it does not count steps: name another metric, or leave --step-key out to count reports"
            )


def _called(configuration: Configuration) -> str:
    return f"`{configuration.job}`" if is_command(configuration.job) else f"the driver of {configuration.job}"


def _imports(configuration: Configuration) -> str:
    """The first thing to look at where a function written for Ray Train is put on our own runtime."""
    if configuration.subject != "bundled":
        return ""
    return " (on bundled it must import from shaketable.runtime what it imports from ray.train)"


def _said(output: str) -> str:
    lines = tail(output)
    return f": {lines[-1].strip()}" if lines else ""


def tail(output: str) -> list[str]:
    """The last lines of what the driver printed, without colours."""
    lines = [ESCAPES.sub("", line).rstrip()[:TAIL_WIDTH] for line in output.splitlines()]
    return [line for line in lines if line][-TAIL_LINES:]


# ---- what a whole run looks like -----------------------------------------------------------------------------


def reference(events: Sequence[AnyEvent], configuration: Configuration) -> ReferenceRun:
    every, ended = _all(events, Stepped), _all(events, RunEnded)
    steps = _of_rank_0(every)
    ours = is_bundled(configuration.job)
    metrics = (ended[-1].metrics if ours and ended else steps[-1].metrics if steps else None) or {}
    configured = _all(events, RunConfigured)
    return ReferenceRun(
        metrics=metrics,
        tolerance=COMPARED.get(configuration.job.rpartition(":")[2], 0.0) if ours else configuration.metrics_tolerance,
        world_sizes=sorted({attempt.world_size for attempt in _all(events, AttemptStarted)}),
        steps=[step.step for step in steps],
        commits=sorted({commit.index for commit in _all(events, Committed)})[:2],
        name=configured[0].name if configured else "",
        reports=_reports(every),
    )


def _reports(steps: Sequence[Stepped]) -> dict[int, list[ToldMetrics]]:
    """Of the ranks whose reports have metrics."""
    found: dict[int, list[ToldMetrics]] = {}
    for step in steps:
        if step.metrics:
            found.setdefault(step.rank, []).append(ToldMetrics(step.step, step.metrics))
    return found


def _of_rank_0(steps: Sequence[Stepped]) -> list[Stepped]:
    return [step for step in steps if step.rank == 0]


def _all(events: Sequence[AnyEvent], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]
