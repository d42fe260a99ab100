"""The hash-chain job: the same chain whatever the world size, and any wrong step, checkpoint or mix shows in
it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from shaketable.chaos import chain
from shaketable.chaos.chain import ChainConfig, lineage, reference_digest
from shaketable.chaos.history.events import Stepped
from shaketable.chaos.workloads import chain_checkpoint, hash_chain
from shaketable.chaos.workloads.chain_checkpoint import CorruptCheckpoint
from shaketable.suites.tests.rigs.workload_rig import Rig, Stopped

FAST: dict[str, Any] = {"steps": 10, "step_s": 0.0}


def rig(folder: Path, **more: Any) -> Rig:
    special = {key: more.pop(key) for key in ("stop_at", "request_at") if key in more}
    return Rig(folder, hash_chain.run, {**FAST, **more}, **special)


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 14])
def test_the_digests_do_not_depend_on_the_world_size(tmp_path: Path, world_size: int) -> None:
    run = rig(tmp_path)
    assert run.attempt(world_size) == [None] * world_size
    expected = lineage(ChainConfig.of(FAST), 10)[:11]
    assert run.digests() == {step: {expected[step]} for step in range(1, 11)}
    whole = {"step": 10, "digest": reference_digest(10, FAST)}
    assert {key: run.metrics[key] for key in whole} == whole and run.metrics["rank"] in range(world_size)


@pytest.mark.parametrize("worlds", [(3, 2), (1, 4), (2, 2)])
def test_a_resumed_run_reaches_the_same_digest_at_another_size(tmp_path: Path, worlds: tuple[int, int]) -> None:
    run = rig(tmp_path, stop_at=6)
    ends = run.attempt(worlds[0])
    assert all(isinstance(end, Stopped | ConnectionError) for end in ends)
    assert run.attempt(worlds[1]) == [None] * worlds[1]
    assert run.metrics["digest"] == reference_digest(10, FAST)
    second = [event for event in run.resumed() if event.attempt == 2]
    assert {(event.step, event.digest) for event in second} == {(6, reference_digest(6, FAST))}


def test_a_run_from_scratch_says_that_it_found_the_empty_chain(tmp_path: Path) -> None:
    run = rig(tmp_path)
    run.attempt(2)
    assert {(event.step, event.digest) for event in run.resumed()} == {(0, reference_digest(0, FAST))}


def test_the_samples_of_all_ranks_are_the_global_batch_of_the_step(tmp_path: Path) -> None:
    run = rig(tmp_path)
    run.attempt(3)
    for step in range(1, 11):
        samples = [event.samples or [] for event in run.events if isinstance(event, Stepped) if event.step == step]
        assert sorted(itertools.chain(*samples)) == sorted(chain.batch(step, ChainConfig.of(FAST)))


def test_one_pass_consumes_every_sample_once() -> None:
    config = ChainConfig.of(FAST)
    first = [sample for step in range(1, 9) for sample in chain.batch(step, config)]
    assert sorted(first) == list(range(96))
    assert chain.batch(9, config) != chain.batch(1, config)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: chain.combine("other", 3, [chain.part("other", 3, 0, 1, ChainConfig())], ChainConfig()),
        lambda: _twice(2),
        lambda: _stale_rank(3),
    ],
    ids=["another state before", "a step done twice", "one rank with a stale state"],
)
def test_what_went_wrong_once_shows_in_the_digest(wrong: Any) -> None:
    assert wrong() != reference_digest(3, {})


def _twice(step: int) -> str:
    config = ChainConfig()
    digest = reference_digest(step, {})
    return chain.combine(digest, step, [chain.part(digest, step, 0, 1, config)], config)


def _stale_rank(step: int) -> str:
    config = ChainConfig()
    before, stale = reference_digest(step - 1, {}), reference_digest(step - 2, {})
    parts = [chain.part(before, step, 0, 2, config), chain.part(stale, step, 1, 2, config)]
    return chain.combine(before, step, parts, config)


def test_a_rank_that_sends_too_little_is_an_error() -> None:
    with pytest.raises(ValueError, match="rank 1 sent 0 bytes"):
        chain.combine("d", 1, [chain.part("d", 1, 0, 2, ChainConfig()), b""], ChainConfig())


def test_the_planned_failure_hits_in_every_attempt_and_breaks_the_others(tmp_path: Path) -> None:
    run = rig(tmp_path, fail_at=4, fail_rank=1)
    for _ in range(2):
        zero, one, two = run.attempt(3)
        assert isinstance(one, hash_chain.PlannedFailure)
        assert isinstance(zero, ConnectionError)
        assert isinstance(two, ConnectionError)
    assert [event.step for event in run.resumed()] == [0] * 3 + [3] * 3


def test_checkpoints_come_every_n_steps_and_at_the_end_and_on_request(tmp_path: Path) -> None:
    run = rig(tmp_path, checkpoint_every=4, request_at=6)
    run.attempt(2)
    assert [event.step for event in run.steps(1, 0) if event.checkpoint] == [4, 6, 8, 10]
    assert [event.step for event in run.steps(1, 1) if event.checkpoint] == []


def test_who_returns_at_a_notice_saves_before(tmp_path: Path) -> None:
    run = rig(tmp_path, checkpoint_every=4, request_at=6, return_on_notice=True)
    assert run.attempt(2) == [None] * 2
    assert [event.step for event in run.steps(1, 0)] == [1, 2, 3, 4, 5, 6]
    assert chain_checkpoint.read(run.commits[-1]).step == 6


def test_a_sharded_checkpoint_is_written_by_all_and_read_at_another_size(tmp_path: Path) -> None:
    run = rig(tmp_path, sharded=True, stop_at=5)
    run.attempt(1)
    assert run.attempt(3) == [None] * 3
    assert chain_checkpoint.read(run.commits[-1]).digest == reference_digest(10, FAST)
    assert len(list(run.commits[-1].iterdir())) == 6


def written(folder: Path, step: int = 7, shard: tuple[int, int] | None = None) -> Path:
    chain_checkpoint.write(folder, step, f"digest-{step}", 3_000_000, shard)
    return folder


def test_a_checkpoint_holds_step_and_digest_and_as_much_padding_as_asked(tmp_path: Path) -> None:
    state = chain_checkpoint.read(written(tmp_path))
    assert (state.step, state.digest) == (7, "digest-7")
    assert (tmp_path / "padding.bin").stat().st_size == 3_000_000


def truncate(folder: Path) -> None:
    with (folder / "padding.bin").open("r+b") as file:
        file.truncate(2_999_999)


def flip(folder: Path) -> None:
    with (folder / "padding.bin").open("r+b") as file:
        file.seek(1_500_000)
        byte = file.read(1)
        file.seek(1_500_000)
        file.write(bytes([byte[0] ^ 1]))


def tear(folder: Path) -> None:
    path = folder / "state.json"
    path.write_bytes(path.read_bytes()[:20])


def relabel(folder: Path) -> None:
    path = folder / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "step": 8}))


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (truncate, "checksum"),
        (flip, "checksum"),
        (tear, "torn"),
        (relabel, "checksum"),
        (lambda folder: (folder / "padding.bin").unlink(), "missing"),
        (lambda folder: (folder / "state.json").unlink(), "no state"),
    ],
)
def test_a_damaged_checkpoint_is_noticed(tmp_path: Path, damage: Any, complaint: str) -> None:
    damage(written(tmp_path))
    with pytest.raises(CorruptCheckpoint, match=complaint):
        chain_checkpoint.read(tmp_path)


def test_a_missing_shard_is_noticed(tmp_path: Path) -> None:
    written(tmp_path, shard=(0, 2))
    with pytest.raises(CorruptCheckpoint, match=r"shards \[0\] of a world of 2"):
        chain_checkpoint.read(tmp_path)


def test_shards_of_different_steps_are_noticed(tmp_path: Path) -> None:
    written(tmp_path, 7, shard=(0, 2))
    written(tmp_path, 8, shard=(1, 2))
    with pytest.raises(CorruptCheckpoint, match="different steps"):
        chain_checkpoint.read(tmp_path)


def test_a_shard_left_by_a_larger_world_is_noticed(tmp_path: Path) -> None:
    for shard in ((0, 2), (1, 2), (2, 3)):
        written(tmp_path, 7, shard=shard)
    with pytest.raises(CorruptCheckpoint):
        chain_checkpoint.read(tmp_path)


@pytest.mark.parametrize("config", [{"step": 3}, {"steps": 0}, {"checkpoint_every": 0}, {"global_batch": -1}])
def test_a_wrong_configuration_is_an_error_that_names_the_field(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(config))):
        ChainConfig.of(config)


def test_a_world_that_is_too_small_takes_longer_steps_until_it_is_full() -> None:
    config = ChainConfig(full_world=3, step_s=0.05, short_step_s=0.4)
    assert [config.pace_s(world_size) for world_size in (1, 2, 3, 4)] == [0.4, 0.4, 0.05, 0.05]
    assert ChainConfig().pace_s(1) == 0.05


def test_pace_and_checkpoints_do_not_change_the_chain_but_the_seed_does() -> None:
    assert reference_digest(5, {"step_s": 9.0, "checkpoint_bytes": 1, "full_world": 4}) == reference_digest(5, {})
    assert reference_digest(5, {"seed": 1}) != reference_digest(5, {})
