"""The mathematics of the hash-chain job, pure: which samples a step consumes, and what the digest must be
after it.

The order of the samples depends on the step alone: a fixed global batch out of a data set that is permuted
anew for each pass, by the seed. Each sample's contribution depends on the digest before the step, and the
digest after it on every contribution in order. So a step that is wrong, skipped or done twice, a torn or
stale checkpoint, or a mix of two writers changes the digest for ever, and the world size never does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from shaketable.chaos.constraints import Count, Pause

CONTRIBUTION_BYTES = 16
BATCHES_PER_PASS = 8


@dataclass(frozen=True, slots=True)
class ChainConfig:
    """The job's configuration (`job_config` of an experiment). `fail_at`: rank `fail_rank` raises at that step,
    in every attempt; `sharded`: every rank checkpoints a shard, not rank 0 alone; `host`: what rank 0's collective
    binds to, "auto" for its node's own address, at which the other nodes reach it; `full_world`: in a smaller
    world a step takes `short_step_s`, as a fixed batch does on fewer machines, so that an experiment in which the
    run shall grow lasts until it has grown, however slowly a node starts; `return_on_notice`: once a notice asks for a
    checkpoint it saves one and returns, although there are steps left."""

    steps: Count = 40
    step_s: Pause = 0.05
    checkpoint_every: Count = 1
    checkpoint_bytes: Count = 256
    global_batch: Count = 12
    seed: Count = 0
    fail_at: Count | None = None
    fail_rank: Count = 0
    sharded: bool = False
    host: str = "auto"
    full_world: Count | None = None
    short_step_s: Pause = 0.5
    return_on_notice: bool = False

    def pace_s(self, world_size: int) -> float:
        """How long a step takes in a world of that size."""
        short = self.full_world is not None and world_size < self.full_world
        return self.short_step_s if short else self.step_s

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ChainConfig:
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(config) - known):
            raise ValueError(f"hash_chain: unknown job_config {unknown}; known are {sorted(known)}")
        made = cls(**config)
        for name, least in (("steps", 1), ("checkpoint_every", 1), ("global_batch", 1), ("checkpoint_bytes", 0)):
            if (value := getattr(made, name)) < least:
                raise ValueError(f"hash_chain: job_config {name} is {value}, must be at least {least}")
        return made


def genesis(config: ChainConfig) -> str:
    """The digest before step 1. What is trained on decides it, pace and checkpoints do not."""
    return hashlib.sha256(f"shaketable chain {config.seed} {config.global_batch}".encode()).hexdigest()


def batch(step: int, config: ChainConfig) -> tuple[int, ...]:
    """The sample ids of `step` (from 1), in order."""
    number, place = divmod(step - 1, BATCHES_PER_PASS)
    order = _permutation(config.seed, number, config.global_batch * BATCHES_PER_PASS)
    return order[place * config.global_batch : (place + 1) * config.global_batch]


@lru_cache(maxsize=4)
def _permutation(seed: int, number: int, size: int) -> tuple[int, ...]:
    def key(sample: int) -> bytes:
        return hashlib.sha256(f"{seed} {number} {sample}".encode()).digest()

    return tuple(sorted(range(size), key=key))


def places(rank: int, world_size: int, config: ChainConfig) -> range:
    """Which places of the global batch are this rank's."""
    return range(rank, config.global_batch, world_size)


def contribution(before: str, step: int, sample: int) -> bytes:
    """What one sample adds. Depends on the state, as a gradient does: a stale rank is wrong at once."""
    text = f"{before} {step} {sample}".encode()
    return hashlib.blake2b(text, digest_size=CONTRIBUTION_BYTES).digest()


def part(before: str, step: int, rank: int, world_size: int, config: ChainConfig) -> bytes:
    """All that this rank adds to `step`: what it sends to the others."""
    samples = batch(step, config)
    return b"".join(contribution(before, step, samples[i]) for i in places(rank, world_size, config))


def combine(before: str, step: int, parts: Sequence[bytes], config: ChainConfig) -> str:
    """The digest after `step`, from every rank's part, put back into the order of the global batch."""
    in_order = [b""] * config.global_batch
    for rank, content in enumerate(parts):
        mine = places(rank, len(parts), config)
        if len(content) != len(mine) * CONTRIBUTION_BYTES:
            raise ValueError(f"hash_chain: rank {rank} sent {len(content)} bytes for {len(mine)} samples")
        for number, place in enumerate(mine):
            in_order[place] = content[number * CONTRIBUTION_BYTES :][:CONTRIBUTION_BYTES]
    return hashlib.sha256(f"{before} {step} ".encode() + b"".join(in_order)).hexdigest()


_lineages: dict[tuple[int, int], list[str]] = {}


def lineage(config: ChainConfig, steps: int) -> list[str]:
    """What the digest must be after 0, 1, ..., at least `steps` steps: from the configuration alone. Read only."""
    known = _lineages.setdefault((config.seed, config.global_batch), [genesis(config)])
    while len(known) <= steps:
        digest, step = known[-1], len(known)
        known.append(combine(digest, step, [part(digest, step, 0, 1, config)], config))
    return known


def reference_digest(steps: int, config: Mapping[str, Any]) -> str:
    """What the digest must be after `steps` steps."""
    return lineage(ChainConfig.of(config), steps)[steps]
