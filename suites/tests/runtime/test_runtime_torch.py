"""`shaketable.runtime.torch`: data loaders and models, made fit for a worker group. Process groups need workers."""

from __future__ import annotations

import importlib
import importlib.util
from collections import namedtuple
from typing import TYPE_CHECKING, Any, cast

import pytest

from shaketable.runtime import session
from shaketable.runtime.context import TrainContext
from shaketable.runtime.session import SessionError

if TYPE_CHECKING:
    import torch

    from shaketable.runtime import torch as prepared

# one worker of the test run imports it
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.xdist_group("torch-here"),
]
Pair = namedtuple("Pair", ["x", "y"])


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Not while tests are collected, which every worker of the test run does."""
    for name, module in (("torch", "torch"), ("prepared", "shaketable.runtime.torch")):
        globals()[name] = importlib.import_module(module)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Any:
    def be(rank: int, world_size: int) -> None:
        monkeypatch.setattr(
            session, "_parent", TrainContext(1, 1, rank, world_size, 0, 1, 0, "n", "run", None, "/runs/run")
        )

    return be


def loader(**given: Any) -> Any:
    numbers: Any = list(range(10))
    return torch.utils.data.DataLoader(numbers, batch_size=5, **given)


def seen(loader: Any) -> set[int]:
    return {int(sample) for batch in loader for sample in batch}


def test_each_rank_has_its_share_of_the_samples(worker: Any) -> None:
    shares = []
    for rank in range(2):
        worker(rank, 2)
        shares.append(seen(prepared.prepare_data_loader(loader(shuffle=True))))
    assert [len(share) for share in shares] == [5, 5]
    assert shares[0] | shares[1] == set(range(10))


def test_a_loader_that_shuffles_goes_on_to_do_so_and_its_epoch_can_be_set(worker: Any) -> None:
    worker(0, 2)
    shuffled, plain = prepared.prepare_data_loader(loader(shuffle=True)), prepared.prepare_data_loader(loader())
    sampler: Any = shuffled.sampler
    assert (sampler.shuffle, cast(Any, plain.sampler).shuffle) == (True, False)
    before = [batch.tolist() for batch in shuffled]
    sampler.set_epoch(1)
    assert [batch.tolist() for batch in shuffled] != before
    assert len(shuffled) == 1 and isinstance(shuffled, torch.utils.data.DataLoader)


def test_one_worker_keeps_its_loader_and_its_model_as_they_are(worker: Any) -> None:
    worker(0, 1)
    mine, model = loader(), torch.nn.Linear(1, 1)
    assert prepared.prepare_data_loader(mine, move_to_device=False) is mine
    assert seen(prepared.prepare_data_loader(mine)) == set(range(10))
    assert prepared.prepare_model(model) is model


def test_a_batch_of_any_shape_is_moved(worker: Any) -> None:
    worker(0, 1)
    moved = prepared._OnDevice(loader(), torch.device("meta"), False)._moved
    one = torch.ones(1)
    batch = moved({"pair": Pair(one, [one]), "name": "x", "none": None, "tuple": (one,)})
    assert batch["pair"].x.device.type == batch["pair"].y[0].device.type == batch["tuple"][0].device.type == "meta"
    assert (batch["name"], batch["none"]) == ("x", None)


def test_fsdp_without_gpus_and_an_unknown_strategy_are_refused(worker: Any) -> None:
    worker(0, 2)
    with pytest.raises(ValueError, match="parallel_strategy is 'zero'"):
        prepared.prepare_model(torch.nn.Linear(1, 1), parallel_strategy="zero")
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match='"fsdp" needs GPUs'):
            prepared.prepare_model(torch.nn.Linear(1, 1), parallel_strategy="fsdp")


def test_outside_of_a_training_function_there_is_no_device() -> None:
    with pytest.raises(SessionError):
        prepared.get_device()


def test_what_ray_train_torch_has_and_this_has_not_is_refused_by_name() -> None:
    with pytest.raises(
        ImportError, match=r"no TorchCheckpoint, which is Ray Train's: write the state with torch\.save"
    ):
        exec("from shaketable.runtime.torch import TorchCheckpoint", {})
