"""The mathematics of the JAX job, pure: a regression whose every number is a whole one, so that what training must come
to can be computed here from the configuration alone, whatever the world size, the mesh and the order of the sums.

Inputs are -1 and 1, the loss is the sum of the absolute errors, its gradient a sum of signs (of 0 too: 1); weights,
momentum and errors are whole multiples of 1/`UNIT`. float32 holds whole numbers up to 2^24 exactly, nothing here comes
near it, and exact sums do not depend on their order. The samples of a step are those of the hash chain (`chain.batch`).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, NamedTuple

from shaketable.chaos import chain
from shaketable.chaos.chain import ChainConfig
from shaketable.chaos.constraints import Count, Pause

UNIT = 256
# a step's weights change by that many units for each unit of momentum
RATE = 4
FORMATS = ("files", "orbax")
# features times samples of a step: their errors then add up to less than 2^24 units
MOST = 1 << 14


@dataclass(frozen=True, slots=True)
class ExactConfig:
    """The job's configuration (`job_config` of an experiment). `checkpoint`: "files", of which each process writes its
    own, or "orbax"; `features`: as many weights, in equal parts over the devices of a slice; `global_batch`: samples of
    a step, in equal parts over all devices."""

    steps: Count = 40
    step_s: Pause = 0.05
    checkpoint_every: Count = 1
    global_batch: Count = 24
    features: Count = 120
    seed: Count = 0
    checkpoint: str = "files"

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ExactConfig:
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(config) - known):
            raise ValueError(f"jax_sharded: unknown job_config {unknown}; known are {sorted(known)}")
        made = cls(**config)
        for name in ("steps", "checkpoint_every", "global_batch", "features"):
            if (value := getattr(made, name)) < 1:
                raise ValueError(f"jax_sharded: job_config {name} is {value}, must be at least 1")
        if (size := made.features * made.global_batch) > MOST:
            raise ValueError(f"jax_sharded: features x global_batch is {size}, more than {MOST}: float32 would round")
        if made.checkpoint not in FORMATS:
            raise ValueError(
                f"jax_sharded: job_config checkpoint is {made.checkpoint!r}, must be {' or '.join(FORMATS)}"
            )
        return made


class State(NamedTuple):
    """What is trained, in units."""

    weights: Sequence[int]
    momentum: Sequence[int]


def beginning(config: ExactConfig) -> State:
    return State((0,) * config.features, (0,) * config.features)


def batch(step: int, config: ExactConfig) -> tuple[int, ...]:
    """The sample ids of `step` (from 1), in order."""
    return chain.batch(step, ChainConfig(global_batch=config.global_batch, seed=config.seed))


@lru_cache(maxsize=4096)
def inputs(seed: int, sample: int, features: int) -> tuple[int, ...]:
    """Of one sample: -1 or 1 for each feature."""
    bits = int.from_bytes(hashlib.shake_256(f"inputs {seed} {sample}".encode()).digest(-(-features // 8)))
    return tuple(1 if bits >> place & 1 else -1 for place in range(features))


@lru_cache(maxsize=4096)
def target(seed: int, sample: int, features: int) -> int:
    """Of one sample, in units: what weights of -2 to 2 make of its inputs."""
    truth = (byte % 5 - 2 for byte in hashlib.shake_256(f"truth {seed}".encode()).digest(features))
    return UNIT * sum(one * other for one, other in zip(inputs(seed, sample, features), truth, strict=True))


def after(state: State, step: int, config: ExactConfig) -> tuple[State, int]:
    """The state after `step`, and its loss: the sum of the absolute errors, in units."""
    total, gradient = 0, [0] * config.features
    for sample in batch(step, config):
        row = inputs(config.seed, sample, config.features)
        found = sum(one * weight for one, weight in zip(row, state.weights, strict=True))
        error = found - target(config.seed, sample, config.features)
        sign = 1 if error >= 0 else -1
        total += abs(error)
        gradient = [known + sign * one for known, one in zip(gradient, row, strict=True)]
    momentum = [before // 2 + change for before, change in zip(state.momentum, gradient, strict=True)]
    weights = [weight - RATE * change for weight, change in zip(state.weights, momentum, strict=True)]
    return State(weights, momentum), total


def digest(state: State, step: int) -> str:
    """Of the state after `step`."""
    whole = [*state.weights, *state.momentum]
    return hashlib.sha256(f"{step} ".encode() + struct.pack(f"<{len(whole)}i", *whole)).hexdigest()


@dataclass(slots=True)
class _Known:
    """How far a lineage has been computed."""

    state: State
    digests: list[str]


_lineages: dict[tuple[int, int, int], _Known] = {}


def lineage(config: ExactConfig, steps: int) -> list[str]:
    """What the digest must be after 0, 1, ..., at least `steps` steps: from the configuration alone. Read only."""
    key = (config.seed, config.global_batch, config.features)
    start = beginning(config)
    known = _lineages.setdefault(key, _Known(start, [digest(start, 0)]))
    while (step := len(known.digests)) <= steps:
        known.state, _ = after(known.state, step, config)
        known.digests.append(digest(known.state, step))
    return known.digests
