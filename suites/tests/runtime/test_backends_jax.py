"""What a worker of JaxTrainer finds in its environment, attempt by attempt."""

from __future__ import annotations

import pytest

from shaketable.runtime.backends.jax import Coordination, with_slices

AT = Coordination("10.0.0.1", 4000, 4001)
STALE = {
    "MEGASCALE_COORDINATOR_ADDRESS": "gone",
    "MEGASCALE_PORT": "8081",
    "MEGASCALE_NUM_SLICES": "3",
    "MEGASCALE_SLICE_ID": "2",
    "MEGASCALE_TRANSPORT_TYPE": "grpc",
    "TPU_NAME": "a",
    "TPU_WORKER_ID": "1",
}
HOST = {"TPU_NAME": "a", "TPU_WORKER_ID": "1"}


def found(rank: int, world_size: int, workers_per_slice: int) -> dict[str, str]:
    environment = dict(STALE)
    with_slices(environment, AT, rank, world_size, workers_per_slice)
    return environment


@pytest.mark.parametrize(("rank", "slice_id"), [(0, "0"), (3, "0"), (4, "1"), (7, "1")])
def test_workers_of_several_slices_are_told_of_this_attempt_and_of_nothing_else(rank: int, slice_id: str) -> None:
    assert found(rank, 8, 4) == HOST | {
        "MEGASCALE_COORDINATOR_ADDRESS": "10.0.0.1",
        "MEGASCALE_PORT": "4001",
        "MEGASCALE_NUM_SLICES": "2",
        "MEGASCALE_SLICE_ID": slice_id,
    }


@pytest.mark.parametrize(("world_size", "workers_per_slice"), [(4, 4), (3, 0)])
def test_one_slice_or_none_is_told_of_no_others_whatever_the_host_inherited(
    world_size: int, workers_per_slice: int
) -> None:
    assert found(1, world_size, workers_per_slice) == HOST
