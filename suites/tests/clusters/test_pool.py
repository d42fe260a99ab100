"""Which clusters a pool lends again, told by clusters that only say what is left over on them."""

from __future__ import annotations

from typing import Any

import pytest

from shaketable.clusters.local import pool as pool_
from shaketable.clusters.local.pool import ClusterPool
from shaketable.clusters.protocol import Shape

HELPER, OWN = "AutoscalingCoordinator", "Trainer"


class Lent:
    """`left`: the classes of the actors that the last run has left there."""

    def __init__(self, shape: Shape) -> None:
        self.shape, self.left, self.closed = shape, set[str](), False

    def nodes(self) -> list[int]:
        return list(range(self.shape.nodes))

    def forget_gone_nodes(self) -> None:
        """None is gone."""

    def defects(self, *, but: frozenset[str] = frozenset()) -> list[str]:
        return sorted(self.left - but)

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("faultless", "left", "again"),
    [
        # what Ray Train leaves behind each time
        (True, HELPER, True),
        (False, HELPER, False),
        (True, OWN, False),
        (False, "", True),
    ],
)
def test_what_ray_itself_leaves_behind_may_stay_after_a_run_without_faults_only(
    faultless: bool, left: str, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_, "BECOMES_CLEAN_S", 0.0)
    start: Any = Lent
    with ClusterPool(start) as pool:
        with pool.borrow(Shape(2), faultless=faultless) as first:
            first.left |= {left} - {""}  # type: ignore[attr-defined]  # of the rig
        with pool.borrow(Shape(2)) as second:
            assert (second is first) == again
            assert first.closed != again  # type: ignore[attr-defined]


def test_a_second_run_without_faults_may_have_the_cluster_of_one_with_faults() -> None:
    start: Any = Lent
    with ClusterPool(start) as pool:
        with pool.borrow(Shape(2)) as first:
            first.left |= {HELPER}  # type: ignore[attr-defined]
        with pool.borrow(Shape(2), faultless=True) as second:
            assert second is first
        # which does not make it as new
        with pool.borrow(Shape(2)) as third:
            assert third is not first
