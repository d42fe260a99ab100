"""The hash-chain job: training without a framework, whose state proves how it was reached (`chain.py`).

Each rank computes its own samples' contributions and learns the others' only through the collective; so no
rank can forge another's part, and what one rank does wrong shows in everybody's digest. It uses Ray Train's
own calls only, and asks `checkpoint_requested()` before each report, as a job must that wants to lose no step
in a resize.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

from shaketable.chaos import chain
from shaketable.chaos.chain import ChainConfig
from shaketable.chaos.errors import ChaosError
from shaketable.chaos.history.events import Resumed
from shaketable.chaos.workloads import chain_checkpoint
from shaketable.chaos.workloads.collective import Collective, join
from shaketable.chaos.workloads.scratch import scratch, sweep
from shaketable.chaos.workloads.surroundings import Api, Surroundings


class PlannedFailure(ChaosError, RuntimeError):
    """Raised because the job's configuration says so (`fail_at`)."""


def hash_chain(config: dict[str, Any]) -> None:
    """The training function."""
    from shaketable.chaos.workloads import worker_api as surroundings

    run(config, cast(Surroundings, surroundings))


def run(raw: dict[str, Any], surroundings: Surroundings) -> None:
    """The same with its surroundings given."""
    config = ChainConfig.of(raw)
    term, attempt, rank, world_size, _ = surroundings.where()
    api = surroundings.api()
    sweep()
    surroundings.restoring()
    step, digest = _resume(api, config)
    surroundings.emit(Resumed(term=term, attempt=attempt, rank=rank, step=step, digest=digest))
    host = surroundings.node_ip() if config.host == "auto" else config.host
    with join(rank, world_size, api.broadcast_from_rank_zero, host) as group:
        pace = _Pace(config.pace_s(world_size))
        leaves = False
        while step < config.steps and not leaves:
            step += 1
            leaves = config.return_on_notice and api.notice()
            digest = _step(step, digest, config, group, pace)
            _report(step, digest, config, surroundings, leaves=leaves)


def _resume(api: Api, config: ChainConfig) -> tuple[int, str]:
    checkpoint = api.get_checkpoint()
    if checkpoint is None:
        return 0, chain.genesis(config)
    with checkpoint.as_directory() as directory:
        state = chain_checkpoint.read(Path(directory))
    return state.step, state.digest


def _step(step: int, before: str, config: ChainConfig, group: Collective, pace: _Pace) -> str:
    if step == config.fail_at and group.rank == config.fail_rank:
        raise PlannedFailure(f"hash_chain: rank {group.rank} fails at step {step}, as fail_at says")
    mine = chain.part(before, step, group.rank, group.world_size, config)
    pace.wait()
    return chain.combine(before, step, group.allgather(mine), config)


def _report(step: int, digest: str, config: ChainConfig, surroundings: Surroundings, *, leaves: bool) -> None:
    """Record first, then act: the wrapper around `report` counts on it."""
    _, _, rank, world_size, _ = surroundings.where()
    api = surroundings.api()
    due = step % config.checkpoint_every == 0 or step == config.steps or leaves or api.checkpoint_requested()
    gives = due and (rank == 0 or config.sharded)
    order = chain.batch(step, config)
    samples = [order[place] for place in chain.places(rank, world_size, config)]
    # of which every rank has others, so that it shows whose a commit or a result has
    metrics = {"step": step, "digest": digest, "rank": rank}
    surroundings.stepped(step, digest=digest, samples=samples, checkpoint=gives, metrics=metrics)
    if not gives:
        api.report(metrics, checkpoint=None)
        return
    with scratch() as directory:
        shard = (rank, world_size) if config.sharded else None
        chain_checkpoint.write(Path(directory), step, digest, config.checkpoint_bytes, shard)
        api.report(metrics, checkpoint=api.Checkpoint.from_directory(directory))


class _Pace:
    """Simulated computation: a step takes at least `step_s`; lost time is not caught up."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._due_s = time.monotonic() + step_s

    def wait(self) -> None:
        left_s = self._due_s - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)
        self._due_s = max(self._due_s, time.monotonic()) + self._step_s
