"""The torch job: reproducible, resumable at another size, close to itself whatever the sizes. Skipped by
nobody: it is collected only where torch is installed."""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import queue
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shaketable.chaos.history.events import Event, Resumed, Stepped
from shaketable.chaos.workloads import torch_ddp
from shaketable.chaos.workloads.torch_ddp import DdpConfig
from shaketable.runtime.backends.torch import TorchBackend
from shaketable.suites.tests.rigs.workload_rig import RankSession, Rig

CONFIG = {"steps": 6, "step_s": 0.0}
WITHIN_S, ENDS_WITHIN_S = 240.0, 30.0
spawn = multiprocessing.get_context("spawn")
pytestmark = pytest.mark.xdist_group("torch-processes")

# By rank: events, last metrics.
Told = dict[int, tuple[list[Event], Any]]


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


def serve(orders: Any, results: Any) -> None:
    """A process that imports torch once, which takes seconds, and forks the ranks of one attempt after the other."""
    for name in TorchBackend().preload:
        importlib.import_module(name)
    fork = multiprocessing.get_context("fork")
    while (order := orders.get()) is not None:
        folder, world_size, number, steps = order
        ranks = [
            fork.Process(target=one_rank, args=(folder, rank, world_size, number, steps, results), daemon=True)
            for rank in range(world_size)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(ENDS_WITHIN_S)


@dataclass
class Server:
    orders: Any
    results: Any

    def attempt(self, folder: Path, world_size: int, number: int, steps: int) -> Told:
        folder.mkdir(exist_ok=True)
        self.orders.put((folder, world_size, number, steps))
        got = (self.results.get(timeout=WITHIN_S) for _ in range(world_size))
        return {rank: (events, metrics) for rank, events, metrics in got}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    orders, results = spawn.Queue(), spawn.Queue()
    process = spawn.Process(target=serve, args=(orders, results))
    process.start()
    yield Server(orders, results)
    orders.put(None)
    process.join(ENDS_WITHIN_S)
    process.kill()


@pytest.fixture(scope="module")
def whole(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Two ranks, all six steps."""
    return server.attempt(tmp_path_factory.mktemp("whole"), 2, 1, 6)


if importlib.util.find_spec("torch"):

    def test_two_ranks_agree_and_another_world_size_comes_close(server: Server, whole: Told, tmp_path: Path) -> None:
        one = server.attempt(tmp_path, 1, 1, 6)
        assert whole[0][1] == whole[1][1]
        assert whole[0][1]["step"] == 6
        assert one[0][1]["loss"] == pytest.approx(whole[0][1]["loss"], rel=1e-4)

    def test_a_resumed_run_finds_what_was_committed_and_ends_the_same(
        server: Server, whole: Told, tmp_path: Path
    ) -> None:
        first = server.attempt(tmp_path, 2, 1, 3)
        second = server.attempt(tmp_path, 2, 2, 6)
        assert second[0][1] == whole[0][1]
        committed = [event.digest for event in first[0][0] if isinstance(event, Stepped)][-1]
        found = [event for rank in (0, 1) for event in second[rank][0] if isinstance(event, Resumed)]
        assert [(event.step, event.digest) for event in found] == [(3, committed)] * 2


def test_a_wrong_configuration_is_an_error_that_names_the_field() -> None:
    with pytest.raises(ValueError, match="checkpoint_bytes"):
        DdpConfig.of({"checkpoint_bytes": 3})
