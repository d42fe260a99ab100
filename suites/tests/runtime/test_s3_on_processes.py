"""A run in an object store, with real driver, agents and workers: through the fault gateway, with a fifth of all
requests failing at random, it ends with the digest of the run without faults. Whether Ray places the workers changes
nothing about that. The gate has S3 on real Ray (`storage-throttled`)."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shaketable.chaos.storage.gateway import Gateway
from shaketable.chaos.storage.rules import Effect, Rule
from shaketable.runtime import ElasticTrainer, FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
from shaketable.runtime.driver.process_placement import ProcessNodes
from shaketable.suites.tests.rigs.process_runs import process_nodes
from shaketable.suites.tests.rigs.read_back import read_result
from shaketable.suites.tests.rigs.s3_rig import s3, s3_server

__all__ = ["s3", "s3_server"]
pytestmark = pytest.mark.xdist_group("process-clusters")

STEPS = 30


@pytest.fixture(scope="module")
def gateway(s3_server: str) -> Iterator[Gateway]:
    """On the way to the server."""
    with Gateway(s3_server) as gateway:
        yield gateway


@pytest.fixture
def nodes(s3: str, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessNodes]:
    """Two, that reach the storage through the gateway, as this process does from here on."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", gateway.endpoint)
    with process_nodes(2) as nodes:
        yield nodes


def digest(step: int) -> int:
    value = 1
    for number in range(1, step + 1):
        value = (value * 1_000_003 + number) % (1 << 61)
    return value


def train(config: dict[str, Any]) -> None:
    """A chain that every rank steps; dies once, so that a checkpoint has to come back."""
    from shaketable import runtime as train_api

    given = train_api.get_checkpoint()
    step, value = 0, 1
    if given is not None:
        with given.as_directory() as directory:
            state = json.loads((Path(directory) / "state.json").read_text())
            step, value = state["step"], state["value"]
    rank = train_api.get_context().get_world_rank()
    while step < STEPS:
        step += 1
        value = (value * 1_000_003 + step) % (1 << 61)
        if step == 17 and given is None and rank == 0:
            raise RuntimeError("once")
        checkpoint = None
        with tempfile.TemporaryDirectory() as directory:
            if step % 5 == 0 and rank == 0:
                (Path(directory) / "state.json").write_text(json.dumps({"step": step, "value": value}))
                # in parts
                (Path(directory) / "weights").write_bytes(bytes([step]) * 9_000_000)
                checkpoint = train_api.Checkpoint.from_directory(directory)
            train_api.report({"step": step, "value": value}, checkpoint=checkpoint)


@pytest.mark.parametrize("share", [0.2])
def test_a_fifth_of_all_requests_fails_and_the_digest_is_right(
    s3: str, gateway: Gateway, nodes: ProcessNodes, share: float
) -> None:
    effects: tuple[Effect, ...] = ("slow_down", "internal_error", "reset", "lose_answer", "truncate_answer")
    before = gateway.requests
    struck = [
        gateway.add(Rule(effect, probability=share / len(effects), seed=seed)) for seed, effect in enumerate(effects)
    ]
    try:
        result = ElasticTrainer(
            train,
            {},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(
                "run", f"{s3}/runs", failure_config=FailureConfig(max_failures=1), storage_outage_s=120.0
            ),
            nodes=nodes,
        ).fit()
        requests, hurt = gateway.requests - before, {each.rule.effect: each.done for each in struck}
        print("requests", requests, "hurt", hurt)
        assert result.metrics == {"step": STEPS, "value": digest(STEPS)}
        # a fifth, give or take what chance does
        assert sum(hurt.values()) >= 0.05 * requests
        state = read_result(f"{s3}/runs", "run")
        assert state.outcome == "finished"
        assert [end.cause for end in state.ended] == ["worker_error", "finished"]
        assert result.checkpoint is not None
        with result.checkpoint.as_directory() as directory:
            assert json.loads((Path(directory) / "state.json").read_text())["step"] == STEPS
    finally:
        for each in struck:
            gateway.remove(each)


def hasty(config: dict[str, Any]) -> None:
    """Reports checkpoints faster than a storage that is away takes them."""
    from shaketable import runtime as train_api

    for step in range(1, 200):
        directory = tempfile.mkdtemp()
        (Path(directory) / "weights").write_bytes(bytes(1_000_000))
        mode = train_api.CheckpointUploadMode.ASYNC
        checkpoint = train_api.Checkpoint.from_directory(directory)
        train_api.report({"step": step}, checkpoint=checkpoint, checkpoint_upload_mode=mode)
        time.sleep(0.2)


def test_training_goes_on_without_storage_until_too_much_is_staged(
    s3: str, gateway: Gateway, nodes: ProcessNodes
) -> None:
    away = gateway.add(Rule("outage", methods=("PUT",), key="*/checkpoints/*"))
    try:
        config = RunConfig("run", f"{s3}/runs", staging_bytes_max=5_500_000)
        with pytest.raises(TrainingFailedError, match="staging_bytes_max is 5500000") as failed:
            ElasticTrainer(hasty, {}, run_config=config, nodes=nodes).fit()
    finally:
        gateway.remove(away)
    where = re.search(r"the files lie in (\S+) on", str(failed.value))
    assert where is not None and (Path(where[1]) / "weights").stat().st_size == 1_000_000
    assert "6000000 bytes of this worker wait" in str(failed.value) and "Nothing had been committed" in str(
        failed.value
    )
    assert [attempt.account for attempt in failed.value.attempts] == [None]
