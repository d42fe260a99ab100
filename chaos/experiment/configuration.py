"""The flat `configuration` of an experiment as a checked `Configuration`, and the verdict's arguments as `Expect`.

A value may come from YAML, from `--var key=value` (a string) or from Python; what it must be is what the field's type
says (`constraints.py`). What is left to check here is how keys fit together.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import yaml

from shaketable.chaos.chain import ChainConfig
from shaketable.chaos.constraints import Workers, checked, checked_all, fields_of, is_text
from shaketable.chaos.errors import ExperimentError, nearest
from shaketable.chaos.exact import ExactConfig
from shaketable.chaos.experiment import documents
from shaketable.chaos.experiment.job_lookup import check_job
from shaketable.chaos.job_kinds import is_bundled, is_command
from shaketable.chaos.plan import ATTACH, KIND, KUBERAY, OWN_JOB_KEYS, Configuration, Expect
from shaketable.clusters.protocol import AUTO

# a variable may set these in a file that does not name them
OPTIONAL = (*OWN_JOB_KEYS, "image", "gcs_storage", "autoscaler", "max_nodes", "launcher", "backoff_limit", "tpus")
HINTS = fields_of(Configuration)
CLUSTERS = ("containers", "local", "processes", "simulated")
# of this machine; in simulation there may be more
MOST_REAL_NODES = 64
JOB_CONFIGS: dict[str, type[ChainConfig | ExactConfig]] = {"hash_chain": ChainConfig, "jax_sharded": ExactConfig}
_TOPOLOGY = re.compile(r"\d{1,3}(x\d{1,3}){1,2}")
_TPUS = re.compile(r"fake|gke|gke-spot|gke:[\w./-]+")
_ATTACHED = re.compile(rf"{ATTACH}:({AUTO}|[\w.-]+:\d{{1,5}})")
# a context may be called nearly anything; a namespace is a DNS label
_ON_PODS = re.compile(rf"{KUBERAY}(:[^/\s]*(/[a-z0-9]([a-z0-9-]{{0,61}}[a-z0-9])?)?)?")
# a cluster's name is the beginning of its nodes' names, which are those of containers and of hosts
_ON_KIND = re.compile(rf"{KIND}(:[a-z0-9]([a-z0-9.-]{{0,48}}[a-z0-9])?)?")


def configuration(values: Mapping[str, Any], where: str = "configuration") -> Configuration:
    """Raises ExperimentError."""
    read = {key: _read(key, value, f"{where}: {key}") for key, value in values.items()}
    made = Configuration(**checked_all(read, Configuration, where))
    _check_cluster(made.cluster, f"{where}: cluster")
    if made.nodes > MOST_REAL_NODES and made.cluster != "simulated":
        raise ExperimentError(
            f"{where}: nodes: {made.nodes} are more than {MOST_REAL_NODES}, which only cluster: simulated has"
        )
    _check_bounds(made.num_workers, f"{where}: num_workers")
    _check_subject(made, where)
    together = sum(tier["nodes"] for tier in made.tiers)
    if made.tiers and together != made.nodes and "nodes" in values and not made.slices:
        raise ExperimentError(f"{where}: nodes is {made.nodes}, and the tiers have {together} together")
    if made.step_key and is_bundled(made.job):
        raise ExperimentError(
            f"{where}: step_key {made.step_key!r} is for a job of one's own; {made.job} says its steps itself"
        )
    _check_processes(made, where)
    _check_pods(made, where)
    check_job(made, where)
    # in what a later launch changes the job is not said again
    if "job" in values:
        _check_job_config(made, f"{where}: job_config")
    return _with_slices(made, where)


def valued(key: str, value: Any, where: str) -> Any:
    """What one key is to be, for itself. Raises ExperimentError."""
    return checked(HINTS[key], _read(key, value, where), where)


def changes(values: object, where: str) -> dict[str, Any]:
    """Configuration that differs in a later launch of the driver. Raises ExperimentError."""
    if not isinstance(values, Mapping):
        raise ExperimentError(f"{where}: is written like {{max_failures: 3}}, not {values!r}")
    made = configuration(values, where)
    return {key: list(value) if isinstance(value := getattr(made, key), tuple) else value for key in values}


def expect(values: Mapping[str, Any], where: str = "verdict") -> Expect:
    """Raises ExperimentError."""
    return Expect(**checked_all(values, Expect, where, "argument"))


def overridden(expect: Expect, made: Configuration) -> Expect:
    """With what the configuration says instead."""
    return dataclasses.replace(expect, within_s=made.within_s) if made.within_s else expect


def _read(key: str, value: Any, where: str) -> Any:
    """A variable is text, and YAML but where the key is text itself."""
    if not isinstance(value, str) or key not in HINTS or is_text(HINTS[key]):
        return value
    try:
        return documents.parsed(value)
    except yaml.YAMLError as error:
        raise ExperimentError(f"{where}: {value!r} is not YAML: {' '.join(str(error).split())}") from error


def _check_cluster(cluster: str, where: str) -> None:
    if cluster.partition(":")[0] == ATTACH:
        if not _ATTACHED.fullmatch(cluster):
            raise ExperimentError(
                f"{where}: {cluster!r}: an existing cluster is named by the address of its GCS, for example"
                " attach:10.0.0.1:6379 (`ray status` on its head says whether it is there), or on a node of it"
                " attach:auto"
            )
    elif cluster.partition(":")[0] == KUBERAY:
        if not _ON_PODS.fullmatch(cluster):
            raise ExperimentError(
                f"{where}: {cluster!r}: write kuberay, kuberay:CONTEXT or kuberay:CONTEXT/NAMESPACE (`kubectl config"
                " get-contexts`)"
            )
    elif cluster.partition(":")[0] == KIND:
        if not _ON_KIND.fullmatch(cluster):
            raise ExperimentError(
                f"{where}: {cluster!r}: write kind or kind:NAME, with small letters, digits and - (`kind get clusters`)"
            )
    elif cluster not in CLUSTERS:
        raise ExperimentError(f"{where}: {cluster!r} is not known; {nearest(cluster, CLUSTERS)}")


def _check_bounds(bounds: int | tuple[int, int], where: str) -> None:
    for bound in _both(bounds):
        checked(Workers, bound, where)
    least, most = _both(bounds)[0], _both(bounds)[-1]
    if least > most:
        raise ExperimentError(f"{where}: min {least} is above max {most}; write [{most}, {least}]?")


def _check_subject(made: Configuration, where: str) -> None:
    """What only our own runtime has."""
    if made.subject == "bundled":
        return
    for there, what in ((made.tiers, "tiers are"),):
        if there:
            raise ExperimentError(
                f"{where}: {what} for subject: bundled, not {made.subject}; leave it out, or change the subject"
            )


def _check_processes(made: Configuration, where: str) -> None:
    """Where there is no Ray."""
    if made.cluster != "processes":
        return
    for there, what, else_ in (
        (
            made.subject != "bundled",
            f"subject: {made.subject}",
            ", or subject: bundled for a job of shaketable.runtime",
        ),
        (is_command(made.job), "a job that is a command", ""),
    ):
        if there:
            why = "needs Ray, and cluster: processes has none"
            raise ExperimentError(f"{where}: {what} {why}; use cluster: local{else_}")


def _check_pods(made: Configuration, where: str) -> None:
    if not _TPUS.fullmatch(made.tpus):
        raise ExperimentError(f"{where}: tpus: {made.tpus!r}: write fake, gke, gke-spot or gke:RESERVATION")
    if made.backoff_limit and made.launcher != "rayjob":
        raise ExperimentError(f"{where}: backoff_limit is that of a RayJob; add launcher: rayjob, or leave it out")
    if made.max_nodes and made.autoscaler == "none":
        raise ExperimentError(f"{where}: max_nodes is for an autoscaler; add autoscaler: v2, or leave it out")
    if made.autoscaler != "none" and made.most_nodes < made.nodes:
        raise ExperimentError(
            f"{where}: the autoscaler may have {made.most_nodes} nodes at most, and the experiment begins with"
            f" {made.nodes}; use fewer nodes, or more max_nodes"
        )


def _check_job_config(made: Configuration, where: str) -> None:
    """Of these workloads harness and judge need to know what they were given; any other job says for itself what it
    takes."""
    kind = JOB_CONFIGS.get(made.job.rpartition(":")[2]) if is_bundled(made.job) else None
    if kind is None:
        return
    checked_all(made.job_config, kind, where)
    try:
        kind.of(made.job_config)
    except ValueError as error:
        raise ExperimentError(f"{where}: {error}") from None


def _with_slices(made: Configuration, where: str) -> Configuration:
    """As many nodes as its slices have hosts."""
    if not made.topology:
        if made.slices or made.accelerator_type:
            raise ExperimentError(f"{where}: slices need topology and accelerator_type, for example 4x4 and TPU-V6E")
        return made
    if not _TOPOLOGY.fullmatch(made.topology):
        raise ExperimentError(f"{where}: topology {made.topology!r}: is written like 4x4 or 2x2x2")
    if not made.accelerator_type:
        raise ExperimentError(f"{where}: topology {made.topology} needs an accelerator_type, for example TPU-V6E")
    if made.cluster != "simulated" and "sick" in made.slices:
        raise ExperimentError(f"{where}: a sick slice is there on cluster: simulated only")
    if made.cluster != "simulated" and made.tiers:
        raise ExperimentError(f"{where}: there are tiers of TPU slices on cluster: simulated only")
    hosts = made.hosts_per_slice
    if made.slices:
        made = dataclasses.replace(made, nodes=hosts * len(made.slices))
        if made.tiers and sum(tier["nodes"] for tier in made.tiers) != made.nodes:
            raise ExperimentError(f"{where}: the slices have {made.nodes} hosts, and the tiers another number of nodes")
    for name, value in (
        ("nodes", made.nodes),
        *((f"nodes of {tier['name']}", tier["nodes"]) for tier in made.tiers),
        *(("num_workers", bound) for bound in _both(made.num_workers)),
    ):
        if value % hosts:
            below, above = value // hosts * hosts, -(-value // hosts) * hosts
            use = f"{below} or {above}" if below else above
            raise ExperimentError(f"{where}: {name}: {value} are no whole slices of {hosts} hosts; use {use}")
    return made


def _both(bounds: int | tuple[int, int]) -> tuple[int, ...]:
    return (bounds,) if isinstance(bounds, int) else bounds
