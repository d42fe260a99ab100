"""The bench rows of the storage give a figure each, here with little data: what they measure is measured elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from shaketable.suites.bench import commits, object_store
from shaketable.suites.bench.checkpoint_throughput import MIB
from shaketable.suites.bench.setting import Setting


def test_a_restore_from_the_disk_is_compared_with_cp(tmp_path: Path) -> None:
    (sample,) = commits.restoring(Setting("bundled", 1, tmp_path), MIB)
    assert sample.name == "restore_ratio_to_cp" and sample.value > 0


def test_a_commit_on_the_disk_takes_time_and_leaves_nothing(tmp_path: Path) -> None:
    values = [sample.value for sample in commits.local(Setting("bundled", 2, tmp_path / "bench"), appends=3)]
    assert len(values) == 2 and min(values) > 0 and not list((tmp_path / "bench").iterdir())


def test_the_cost_of_a_commit_is_compared_with_that_of_the_first(tmp_path: Path) -> None:
    (sample,) = commits.growth(Setting("bundled", 1, tmp_path), count=40)
    assert sample.profile.startswith("40 checkpoints") and 0.1 < sample.value < 10


def test_an_object_store_is_compared_with_obstore_by_itself(tmp_path: Path) -> None:
    pytest.importorskip("moto")
    setting = Setting("bundled", 1, tmp_path)
    samples = [*object_store.transfer(setting, 9 * MIB), *commits.in_object_store(setting, appends=3)]
    assert [sample.name for sample in samples] == [
        "upload_ratio_to_obstore",
        "restore_ratio_to_obstore",
        "commit_round_trips",
    ]
    assert all(sample.value > 0 for sample in samples)
