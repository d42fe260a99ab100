"""One experiment on its way through Chaos Toolkit: armed by the control, executed by the probe, judged once.

It keeps what Chaos Toolkit would swallow: an unexpected error, Ctrl-C, a fault that was planned and never armed.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from chaoslib.exceptions import InterruptExecution
from chaoslib.experiment import run_experiment
from chaoslib.types import Strategy

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.history.events import FaultHealed, FaultInjected, FaultMissed, FaultObserved
from shaketable.chaos.history.view import History
from shaketable.chaos.plan import FaultPlan, Judgement, Plan
from shaketable.chaos.run.engine import Executed, execute
from shaketable.chaos.run.preparation import Prepared

if TYPE_CHECKING:
    from shaketable.clusters.local.pool import ClusterPool

LANDING = (FaultInjected, FaultObserved, FaultMissed, FaultHealed)
log = logging.getLogger("chaostoolkit")


class ArmedExperiment:
    """`pool` None: clusters of its own, torn down at the end."""

    def __init__(
        self,
        prepared: Prepared,
        folder: Path,
        pool: ClusterPool | None,
        progress: Callable[[str], None],
        controls: Path | None = None,
    ) -> None:
        self.prepared, self.folder, self._controls = prepared, folder, controls
        self._pool, self._progress = pool, progress
        self._armed: list[FaultPlan] = []
        self._executed: Executed | None = None
        self._error: BaseException | None = None
        self._interrupted = False

    @property
    def plan(self) -> Plan:
        return self.prepared.plan

    # ---- what the control and the activities call ----

    def begin(self, context: Mapping[str, Any]) -> None:
        """Raises ExperimentError for a way of running it that would prove nothing."""
        dry = context.get("dry")
        if dry:
            raise ExperimentError(f"--dry {getattr(dry, 'value', dry)} proves nothing, so it is no way to run this")

    def arm(self, fault: FaultPlan) -> dict[str, Any]:
        planned = self.plan.faults
        if len(self._armed) >= len(planned) or planned[len(self._armed)].name != fault.name:
            raise ExperimentError(f"{fault.name} was armed out of turn: the plan is {[f.name for f in planned]}")
        self._armed.append(fault)
        return {"armed": fault.name, "target": fault.target, "at": fault.at}

    def execute(self) -> Judgement:
        """Once. Whatever goes wrong is kept for `result()` as well."""
        if len(self._armed) != len(self.plan.faults):
            return Judgement("INVALID", f"only {len(self._armed)} of {len(self.plan.faults)} faults were armed")
        if self._executed is None:
            try:
                self._executed = self._execute()
            except BaseException as error:
                self._error = error
                raise
        return self._executed.judgement

    def _execute(self) -> Executed:
        from shaketable.clusters.local.pool import ClusterPool

        self.folder.mkdir(parents=True, exist_ok=True)
        if self._pool is not None:
            return self._play(self._pool)
        pool = ClusterPool()
        try:
            return self._play(pool)
        finally:
            pool.close()

    def _play(self, pool: ClusterPool) -> Executed:
        return execute(self.prepared, self.folder, pool=pool, progress=self._progress, controls=self._controls)

    def end(self) -> Executed:
        """What it came to, when there is nothing more to come."""
        if self._executed is not None:
            return self._executed
        why = f"it broke: {self._error!r}" if self._error else "the verdict probe was never called after the method"
        return Executed(Judgement("INVALID", why), History(()))

    # ---- what is made of it ----

    def journal(self) -> dict[str, Any]:
        """What goes into Chaos Toolkit's own journal."""
        executed = self.end()
        landing = [msgspec.to_builtins(event) for event in executed.history.events if isinstance(event, LANDING)]
        return {"judgement": asdict(executed.judgement), "landing": landing, "folder": str(self.folder)}

    def run_through_chaoslib(self) -> None:
        """Chaos Toolkit's own run, which never raises; its journal goes beside the history."""
        document, variables = dict(self.prepared.document or {}), dict(self.prepared.variables)
        strategy = document.get("runtime", {}).get("hypothesis", {}).get("strategy", "default")
        journal = run_experiment(
            document, settings={}, experiment_vars=(variables, {}), strategy=Strategy.from_string(strategy)
        )
        self._interrupted = journal["status"] == "interrupted"
        if self.folder.is_dir():
            text = json.dumps(journal, indent=2, default=str)
            (self.folder / "journal.json").write_text(text + "\n")

    def result(self) -> Executed:
        """What it came to, or what kept it from that."""
        # what Chaos Toolkit makes of a SIGTERM
        if isinstance(self._error, InterruptExecution):
            raise KeyboardInterrupt from self._error
        if self._error is not None:
            raise self._error
        if self._executed is None and self._interrupted:
            raise KeyboardInterrupt
        return self.end()


def invocation() -> tuple[str, dict[str, Any]]:
    """Source and variables of the `chaos run` that is going on, as its command line parsed them."""
    context = click.get_current_context(silent=True)
    if context is None:
        return "", {}
    return str(context.params.get("source") or ""), dict(context.params.get("var") or {})


def default_folder(source: str, title: str) -> Path:
    """Where a plain `chaos run` leaves its result."""
    path = Path(source)
    name = path.parent.name if path.stem == "experiment" else path.stem
    name = name or re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    stamp = datetime.datetime.now().strftime("%Y-%m-%dT%H%M%S")
    return Path("shaketable-results") / stamp / name


@contextlib.contextmanager
def quiet_log() -> Iterator[None]:
    """Chaos Toolkit's log says nothing that the verdict does not; without a handler Python prints it to stderr."""
    before = log.level, log.propagate
    handler = logging.NullHandler()
    log.addHandler(handler)
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = before
