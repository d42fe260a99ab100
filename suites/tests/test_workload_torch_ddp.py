"""The torch job: reproducible, resumable at another size, close to itself whatever the sizes. Skipped by
nobody: it is collected only where torch is installed."""

from __future__ import annotations

import importlib.util
import multiprocessing
import queue
from pathlib import Path
from typing import Any

import pytest

from shaketable.chaos.history import Event, Resumed, Stepped
from shaketable.chaos.workloads import torch_ddp
from shaketable.chaos.workloads.torch_ddp import DdpConfig
from shaketable.suites.tests.workload_rig import RankSession, Rig

CONFIG = {"steps": 6, "step_s": 0.0}
spawn = multiprocessing.get_context("spawn")


def one_rank(folder: Path, rank: int, world_size: int, attempt: int, steps: int, results: Any) -> None:
    """A process: its own process group member, as a TorchTrainer would set it up."""
    import torch.distributed as dist

    store = f"file://{folder}/store-{attempt}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world_size)
    commits = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    rig = Rig(folder, torch_ddp.run, {**CONFIG, "steps": steps}, commits=commits)
    wires: list[queue.Queue[Any]] = []
    torch_ddp.run(rig.config, RankSession(rig, rank, world_size, attempt, wires))
    results.put((rank, rig.events, rig.metrics))
    dist.destroy_process_group()


def attempt(folder: Path, world_size: int, number: int, steps: int) -> dict[int, tuple[list[Event], Any]]:
    folder.mkdir(exist_ok=True)
    results = spawn.Queue()
    ranks = [
        spawn.Process(target=one_rank, args=(folder, rank, world_size, number, steps, results), daemon=True)
        for rank in range(world_size)
    ]
    for process in ranks:
        process.start()
    got = {rank: (events, metrics) for rank, events, metrics in (results.get(timeout=240) for _ in ranks)}
    for process in ranks:
        process.join(30)
    return got


if importlib.util.find_spec("torch"):

    def test_two_ranks_agree_and_another_world_size_comes_close(tmp_path: Path) -> None:
        two = attempt(tmp_path / "two", 2, 1, 6)
        one = attempt(tmp_path / "one", 1, 1, 6)
        assert two[0][1] == two[1][1]
        assert two[0][1]["step"] == 6
        assert one[0][1]["loss"] == pytest.approx(two[0][1]["loss"], rel=1e-4)

    def test_a_resumed_run_finds_what_was_committed_and_ends_the_same(tmp_path: Path) -> None:
        whole = attempt(tmp_path / "whole", 2, 1, 6)
        first = attempt(tmp_path / "split", 2, 1, 3)
        second = attempt(tmp_path / "split", 2, 2, 6)
        assert second[0][1] == whole[0][1]
        committed = [event.digest for event in first[0][0] if isinstance(event, Stepped)][-1]
        found = [event for rank in (0, 1) for event in second[rank][0] if isinstance(event, Resumed)]
        assert [(event.step, event.digest) for event in found] == [(3, committed)] * 2


def test_a_wrong_configuration_is_an_error_that_names_the_field() -> None:
    with pytest.raises(ValueError, match="checkpoint_bytes"):
        DdpConfig.of({"checkpoint_bytes": 3})
