"""Real runs of both subjects: what comes out is a whole history. The bundled one runs on processes, which take a
second; on Ray it shows a kill and SIGTERM, and the gate shows the rest."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from shaketable.chaos.chain import reference_digest
from shaketable.chaos.history.events import (
    AnyEvent,
    AttemptEnded,
    AttemptStarted,
    Committed,
    Reported,
    Resumed,
    RunEnded,
    StateChanged,
    Stepped,
    TermBegan,
    WorkerFinished,
    WorkerStarted,
)
from shaketable.chaos.plan import Configuration
from shaketable.chaos.run.borrowed_cluster import borrowed
from shaketable.chaos.workloads.worker_api import sentinel
from shaketable.clusters.local.pool import ClusterPool
from shaketable.clusters.protocol import Cluster
from shaketable.suites.tests.rigs.subject_rig import Trial, charges, of_kind

JOB_CONFIG = {"steps": 16, "step_s": 0.1}
ALL_STEPS = list(range(1, 17))
BUNDLED, ON_RAY, RAY_TRAIN = ("bundled", "processes"), ("bundled", "local"), ("ray-train", "local")
# A minute each with Ray Train: `nox -s on_demand`. The ordinary tests have an own job under it.
RAY_TRAIN_IN_TIME = pytest.param(*RAY_TRAIN, marks=pytest.mark.on_demand)
SUBJECTS_IN_TIME = (BUNDLED, RAY_TRAIN_IN_TIME)
Launcher = Callable[..., Trial]
# with test_runtime_on_ray.py: they share a cluster of two nodes
pytestmark = pytest.mark.xdist_group("pooled")


@pytest.fixture(scope="module")
def clusters(pool: ClusterPool) -> Iterator[Callable[[str], Cluster]]:
    """The one of each kind, started when it is first asked for."""
    with ExitStack() as stack:

        @functools.cache
        def cluster(kind: str) -> Cluster:
            return stack.enter_context(borrowed(Configuration(cluster=kind, nodes=2), pool))

        yield cluster


@pytest.fixture
def trial(clusters: Callable[[str], Cluster], tmp_path: Path) -> Iterator[Launcher]:
    """Starts a run of two workers. Their number is fixed: what an earlier test of this cluster left reserved does not
    change it."""
    trials = []

    def start(subject: Any, kind: str, **configured: Any) -> Trial:
        told = {"job_config": JOB_CONFIG, "num_workers": 2, "max_failures": 1, **configured}
        configuration = Configuration(subject=subject, cluster=kind, **told)
        trials.append(Trial(tmp_path, clusters(kind).address, configuration))
        trials[-1].launch()
        return trials[-1]

    yield start
    for one in trials:
        one.close()


def finished(trial: Trial) -> list[AnyEvent]:
    assert trial.wait() == 0, trial.log()
    return trial.collector.finish()


@pytest.mark.parametrize(("subject", "kind"), SUBJECTS_IN_TIME)
def test_a_run_without_faults_leaves_a_whole_history_and_checkpoints_that_can_be_read_back(
    subject: str, kind: str, trial: Launcher, clusters: Callable[[str], Cluster]
) -> None:
    run = trial(subject, kind)
    events = finished(run)

    [began], [started], [ended], [run_ended] = (
        of_kind(events, kind) for kind in (TermBegan, AttemptStarted, AttemptEnded, RunEnded)
    )
    assert (began.term, began.spent, began.finished) == (1, {}, False)
    assert (started.attempt, started.world_size, started.resume) == (1, 2, None)
    assert {member.node_id for member in started.members} <= {node.node_id for node in clusters(kind).nodes()}
    assert (ended.attempt, ended.cause, ended.account) == (1, "finished", None)
    assert (run_ended.term, run_ended.outcome, run_ended.metrics["step"]) == (1, "finished", 16)
    assert "RUNNING" in [event.state for event in of_kind(events, StateChanged)]
    assert [commit.index for commit in of_kind(events, Committed)] == ALL_STEPS
    for rank in (0, 1):
        mine = [event for event in events if getattr(event, "rank", None) == rank]
        assert [type(event) for event in mine][:2] == [WorkerStarted, Resumed]
        assert [event.step for event in of_kind(mine, Stepped)] == ALL_STEPS
        assert [event.step for event in of_kind(mine, Reported)] == ALL_STEPS
        assert isinstance(mine[-1], WorkerFinished)
    probes = run.subject.probe_checkpoints(events, run.storage, run.name)
    config = run.configuration.job_config
    assert [(p.ok, p.digest) for p in probes] == [(True, reference_digest(n, config)) for n in ALL_STEPS]
    assert run.subject.files_left(run.storage, run.name) == []


@pytest.mark.parametrize(("subject", "kind"), [ON_RAY, RAY_TRAIN_IN_TIME])
def test_a_killed_worker_is_one_charge_and_the_next_attempt_resumes_from_the_last_commit(
    subject: str, kind: str, trial: Launcher
) -> None:
    run = trial(subject, kind)
    run.wait_for_step(6)
    os.kill(run.pid_of(rank=1), signal.SIGKILL)
    events = finished(run)

    assert charges(events) == [("worker_death", "max_failures"), ("finished", None)]
    before = [commit for commit in of_kind(events, Committed) if commit.attempt == 1]
    second = of_kind(events, AttemptStarted)[1]
    assert (second.attempt, second.resume_index) == (2, before[-1].index)
    assert second.resume == before[-1].checkpoint
    resumed = [event for event in of_kind(events, WorkerStarted, Resumed) if event.attempt == 2]
    assert {event.resume for event in resumed if isinstance(event, WorkerStarted)} == {second.resume}
    assert {event.step for event in resumed if isinstance(event, Resumed)} == {second.resume_index}
    assert of_kind(events, Committed)[-1].index == 16


@pytest.mark.parametrize(("subject", "kind"), SUBJECTS_IN_TIME)
def test_an_error_in_a_worker_beyond_the_budget_fails_the_run_and_is_named(
    subject: str, kind: str, trial: Launcher
) -> None:
    run = trial(subject, kind, max_failures=0)
    run.wait_for_step(6)
    sentinel(run.collector.config.directory, run.pid_of(rank=1)).touch()

    assert run.wait() == 1, run.log()
    events = run.collector.finish()
    assert charges(events) == [("worker_error", "max_failures")]
    [ended] = of_kind(events, RunEnded)
    assert ended.outcome == "failed" and "InjectedError" in ended.error


@pytest.mark.parametrize(("subject", "kind"), SUBJECTS_IN_TIME)
def test_a_relaunch_after_the_driver_was_killed_goes_on_in_a_new_term(subject: str, kind: str, trial: Launcher) -> None:
    """Killed well between two commits: Ray Train rewrites its manifest in place, and a kill in the middle of that
    leaves a run that can never be started again under its name."""
    run = trial(subject, kind, job_config={"steps": 60, "step_s": 0.05, "checkpoint_every": 20})
    run.wait_for_commit(20)
    run.wait_for_step(23)
    run.driver.kill()
    run.wait()
    run.launch(max_failures=2)
    events = finished(run)

    terms = of_kind(events, TermBegan)
    assert [(event.term, event.spent) for event in terms] == [(1, {}), (2, {})]
    second = of_kind(events, AttemptStarted)[-1]
    before = [commit for commit in of_kind(events, Committed) if commit.attempt == 1]
    assert (second.term, second.attempt) == (2, 2)
    assert (second.resume, second.resume_index) == (before[-1].checkpoint, before[-1].index)
    assert [event.outcome for event in of_kind(events, RunEnded)] == ["finished"]


def test_a_finished_run_relaunched_says_that_it_is_finished_and_gives_its_result(trial: Launcher) -> None:
    run = trial(*BUNDLED, job_config={"steps": 3, "step_s": 0.01})
    assert run.wait() == 0, run.log()
    run.launch()
    events = finished(run)

    assert [event.finished for event in of_kind(events, TermBegan)] == [False, True]
    first, second = of_kind(events, RunEnded)
    assert (first.outcome, first.metrics) == (second.outcome, second.metrics)
    assert len(of_kind(events, AttemptStarted)) == 1


def test_a_bundled_driver_that_gets_sigterm_exits_143_and_charges_nothing(trial: Launcher) -> None:
    run = trial(*ON_RAY)
    run.wait_for_step(6)
    run.driver.terminate()

    assert run.wait() == 143, run.log()
    events = run.collector.finish()
    assert charges(events) == [("interrupted", None)]
    assert [event.outcome for event in of_kind(events, RunEnded)] == ["interrupted"]
