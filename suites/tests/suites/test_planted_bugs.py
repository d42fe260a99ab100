"""What each bug that is planted in an example does to what the invariants look at, when the example goes on from a
checkpoint in the middle of an epoch: another step than the next one, or other metrics at the end. Without Ray.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shaketable.chaos.invariants.metrics_match import ROUNDING
from shaketable.runtime.backends.base import Backend
from shaketable.runtime.backends.jax import JaxBackend
from shaketable.runtime.backends.torch import TorchBackend
from shaketable.suites.tests.rigs import example_rig
from shaketable.suites.tests.rigs.planted_bugs import CAUGHT_BY, NAMES, PLANTED, planted
from shaketable.suites.tests.rigs.worker_rig import Node, WorkerFailed, node

# one whole run of each example serves all of its bugs
pytestmark = pytest.mark.xdist_group("planted-bugs")

EPOCHS, BATCHES, CHECKPOINT_AT, WORKERS = 3, 4, 6, 2
MODULES = {"torch_ddp": "torch", "torch_fsdp": "torch", "jax_orbax": "orbax", "hf_loop": "transformers"}
# else the first one only, as in test_examples.py
ALL = os.environ.get("SHAKETABLE_EXAMPLES") == "all"
HERE = [name for name in (NAMES if ALL else NAMES[:1]) if importlib.util.find_spec(MODULES[name])]


@dataclass(frozen=True)
class Whole:
    """A whole run of an example, and its node, where any number can go on from the checkpoint in its middle."""

    node: Node
    backend: Backend
    reports: list[list[dict[str, Any]]]

    def goes_on(self, text: str) -> list[list[dict[str, Any]]]:
        """What is reported on the way to the end, by rank. Ranks that do not begin at one step may not come to it."""
        try:
            self.node.attempt(self.backend, job(text, None, self.node.folder), WORKERS)
        except WorkerFailed:
            if len(first_steps(self.node.reports)) == 1:
                raise
        return self.node.reports


def job(text: str, checkpoint_at: int | None, folder: Path) -> Any:
    return functools.partial(example_rig.train, text, EPOCHS, checkpoint_at, str(folder / "by-itself"))


@pytest.fixture(scope="module", params=HERE)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    folder = tmp_path_factory.mktemp(request.param)
    backend: Backend = JaxBackend() if request.param == "jax_orbax" else TorchBackend()
    with node(str(folder), folder, (*backend.preload, example_rig.__name__)) as here:
        here.attempt(backend, job(planted(request.param, ""), CHECKPOINT_AT, folder), WORKERS)
        assert [commit.index for commit in here.commits] == [CHECKPOINT_AT]
        yield Whole(here, backend, here.reports)


def test_each_bug_shows_where_its_invariant_looks_and_the_example_itself_shows_none(
    whole: Whole, request: pytest.FixtureRequest
) -> None:
    example = request.node.callspec.params["whole"]
    assert [report["step"] for report in whole.reports[0]] == list(range(1, EPOCHS * BATCHES + 1))
    assert whole.goes_on(planted(example, "")) == [of_rank[CHECKPOINT_AT:] for of_rank in whole.reports]
    for bug in (bug for name, bug in PLANTED if name == example):
        assert CAUGHT_BY[bug] == seen_by(whole.goes_on(planted(example, bug)), whole.reports), bug


def first_steps(reports: list[list[dict[str, Any]]]) -> set[int]:
    return {int(of_rank[0]["step"]) for of_rank in reports if of_rank}


def seen_by(reports: list[list[dict[str, Any]]], without: list[list[dict[str, Any]]]) -> str:
    """The invariant that what was reported after the checkpoint is a matter for."""
    if first_steps(reports) != {CHECKPOINT_AT + 1}:
        return "resume-from-checkpoint"
    last, expected = reports[0][-1], without[0][-1]
    same = all(math.isclose(last[name], expected[name], rel_tol=ROUNDING) for name in expected)
    return "" if same else "metrics-match"
