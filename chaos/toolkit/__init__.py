"""The Chaos Toolkit extension: a control, one function for each fault, and the `verdict` probe.

An experiment runs like this, under `chaos run` as under `shaketable run`: the control arms the experiment before the
method; the method's actions arm their faults, in order, and return at once; the `verdict` probe executes them all
(`chaos/run/engine.py`) and answers with the verdict. Chaos Toolkit fails open in many ways (a misspelt control, an
error in one, a skipped probe), so this fails closed three times over: nothing runs unless the control armed it, the
journal is `failed` until a PASS was judged, and the control itself looks at the judgement when everything is over.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from chaoslib.exceptions import ChaosException, InterruptExecution
from chaoslib.experiment import ensure_experiment_is_valid

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment import documents, vocabulary
from shaketable.chaos.experiment import file as files
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.plan import FaultPlan, Judgement
from shaketable.chaos.run.engine import Executed
from shaketable.chaos.run.preparation import Prepared, prepare
from shaketable.chaos.toolkit.armed_experiment import ArmedExperiment, default_folder, invocation, quiet_log

if TYPE_CHECKING:
    from shaketable.clusters.local.pool import ClusterPool

# the one that is armed; Chaos Toolkit runs one experiment at a time
_armed: ArmedExperiment | None = None
# prepared by `run_file` for the control to arm
_given: ArmedExperiment | None = None


class NotArmed(SystemExit):
    """The control has not armed the experiment: it is misspelt, or missing, or refused. Not an `Exception`, since Chaos
    Toolkit turns those of an action into a note in a journal that ends as completed."""


# ---- the control ----


def before_experiment_control(context: dict[str, Any], configuration: dict[str, Any], **_: Any) -> None:
    """Check the whole experiment, and arm it."""
    global _armed
    _armed = None
    try:
        _armed = _given or _invoked(context, configuration)
        _armed.begin(context)
    except ExperimentError as error:
        _armed = None
        raise InterruptExecution(f"shaketable: {error}") from error


def _invoked(document: Mapping[str, Any], configuration: Mapping[str, Any]) -> ArmedExperiment:
    """That of a plain `chaos run`, which has resolved the configuration itself."""
    source, variables = invocation()
    files.undeclared(variables, document.get("configuration", {}))
    plan = files.plan_of({**document, "configuration": dict(configuration)}, {})
    return ArmedExperiment(prepare(plan, document, variables), default_folder(source, plan.title), None, print)


def after_experiment_control(state: dict[str, Any], **_: Any) -> None:
    """Failed, unless this very one was judged PASS."""
    global _armed
    status, state["status"] = state["status"], "failed"
    experiment, _armed = _armed, None
    if experiment is None:
        return
    judgement = experiment.end().judgement
    state["shaketable"] = experiment.journal()
    if judgement.verdict == "PASS":
        state["status"] = status
    if judgement.verdict != "PASS" or judgement.exceeded:
        state["deviated"] = True


def cleanup_control() -> None:
    """The last thing Chaos Toolkit calls, whatever happened: nothing stays armed."""
    global _armed
    experiment, _armed = _armed, None
    if experiment is not None:
        experiment.end()


# ---- the method ----


def __getattr__(name: str) -> Callable[..., dict[str, Any]]:
    """The action of a fault. Raises AttributeError where there is none of that name."""
    if name.startswith("_") or name not in FAULTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _arming(getattr(vocabulary, name))


def __dir__() -> list[str]:
    """With the actions, for `chaos validate`."""
    return sorted({*globals(), *FAULTS})


def _arming(function: Callable[..., FaultPlan]) -> Callable[..., dict[str, Any]]:
    """The action of the same name and signature: `chaos validate` refuses whatever the fault does not take."""

    @functools.wraps(function)
    def arm(*arguments: Any, **named: Any) -> dict[str, Any]:
        experiment = _armed or _not_armed(function.__name__)
        return experiment.arm(function(*arguments, **named))

    return arm


# ---- the hypothesis ----


def verdict(
    outcome: str = "finished",
    charged: dict[str, int] | None = None,
    steps_lost: int | None = None,
    within_s: float = 300.0,
    world_size: int | None = None,
    driver: int | None = None,
    recovery_within_s: float | None = None,
) -> str:
    """Execute what the method has armed. `PASS`, `FAIL` or `INVALID`, and one sentence of reason; then the limits of
    speed that were exceeded."""
    experiment = _armed or _not_armed("verdict")
    judgement = experiment.execute()
    return "; ".join([f"{judgement.verdict} {judgement.reason}", *(f"limit: {said}" for said in judgement.exceeded)])


def _not_armed(name: str) -> NoReturn:
    raise NotArmed(
        f"shaketable: {name} was called, but no control has armed it: the experiment needs "
        f"`controls: [{{name: shaketable, provider: {{type: python, module: {__name__}}}}}]`"
    )


# ---- from Python ----


def load(path: Path, document: dict[str, Any], variables: Mapping[str, str]) -> Prepared:
    """The experiment that the `document` read from `path` is, for `run`. Raises ExperimentError that names the file and
    the place in it for whatever its author got wrong."""
    try:
        prepared = prepare(files.plan_of(document, variables), document, variables)
        with quiet_log():
            ensure_experiment_is_valid(document)
    except (ExperimentError, ChaosException) as error:
        raise ExperimentError(f"{path}: {error}") from error
    return prepared


def run(
    prepared: Prepared,
    *,
    folder: Path,
    pool: ClusterPool | None = None,
    progress: Callable[[str], None] = lambda line: None,
    controls: Path | None = None,
) -> Executed:
    """Run one experiment through Chaos Toolkit with its result in `folder`; `controls` as in `engine.execute`. Raises
    KeyboardInterrupt after Ctrl-C, and whatever is wrong in the harness."""
    global _given
    experiment = _given = ArmedExperiment(prepared, folder, pool, progress, controls)
    try:
        with quiet_log():
            experiment.run_through_chaoslib()
        return experiment.result()
    finally:
        _given = None


def run_file(path: Path, *, variables: Mapping[str, str], folder: Path, pool: ClusterPool | None = None) -> Judgement:
    """Run one experiment file. Raises ExperimentError besides what `run` raises."""
    return run(load(path, documents.read(path), variables), folder=folder, pool=pool).judgement
