"""What an experiment is where nodes are containers, which share no directory; no engine is needed to say it."""

from __future__ import annotations

from pathlib import Path

import pytest

import shaketable
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.run.borrowed_cluster import readable
from shaketable.chaos.run.preparation import prepare

AT = {"step": 3}


def test_a_run_on_containers_is_kept_in_an_object_store() -> None:
    assert Configuration(cluster="containers").kept_in == "s3"
    assert Configuration(cluster="local").kept_in == "directory"


def test_a_fault_of_files_is_refused_there() -> None:
    plan = Plan("t", Configuration(cluster="containers"), (FaultPlan("deny_writes", None, AT),), Expect())
    with pytest.raises(ExperimentError, match="not s3"):
        prepare(plan)


@pytest.mark.parametrize(
    "made",
    [
        Configuration(cluster="containers", subject="ray-train"),
        Configuration(cluster="containers", job="python train.py"),
        Configuration(cluster="containers", storage="disk"),
    ],
    ids=["ray-train", "command", "disk"],
)
def test_what_needs_a_shared_directory_is_refused_there(made: Configuration) -> None:
    with pytest.raises(ExperimentError, match="share no directory"):
        prepare(Plan("t", made, (FaultPlan("sigkill_worker", {"rank": 1}, AT),), Expect()))


def test_nodes_read_the_folders_of_a_job_but_not_a_second_shaketable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Path(next(iter(shaketable.__path__))).parent
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ours}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(Path("/tmp"))
    found = readable("")
    assert str(tmp_path.resolve()) in found
    assert str(ours.resolve()) not in found and "/tmp" not in found
