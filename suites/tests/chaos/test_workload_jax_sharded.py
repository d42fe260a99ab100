"""The JAX job in real processes of one jax.distributed: what it comes to is known beforehand, whatever the world size,
the slices and the format of its checkpoints. Collected only where jax and Orbax are installed."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import re
from pathlib import Path
from typing import Any

import pytest

from shaketable.chaos import chain, exact
from shaketable.chaos.chain import ChainConfig
from shaketable.chaos.exact import ExactConfig, lineage
from shaketable.chaos.history.events import Event, Resumed, Stepped
from shaketable.chaos.workloads import jax_checkpoint, jax_sharded
from shaketable.clusters.local.ports import free_port
from shaketable.suites.tests.rigs.workload_rig import RankSession, Rig

WITHIN_S = 120.0
CONFIG = {"step_s": 0.0, "features": 24}
forks = multiprocessing.get_context("forkserver")
# one fork server has JAX imported for all
pytestmark = pytest.mark.xdist_group("jax-processes")

# by rank: events, last metrics
Told = list[tuple[list[Event], dict[str, Any]]]


def one_rank(folder: Path, config: dict[str, Any], number: int, place: tuple[int, int, int], *wires: Any) -> None:
    """A process of `place` = (rank, world size, slices), as a JaxTrainer would set it up."""
    import jax

    rank, world_size, slices = place
    port, results, broadcast = wires
    if slices > 1:
        told = {"MEGASCALE_NUM_SLICES": slices, "MEGASCALE_SLICE_ID": rank * slices // world_size}
        os.environ |= {name: str(value) for name, value in told.items()}
    configure: Any = jax.config.update
    configure("jax_platforms", "cpu")
    configure("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", world_size, rank, cluster_detection_method="deactivate")
    commits = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    rig = Rig(folder, jax_sharded.run, config, commits=commits)
    jax_sharded.run(config, RankSession(rig, rank, world_size, number, broadcast))
    results.put((rank, rig.events, rig.metrics))
    shutdown: Any = jax.distributed.shutdown
    shutdown()


def what_the_mesh_says(told: dict[str, str], said: Any) -> None:
    try:
        said.put(repr(jax_sharded.mesh_of(told)))
    except RuntimeError as error:
        said.put(str(error))


def what_it_says_without_its_peers(folder: Path, said: Any) -> None:
    """Of a process that jax.distributed knows nothing of."""
    rig = Rig(folder, jax_sharded.run, {})
    try:
        jax_sharded.run({}, RankSession(rig, 1, 2, 1, []))
    except RuntimeError as error:
        said.put(str(error))


def attempt(folder: Path, number: int, world_size: int, slices: int = 1, **config: Any) -> Told:
    folder.mkdir(exist_ok=True)
    forks.set_forkserver_preload(["jax.numpy", "orbax.checkpoint", __name__])
    port = free_port()
    results, broadcast = forks.Queue(), [forks.Queue() for _ in range(world_size)]
    ranks = [
        forks.Process(
            target=one_rank,
            args=(folder, {**CONFIG, **config}, number, (rank, world_size, slices), port, results, broadcast),
            daemon=True,
        )
        for rank in range(world_size)
    ]
    for process in ranks:
        process.start()
    got = sorted((results.get(timeout=WITHIN_S) for _ in ranks), key=lambda told: int(told[0]))
    for process in ranks:
        process.join(30)
    return [(events, metrics) for _, events, metrics in got]


def stepped(told: Told) -> list[Stepped]:
    return [event for events, _ in told for event in events if isinstance(event, Stepped)]


if importlib.util.find_spec("jax") and importlib.util.find_spec("orbax"):

    @pytest.mark.parametrize("kind", jax_checkpoint.KINDS)
    def test_two_slices_then_one_then_three_processes_come_to_what_was_known_beforehand(
        tmp_path: Path, kind: str
    ) -> None:
        config = ExactConfig.of({**CONFIG, "checkpoint": kind})
        known, attempts = lineage(config, 6), []
        for number, (world_size, slices, steps) in enumerate([(4, 2, 2), (2, 1, 4), (3, 1, 6)], start=1):
            told = attempt(tmp_path / "run", number, world_size, slices, steps=steps, checkpoint=kind)
            assert {(each.step, each.digest) for each in stepped(told)} == {
                (step, known[step]) for step in (steps - 1, steps)
            }
            found = [event for events, _ in told for event in events if isinstance(event, Resumed)]
            assert [(each.step, each.digest) for each in found] == [(steps - 2, known[steps - 2])] * world_size
            attempts.append(told)
        for step in stepped(attempts[0]):
            assert step.samples is not None and len(step.samples) == config.global_batch // 4
        assert attempts[-1][0][1] == attempts[-1][2][1] == metrics_after(6, config)

    def test_a_whole_run_comes_to_what_was_known_beforehand_also_where_an_error_is_0(tmp_path: Path) -> None:
        config = ExactConfig()
        assert any(0 in errors(step, config) for step in range(1, config.steps + 1))
        told = attempt(tmp_path, 1, 1, features=config.features, checkpoint_every=config.steps)
        assert [each.digest for each in stepped(told)] == lineage(config, config.steps)[1:][: config.steps]

    def test_without_jax_distributed_around_it_the_job_says_how_to_run_it(tmp_path: Path) -> None:
        said = forks.Queue()
        forks.Process(target=what_it_says_without_its_peers, args=(tmp_path, said), daemon=True).start()
        assert said.get(timeout=WITHIN_S) == (
            "jax_sharded: rank 1 of 2 is process 0 of 1 in jax.distributed; run this job under shaketable's JaxTrainer"
            " (subject: bundled)"
        )

    @pytest.mark.parametrize(("slices", "mine"), [(2, 0), (1, 1)])
    def test_a_process_of_another_slice_than_it_is_told_is_an_error(slices: int, mine: int) -> None:
        """In a process of its own: jax's threads stay in whoever has asked for its devices."""
        said = forks.Queue()
        told = {"MEGASCALE_NUM_SLICES": str(slices), "MEGASCALE_SLICE_ID": str(mine)}
        forks.Process(target=what_the_mesh_says, args=(told, said), daemon=True).start()
        assert said.get(timeout=WITHIN_S).startswith(
            f"jax_sharded: process 0 is told that it is in slice {mine} of {slices} (MEGASCALE_*)"
        )

    def test_one_slice_and_one_process_have_a_mesh_of_two_axes_too() -> None:
        said = forks.Queue()
        forks.Process(target=what_the_mesh_says, args=({}, said), daemon=True).start()
        assert "axis_sizes=(1, 1), axis_names=('dcn', 'ici')" in said.get(timeout=WITHIN_S)

    def test_a_part_that_is_missing_is_an_error_that_names_those_that_are_there(tmp_path: Path) -> None:
        attempt(tmp_path, 1, 2, steps=1)
        [checkpoint] = tmp_path.glob("checkpoint-*")
        assert sorted(path.name for path in checkpoint.iterdir()) == [
            "momentum-0.npy",
            "momentum-12.npy",
            "progress.json",
            "weights-0.npy",
            "weights-12.npy",
        ]
        (checkpoint / "momentum-12.npy").unlink()
        parts = jax_checkpoint.Parts(None, 24)  # type: ignore[arg-type]  # nothing gets as far as being spread
        with pytest.raises(jax_checkpoint.MissingParts, match=r"parts of momentum at \[0\]"):
            jax_checkpoint.Files().read(str(checkpoint), parts)


def errors(step: int, config: ExactConfig) -> list[int]:
    """Of the samples of `step`."""
    state = exact.beginning(config)
    for before in range(1, step):
        state, _ = exact.after(state, before, config)
    rows = [(each, exact.inputs(config.seed, each, config.features)) for each in exact.batch(step, config)]
    found = [(each, sum(one * weight for one, weight in zip(row, state.weights, strict=True))) for each, row in rows]
    return [value - exact.target(config.seed, each, config.features) for each, value in found]


def metrics_after(steps: int, config: ExactConfig) -> dict[str, Any]:
    state, loss = exact.beginning(config), 0
    for step in range(1, steps + 1):
        state, loss = exact.after(state, step, config)
    return {"step": steps, "loss": loss / (256 * config.global_batch), "digest": exact.digest(state, steps)}


def test_training_makes_the_loss_smaller_and_no_number_comes_near_what_float32_rounds() -> None:
    config = ExactConfig(features=128, global_batch=128)
    state, losses = exact.beginning(config), []
    for step in range(1, 101):
        state, loss = exact.after(state, step, config)
        losses.append(loss)
    assert losses[-1] < losses[0] / 3
    assert max(losses) < 2**23 and sum(map(abs, state.weights)) < 2**23


def test_a_step_left_out_done_twice_or_of_another_seed_has_another_digest() -> None:
    config = ExactConfig()
    known = lineage(config, 3)[:4]
    first, _ = exact.after(exact.beginning(config), 1, config)
    third, _ = exact.after(first, 3, config)
    again, _ = exact.after(first, 1, config)
    other = lineage(ExactConfig(seed=1), 3)[1:4]
    assert len({*known, exact.digest(third, 3), exact.digest(again, 2), *other}) == 4 + 2 + 3
    assert exact.batch(5, config) == chain.batch(5, ChainConfig(global_batch=24))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"checkpoint_bytes": 3}, "unknown job_config ['checkpoint_bytes']"),
        ({"steps": 0}, "steps is 0, must be at least 1"),
        ({"checkpoint": "pickle"}, "checkpoint is 'pickle', must be files or orbax"),
        ({"features": 1024}, "features x global_batch is 24576, more than 16384"),
    ],
)
def test_a_wrong_configuration_is_an_error_that_names_the_field(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        ExactConfig.of(config)


def test_devices_that_cannot_share_are_an_error_that_says_what_to_change() -> None:
    jax_sharded._divides(3, "features", 24)
    with pytest.raises(ValueError, match="5 devices do not share 24 features equally: change job_config features"):
        jax_sharded._divides(5, "features", 24)


def test_every_format_that_can_be_asked_for_is_there() -> None:
    assert tuple(jax_checkpoint.KINDS) == exact.FORMATS
