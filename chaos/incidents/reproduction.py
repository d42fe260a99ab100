"""An experiment out of an incident: each recorded ending is a fault at its step, in its attempt, on its rank. Pure.

Kept exactly: attempts, world sizes, charges, outcome, and how far behind the last commit each ending was. Not kept:
seconds, machines that hold more than one worker (here a node holds one), and the length of a run that was long. What
could not be kept is said in notes, which go into the experiment's description.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from shaketable.chaos.chain import ChainConfig
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.incidents.recorded_attempts import Incident
from shaketable.chaos.incidents.reenactment import Draft
from shaketable.chaos.incidents.shortening import Steps
from shaketable.chaos.plan import Configuration, Expect, Plan

MAX_NODES = 64
# what is left to do after the last fault
TAIL_STEPS = 20
# of half a second each in a small world: until it has grown
GROW_STEPS = {"bundled": 40, "ray-train": 120}
GROW_STEP_S = 0.5
JOB = Configuration().job
CHAIN = ":hash_chain"
INSTEAD = (
    "the bundled hash chain stands in for the job; with yours: shaketable run FILE --train package.module:function, or"
    " shaketable run FILE -- python train.py"
)
CUT_OFF = "Ray Train never removes uploads that were cut off, so no-leaks may fail: docs/ray-train-findings.md"


@dataclass(frozen=True, slots=True)
class Reproduction:
    """`notes`: what the record could not say, or what is not as it was."""

    plan: Plan
    notes: tuple[str, ...]


def reproduction(incident: Incident, *, keep_job: bool) -> Reproduction:
    """`keep_job`: the record names its job, and it can be imported here. Raises ExperimentError for what no local
    cluster holds, and where there is nothing that a fault could do again."""
    ours = _is_chain(incident.job_config) and not (keep_job and not incident.job.endswith(CHAIN))
    kept = not incident.grew if ours else keep_job
    step_s = incident.job_config.get("step_s", ChainConfig().step_s) if kept else GROW_STEP_S
    draft = Draft(incident, Steps(incident, kept=kept), float(step_s))
    draft.write()
    job_config = dict(incident.job_config) if kept else _job_config(draft, incident.job_config if ours else {})
    settings = incident.terms[0].settings if incident.terms else {}
    configuration = Configuration(
        subject="ray-train" if incident.subject == "ray-train" else "bundled",
        job=incident.job if keep_job else JOB,
        job_config=job_config,
        nodes=_nodes(draft),
        num_workers=_bounds(draft, settings.get("num_workers", draft.peak)),
        max_failures=settings.get("max_failures", 0),
        max_preemption_failures=settings.get("max_preemption_failures", -1),
    )
    plan = Plan(_title(draft), configuration, tuple(draft.faults), Expect(draft.outcome, draft.charged))
    return Reproduction(plan, tuple(draft.notes))


def _is_chain(config: Mapping[str, Any]) -> bool:
    """Whether what the trainer was given is the bundled job's own configuration."""
    return "steps" in config and set(config) <= {each.name for each in fields(ChainConfig)}


def _title(draft: Draft) -> str:
    causes = draft.causes[:3] + ([f"{len(draft.causes) - 3} more"] if len(draft.causes) > 3 else [])
    return f"As recorded: {', '.join(causes) or 'nothing went wrong'}"


def _nodes(draft: Draft) -> int:
    nodes = draft.played()[0].world_size + draft.spares
    if nodes > MAX_NODES:
        raise ExperimentError(
            f"the run had {nodes} workers; a local cluster has at most {MAX_NODES} nodes, one worker each. Write a"
            " smaller experiment by hand from docs/writing-experiments.md, with the same faults"
        )
    return nodes


def _bounds(draft: Draft, recorded: Any) -> int | tuple[int, int]:
    """As recorded; where a spare node must stand idle, no more than the run ever had."""
    if isinstance(recorded, int):
        return recorded
    least, most = recorded
    if draft.spares and most > draft.peak:
        draft.notes.append(f"num_workers was [{least}, {most}]; the run never had more than {draft.peak}")
        most = draft.peak
    return least, most


def _job_config(draft: Draft, chain: Mapping[str, Any]) -> dict[str, Any]:
    """The bundled job, as long as it has to be. `chain`: what is on record of it, if it was this one."""
    if not chain:
        draft.notes.append(INSTEAD)
    if draft.incident.subject == "ray-train" and draft.faults:
        draft.notes.append(CUT_OFF)
    grow = GROW_STEPS[draft.incident.subject] if draft.grows else 0
    config: dict[str, Any] = {**chain, "steps": draft.last_step + TAIL_STEPS + grow}
    config.pop("checkpoint_every", None)
    if draft.step.every != 1:
        config["checkpoint_every"] = draft.step.every
    if draft.grows:
        config |= {"full_world": draft.peak, "short_step_s": GROW_STEP_S}
    return config
