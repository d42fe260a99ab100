"""`cluster: attach:ADDRESS` as far as no Ray is needed: what it is called, which faults it has, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shaketable import shake
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment.configuration import configuration
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.history.collector import Collector
from shaketable.chaos.history.events import NodeJoined
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.run.node_watch import NodeWatch
from shaketable.chaos.run.preparation import out_of_reach
from shaketable.clusters.attached.cluster import AttachedCluster, found
from shaketable.clusters.fake_slices import LABELS
from shaketable.clusters.local.cluster import LocalCluster
from shaketable.clusters.protocol import ClusterError, Node, Shape
from shaketable.clusters.view import ListedNode
from shaketable.suites.gate import runner
from shaketable.suites.gate.catalogue import UsageError, select
from shaketable.suites.gate.execution import trials
from shaketable.suites.tests.rigs.plain_cluster import PlainCluster

ADDRESS = "10.0.0.1:6379"
ANYWHERE = {
    "drain_node",
    "freeze_driver",
    "hang_worker",
    "hurt_storage",
    "raise_in_worker",
    "reached",
    "relaunch_driver",
    "second_run",
    "sigint_driver",
    "sigkill_driver",
    "sigkill_node",
    "sigkill_worker",
    "sigterm_driver",
}
HEARD_WITHIN_S = 10.0


def test_an_existing_cluster_is_named_by_its_address() -> None:
    assert configuration({"cluster": f"attach:{ADDRESS}"}).attach == ADDRESS
    assert configuration({"cluster": "attach:auto"}).attach == "auto"
    assert configuration({"cluster": "local"}).attach == ""


@pytest.mark.parametrize("wrong", ["attach", "attach:", "attach:10.0.0.1", "attach:a b:1", "attach:10.0.0.1:port"])
def test_an_address_that_is_none_is_an_error_that_shows_one(wrong: str) -> None:
    with pytest.raises(ExperimentError, match=r"for example attach:10\.0\.0\.1:6379"):
        configuration({"cluster": wrong})


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_what_ray_cannot_do_is_said_before_anything_is_asked_of_the_cluster(name: str) -> None:
    plan = Plan("t", Configuration(cluster=f"attach:{ADDRESS}"), (FaultPlan(name),), Expect())
    reasons = " ".join(out_of_reach(plan))
    assert (f"fault 0 ({name}) needs more than Ray itself can do" in reasons) == (name not in ANYWHERE)
    local = " ".join(out_of_reach(replace(plan, configuration=Configuration())))
    assert (f"({name}) needs nodes" in local) == bool(FAULTS[name].apart) == bool(local)


def test_storage_that_only_this_machine_has_is_refused_there() -> None:
    plan = Plan("t", Configuration(cluster=f"attach:{ADDRESS}", storage="disk"), (), Expect())
    assert list(out_of_reach(plan)) == ["storage: disk is on the harness's machine only; use storage: directory, or s3"]
    assert not list(out_of_reach(replace(plan, configuration=Configuration(cluster=f"attach:{ADDRESS}", storage="s3"))))


def test_an_experiment_with_such_a_fault_is_its_authors_error(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"fault 0 \(add_node\) .* at 10\.0\.0\.1:6379 is not the harness's own"):
        shake(
            "shaketable.workloads:hash_chain",
            cluster=f"attach:{ADDRESS}",
            storage_path=tmp_path,
            faults=[FaultPlan("add_node", None, {"step": 2})],
        )


def test_nothing_is_broken_on_purpose_there_and_one_experiment_runs_at_a_time() -> None:
    with pytest.raises(UsageError, match="the gate \\(by its canary\\) breaks the runtime on purpose"):
        runner.alone(runner.Request(jobs=2))
    with pytest.raises(UsageError, match="--mutant budget-off-by-one breaks the runtime on purpose"):
        runner.alone(runner.Request(("worker-crash",), mutant="budget-off-by-one"))
    assert runner.alone(runner.Request(("worker-crash", "node-sigkill"), jobs=2)).jobs == 1


def test_there_is_one_cluster_whatever_the_experiments_ask_for() -> None:
    variables = {"cluster": f"attach:{ADDRESS}"}
    shapes = {trial.shape for entry in select(["node-sigkill", "driver-frozen"]) for trial in trials(entry, variables)}
    assert shapes == {f"attach:{ADDRESS}"}


@pytest.mark.parametrize("heard", [True, False])
def test_nodes_that_come_by_themselves_are_recorded_where_there_are_some(heard: bool, tmp_path: Path) -> None:
    assert AttachedCluster.has_newcomers and not LocalCluster.has_newcomers
    collector, cluster = Collector(tmp_path), PlainCluster(1)
    cluster.has_newcomers, cluster.come = heard, [Node(7, "hex7", "s01")]
    watch = NodeWatch(cluster, collector)
    try:
        joined = collector.wait_for(
            lambda event: isinstance(event, NodeJoined), timeout_s=HEARD_WITHIN_S if heard else 1.0, name="a newcomer"
        )
        said = (joined.node, joined.node_id, joined.slice) if isinstance(joined, NodeJoined) else None
        assert said == ((7, "hex7", "s01") if heard else None)
    finally:
        watch.close()
        cluster.close()
        collector.close()


def test_slices_there_are_numbered_as_their_first_hosts_are() -> None:
    attached = AttachedCluster.__new__(AttachedCluster)
    attached._book = {1: Node(1, "hex1", "young-a"), 2: Node(2, "hex2"), 3: Node(3, "hex3", "old-b")}
    host = ListedNode("hex4", "", "alive", False, "10.0.0.4", 0, {LABELS["worker"]: "1"})
    assert attached._host("old-b", host) == (1, 1)
    assert attached._host("new", host) == (2, 1)
    assert attached._host("", host) is attached._host("new", replace(host, labels={})) is None


def test_a_cluster_without_the_tiers_of_an_experiment_is_named_before_it_starts() -> None:
    attached = AttachedCluster.__new__(AttachedCluster)
    attached.address, attached.shape = ADDRESS, Shape(nodes=3, tiers=("spot", "spot", "on-demand"))
    attached._book = {1: Node(1, "hex1", tier="spot"), 2: Node(2, "hex2"), 3: Node(3, "hex3", tier="on-demand")}
    with pytest.raises(ClusterError, match=r"needs 2 nodes of tier spot, by the label tier=spot, .* has 1"):
        attached._check_room()
    attached.shape = Shape(nodes=3, tiers=("spot", "on-demand"))
    attached._check_room()


def test_what_ray_would_join_is_found_and_where_there_is_nothing_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.9.8.7:6379")
    assert found("auto") == "10.9.8.7:6379"
    monkeypatch.setenv("RAY_ADDRESS", "no address")
    with pytest.raises(ClusterError, match="attach:auto: no running cluster is found from this machine"):
        found("auto")
    assert found(ADDRESS) == ADDRESS
