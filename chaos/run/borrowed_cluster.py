"""The cluster that a configuration asks for: one of the harness's own, or an existing one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from shaketable.chaos.plan import Configuration, tier_of
from shaketable.chaos.subjects.launching import import_paths
from shaketable.clusters.protocol import Autoscaler, Cluster, Gke, Shape
from shaketable.clusters.slice_states import Slices, SliceState

# brings ray
if TYPE_CHECKING:
    from shaketable.clusters.local.pool import ClusterPool

# What the fork servers of the bundled runtime import anyway: a node of processes has it before it forks them.
PRELOADED = (
    "cloudpickle",
    "shaketable.runtime.agent.worker",
    "shaketable.chaos.subjects.witnessed",
    "shaketable.chaos.subjects.bundled.worker",
)


def starting(configuration: Configuration) -> str:
    """What is being waited for until there is one."""
    if configuration.attach:
        return f"joining the cluster at {configuration.attach}"
    return f"starting a {configuration.cluster} cluster of {configuration.nodes} nodes"


@contextmanager
def borrowed(
    configuration: Configuration, pool: ClusterPool, *, networks: bool = False, faultless: bool = False
) -> Iterator[Cluster]:
    """As long as it is needed. `networks`: one for each node, where nodes are processes. `faultless`: nothing will be
    done to it. Raises ClusterError where it cannot be had."""
    if configuration.cluster == "processes":
        with pool.processes.borrow(shape_of(configuration), PRELOADED, networks=networks) as processes:
            yield processes
        return
    if configuration.on_pods:
        with pool.kuberay().borrow(shape_of(configuration)) as pods:
            yield pods
        return
    if configuration.on_containers:
        containers = pool.containers(configuration.image, readable(configuration.cwd))
        with containers.borrow(shape_of(configuration), faultless=faultless) as nodes:
            yield nodes
        return
    if not configuration.attach:
        with pool.borrow(shape_of(configuration), faultless=faultless) as cluster:
            yield cluster
        return
    from shaketable.clusters.attached.cluster import AttachedCluster

    with AttachedCluster(configuration.attach, shape_of(configuration)) as attached:
        yield attached


def readable(cwd: str) -> tuple[str, ...]:
    """What nodes of containers read of this machine: the folders that a job is imported from. shaketable itself they
    have, and /tmp is their own."""
    folders = (Path(folder) for folder in import_paths(cwd))
    job = [path for path in folders if not (path / "shaketable").exists() and not Path("/tmp").is_relative_to(path)]
    return tuple(map(str, job))


def shape_of(configuration: Configuration) -> Shape:
    """With slices: all whole where it does not say what they are."""
    redis = configuration.gcs_storage == "redis"
    version = configuration.autoscaler
    autoscaler = None if version == "none" else Autoscaler(version, configuration.most_nodes)
    ray_job = configuration.backoff_limit if configuration.launcher == "rayjob" else None
    if not configuration.topology:
        numbers = range(1, configuration.nodes + 1) if configuration.tiers else ()
        tiers = tuple(tier_of(configuration.tiers, n) for n in numbers)
        return Shape(configuration.nodes, tiers=tiers, redis=redis, autoscaler=autoscaler, ray_job=ray_job)
    whole: SliceState = "whole"
    states = configuration.slices or (whole,) * (configuration.nodes // configuration.hosts_per_slice)
    generation = configuration.accelerator_type.lower().removeprefix("tpu-")
    slices = Slices(generation, configuration.topology, configuration.chips_per_host, states)
    gke = gke_of(configuration.tpus)
    return Shape(configuration.nodes, slices=slices, redis=redis, autoscaler=autoscaler, ray_job=ray_job, gke=gke)


def gke_of(tpus: str) -> Gke | None:
    kind, _, reservation = tpus.partition(":")
    return None if kind == "fake" else Gke(kind == "gke-spot", reservation)
