"""An experiment made ready to run: its faults armed, and everything that it needs looked for, before anything is
started. What is wrong by then is its author's to put right, and no verdict.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shaketable.chaos.errors import ExperimentError, shown
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.injection.life_cycle import Armed
from shaketable.chaos.job_kinds import is_command
from shaketable.chaos.plan import Configuration, FaultPlan, Plan
from shaketable.clusters.processes import networks

# module that an experiment may need -> the extra that brings it
MODULES = {"torch": "torch", "orbax": "jax", "pyarrow": "ray-train", "moto": "storage", "aiohttp": "storage"}

# what only pods have, each with what it is elsewhere
PODS_ONLY = {"gcs_storage": "memory", "autoscaler": "none", "launcher": "harness", "tpus": "fake"}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A `plan` with its faults `armed`, for one run of it. `document`: the experiment file that says so, and the
    `variables` that it was resolved with; such a one runs through Chaos Toolkit. None: it comes from Python."""

    plan: Plan
    armed: tuple[Armed, ...]
    document: Mapping[str, Any] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def prepare(
    plan: Plan, document: Mapping[str, Any] | None = None, variables: Mapping[str, str] | None = None
) -> Prepared:
    """Raises ExperimentError that names what is wrong or missing, and what to do."""
    armed = tuple(arm(plan))
    for problem in (*missing_extras(plan.configuration), *out_of_reach(plan), *out_of_the_world(plan)):
        raise ExperimentError(problem)
    return Prepared(plan, armed, document, variables or {})


def armed_anew(prepared: Prepared) -> Prepared:
    """For another run of it: a fault is armed for one."""
    return replace(prepared, armed=tuple(arm(prepared.plan)))


def missing_extras(configuration: Configuration) -> Iterator[str]:
    """Each module that this experiment needs and that is not installed, with the line that installs it."""
    # what runs in a pod is looked for there
    served = configuration.kept_in == "s3" and configuration.cluster != "simulated" and not configuration.on_pods
    needed = {
        "torch": configuration.job.endswith(":torch_ddp"),
        "orbax": configuration.job.endswith(":jax_sharded"),
        "pyarrow": configuration.subject == "ray-train",
        "moto": served,
        "aiohttp": served,
    }
    for module, extra in MODULES.items():
        if needed[module] and importlib.util.find_spec(module) is None:
            yield f"{module} is not installed: pip install 'shaketable[{extra}]'"


def out_of_reach(plan: Plan) -> Iterator[str]:
    """What cannot be had on a cluster that somebody else has started, or where nodes are pods or containers."""
    address = plan.configuration.attach
    if plan.configuration.on_pods:
        yield from _not_on_pods(plan)
    else:
        for key, usual in PODS_ONLY.items():
            if (value := getattr(plan.configuration, key)) != usual:
                yield f"{key}: {value} needs nodes that are pods: use cluster: kuberay"
    if plan.configuration.on_containers:
        yield from _not_on_containers(plan.configuration)
    if address and plan.configuration.storage == "disk":
        yield "storage: disk is on the harness's machine only; use storage: directory, or s3"
    able = ", ".join(sorted(name for name, fault in FAULTS.items() if fault.anywhere))
    for number, fault in enumerate(plan.faults):
        if (lacking := _not_apart(plan, fault)) != "":
            yield f"fault {number} ({fault.name}) needs {lacking}"
        if address and not FAULTS[fault.name].anywhere:
            yield (
                f"fault {number} ({fault.name}) needs more than Ray itself can do, and the cluster at"
                f" {address} is not the harness's own; there are {able}. Use cluster: local"
            )


def _not_apart(plan: Plan, fault: FaultPlan) -> str:
    """What of their own its nodes lack; empty: nothing."""
    apart = FAULTS[fault.name].apart
    if apart == "pods":
        return "" if plan.configuration.on_pods else "nodes that are pods, made for the run: use cluster: kuberay"
    if not apart or plan.configuration.on_containers:
        return ""
    if apart == "machine":
        return "nodes that are machines of their own, each with its network, memory and disk: use cluster: containers"
    if plan.configuration.cluster != "processes":
        return "nodes with a network of their own: use cluster: containers, or processes"
    why = networks.why_not()
    return f"nodes with a network of their own: {why}; use cluster: containers" if why else ""


def networked(plan: Plan) -> bool:
    """Its nodes are processes of which each has to have a network of its own."""
    return plan.configuration.cluster == "processes" and any(FAULTS[fault.name].apart for fault in plan.faults)


def _not_on_pods(plan: Plan) -> Iterator[str]:
    made = plan.configuration
    for there, what in (
        (is_command(made.job) and made.subject != "bundled", "a script of Ray Train's is"),
        (made.storage == "disk", "storage: disk is"),
    ):
        if there:
            yield f"cluster: {made.cluster}: {what} not to be had there; use cluster: local"
    able = ", ".join(sorted(name for name, fault in FAULTS.items() if fault.anywhere or fault.on_pods))
    for number, fault in enumerate(plan.faults):
        if not (FAULTS[fault.name].anywhere or FAULTS[fault.name].on_pods):
            yield f"fault {number} ({fault.name}) cannot be had on pods; there are {able}. Use cluster: local"


def _not_on_containers(made: Configuration) -> Iterator[str]:
    for there, what in (
        (made.subject != "bundled", f"subject: {made.subject}"),
        (is_command(made.job), "a job that is a command"),
        (made.storage == "disk", "storage: disk"),
    ):
        if there:
            yield f"{what} cannot be had on cluster: {made.cluster}, whose nodes share no directory; use cluster: local"


def out_of_the_world(plan: Plan) -> Iterator[str]:
    """Workers and nodes that there will never be. (The bounds of a script are its own trainer's.)"""
    configuration = plan.configuration
    if is_command(configuration.job) or configuration.attach or configuration.topology:
        return
    least, most = configuration.bounds
    there = configuration.nodes if configuration.autoscaler == "none" else configuration.most_nodes
    nodes = there + sum(FAULTS[fault.name].makes_good == "node" for fault in plan.faults)
    if nodes < least:
        yield (
            f"nodes: {nodes} cannot hold the {least} workers that num_workers asks for at least, one on each:"
            f" use nodes: {least}, or a smaller minimum"
        )
    for number, fault in enumerate(plan.faults):
        for kind, there_are in (("rank", most), ("node", nodes + 1)):
            if (fault.target or {}).get(kind, 0) >= there_are:
                first = 0 if kind == "rank" else 1
                yield (
                    f"fault {number} ({fault.name}): target {shown(fault.target)}: there are {kind}s {first} to"
                    f" {there_are - 1}, by {'num_workers' if kind == 'rank' else 'nodes and add_node'}"
                )
