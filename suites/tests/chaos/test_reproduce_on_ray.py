"""A real run with two kills, reproduced from its log alone, on processes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shaketable import rank, shake, sigkill_worker, step
from shaketable.chaos import toolkit
from shaketable.chaos.history.events import read_events
from shaketable.chaos.incidents.recorded_attempts import Incident, incident_of
from shaketable.clusters.local.pool import ClusterPool
from shaketable.suites.command.incidents import reproduced

LINES = 40
pytestmark = pytest.mark.xdist_group("engine-on-ray")


def story(incident: Incident) -> list[tuple[int, str | None, str | None]]:
    """What must come out the same: of each attempt its world, its end, and what that was charged to."""
    return [(each.world_size, each.cause, each.account) for each in incident.attempts]


def test_a_run_with_two_kills_happens_again_from_its_log_alone(pool: ClusterPool, tmp_path: Path) -> None:
    kills = [sigkill_worker(rank(1), at=step(7)), sigkill_worker(rank(2), at=step(14, attempt=2, after=0))]
    shake(
        "shaketable.workloads:hash_chain",
        {"steps": 20, "checkpoint_every": 3},
        faults=kills,
        cluster="processes",
        nodes=3,
        num_workers=3,
        max_failures=2,
        charged={"max_failures": 2},
        storage_path=tmp_path / "first",
        pool=pool,
    )
    shutil.copytree(tmp_path / "first/storage/run/log", tmp_path / "alone/log")
    recorded = reproduced(tmp_path / "alone")
    file = tmp_path / "incident.yaml"
    file.write_text(recorded.text)
    judgement = toolkit.run_file(file, variables={"cluster": "processes"}, folder=tmp_path / "again", pool=pool)

    assert judgement.verdict == "PASS", judgement.reason
    again = incident_of(read_events(tmp_path / "again/history.jsonl"))
    assert len(recorded.incident.attempts) == 3 and recorded.incident.charged == {"max_failures": 2}
    assert story(again) == story(recorded.incident)
    assert [each.rank for each in again.attempts] == [1, 2, None]
    assert len(recorded.text.splitlines()) <= LINES
