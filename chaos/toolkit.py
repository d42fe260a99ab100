"""The Chaos Toolkit extension: a control, one function for each fault, and the `verdict` probe.

An experiment runs like this, under `chaos run` as under `shaketable run`: the control arms a session before the method;
the method's actions arm their faults, in order, and return at once; the `verdict` probe executes them all
(`engine.py`) and answers with the verdict. Chaos Toolkit fails open in many ways (a misspelt control, an error in one,
a skipped probe), so this fails closed three times over: nothing runs unless the control armed it, the journal is
`failed` until a PASS was judged, and the control itself looks at the judgement when everything is over.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec

from chaoslib.exceptions import ChaosException, InterruptExecution

from shaketable.chaos import experiment_file as files
from shaketable.chaos import method
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.plan import FaultPlan, Judgement
from shaketable.chaos.session import Session, default_folder, invocation, quiet_log

if TYPE_CHECKING:
    from shaketable.clusters.pool import ClusterPool

P = ParamSpec("P")
_session: Session | None = None  # the one that is armed; Chaos Toolkit runs one experiment at a time
_given: Session | None = None  # prepared by `run_file` for the control to arm


class NotArmed(SystemExit):
    """The control has not armed a session: it is misspelt, or missing, or refused. Not an `Exception`, since Chaos
    Toolkit turns those of an action into a note in a journal that ends as completed."""


# ---- the control ----


def before_experiment_control(context: dict[str, Any], configuration: dict[str, Any], **_: Any) -> None:
    """Check the whole experiment, and arm the session."""
    global _session
    _session = None
    try:
        _session = _given or _invoked(context, configuration)
        _session.begin(context)
    except ExperimentError as error:
        _session = None
        raise InterruptExecution(f"shaketable: {error}") from error


def _invoked(document: Mapping[str, Any], configuration: Mapping[str, Any]) -> Session:
    """The session of a plain `chaos run`, which has resolved the configuration itself."""
    source, variables = invocation()
    files.undeclared(variables, document.get("configuration", {}))
    plan = files.plan_of({**document, "configuration": dict(configuration)}, {})
    return Session(plan, document, default_folder(source, plan.title), None, print)


def after_experiment_control(state: dict[str, Any], **_: Any) -> None:
    """Failed, unless this very session was judged PASS."""
    global _session
    status, state["status"] = state["status"], "failed"
    session, _session = _session, None
    if session is None:
        return
    judgement = session.end()
    state["shaketable"] = session.journal()
    if judgement.verdict == "PASS":
        state["status"] = status
    else:
        state["deviated"] = True


def cleanup_control() -> None:
    """The last thing Chaos Toolkit calls, whatever happened: nothing stays armed."""
    global _session
    session, _session = _session, None
    if session is not None:
        session.end()


# ---- the method ----


def _arming(function: Callable[P, FaultPlan]) -> Callable[P, dict[str, Any]]:
    """The action of the same name and signature: `chaos validate` refuses whatever the fault does not take."""

    @functools.wraps(function)
    def arm(*arguments: P.args, **named: P.kwargs) -> dict[str, Any]:
        session = _session or _not_armed(function.__name__)
        return session.arm(function(*arguments, **named))

    return arm


sigkill_worker = _arming(method.sigkill_worker)
raise_in_worker = _arming(method.raise_in_worker)
hang_worker = _arming(method.hang_worker)
freeze_worker = _arming(method.freeze_worker)
sigterm_node = _arming(method.sigterm_node)
sigkill_node = _arming(method.sigkill_node)
freeze_node = _arming(method.freeze_node)
drain_node = _arming(method.drain_node)
add_node = _arming(method.add_node)
sigkill_driver = _arming(method.sigkill_driver)
sigterm_driver = _arming(method.sigterm_driver)
sigint_driver = _arming(method.sigint_driver)
freeze_driver = _arming(method.freeze_driver)
relaunch_driver = _arming(method.relaunch_driver)
hurt_storage = _arming(method.hurt_storage)
fill_disk = _arming(method.fill_disk)
deny_writes = _arming(method.deny_writes)
damage_checkpoint = _arming(method.damage_checkpoint)
lose_log = _arming(method.lose_log)
reached = _arming(method.reached)


# ---- the hypothesis ----


def verdict(
    outcome: str = "finished",
    charged: dict[str, int] | None = None,
    steps_lost: int | None = None,
    within_s: float = 300.0,
) -> str:
    """Execute what the method has armed. `PASS`, `FAIL` or `INVALID`, and one sentence of reason."""
    session = _session or _not_armed("verdict")
    judgement = session.execute()
    return f"{judgement.verdict} {judgement.reason}"


def _not_armed(name: str) -> NoReturn:
    raise NotArmed(
        f"shaketable: {name} was called, but no control has armed it: the experiment needs "
        f"`controls: [{{name: shaketable, provider: {{type: python, module: {__name__}}}}}]`"
    )


# ---- from Python ----


def run_file(path: Path, *, variables: Mapping[str, str], folder: Path, pool: ClusterPool | None = None,
             progress: Callable[[str], None] = lambda line: None,
             controls: Path | None = None) -> Judgement:  # fmt: skip
    """Run one experiment file through Chaos Toolkit with its result in `folder`; `controls` as in `engine.execute`.
    Raises ExperimentError for what its author got wrong, KeyboardInterrupt after Ctrl-C, and whatever else is wrong
    in the harness."""
    global _given
    file = files.load(path, variables)
    _validate(path, file.document)
    _given = Session(file.plan, file.document, folder, pool, progress, controls)
    try:
        with quiet_log():
            _given.run_through_chaoslib(file.document, variables)
        return _given.result()
    finally:
        _given = None


def _validate(path: Path, document: dict[str, Any]) -> None:
    from chaoslib.experiment import ensure_experiment_is_valid

    try:
        with quiet_log():
            ensure_experiment_is_valid(document)
    except ChaosException as error:
        raise ExperimentError(f"{path}: {error}") from error
