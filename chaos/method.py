"""The vocabulary of a method, in Python: one function for each fault, with the arguments that it has in a file.

Each returns a `FaultPlan` and does nothing. `shaketable.chaos.toolkit` has functions of the same names and signatures
that arm the same plans in an experiment file; targets and triggers are the same mappings in both.
"""

from __future__ import annotations

from typing import Any

from shaketable.chaos.plan import FaultPlan, Target, Trigger

# ---- targets ----


def rank(number: int) -> Target:
    """The worker of this rank, or its node."""
    return {"rank": number}


def node(number: int) -> Target:
    """The harness's worker node of this number (from 1), or the worker on it."""
    return {"node": number}


def tpu_slice(number: int, *, host: int | None = None) -> Target:
    """All hosts of the TPU slice of this number (from 0, as `add_node` counts), for a fault of nodes; or only the host
    with this worker id, or the worker on it."""
    return {"slice": number, **_given(host=host)}


def randomly(count: int = 1) -> Target:
    """That many distinct ones, drawn from the seed."""
    return {"random": count}


# ---- triggers ----


def step(
    number: int, *, world_size: int | None = None, attempt: int | None = None, commits: int | None = None,
    after: int | None = None,
) -> Trigger:  # fmt: skip
    """The first time any rank has testified this step, or a later one (in a world of that size; in the run's attempt of
    that number, or a later one; and as soon as there are so many commits)."""
    return {"step": number, **_given(world_size=world_size, attempt=attempt, commits=commits, after=after)}


def event(kind: str, *, nth: int = 1, after: int | None = None) -> Trigger:
    """The nth event of this kind in the history, `upload_started` for example."""
    return {"event": kind, "nth": nth, **_given(after=after)}


def state(name: str, *, nth: int = 1, after: int | None = None) -> Trigger:
    """The controller is in this state, by its own name for it."""
    return {"state": name, "nth": nth, **_given(after=after)}


def after(fault: int) -> Trigger:
    """There is evidence that this fault (its place in the method, from 0) has landed. (Beside another trigger, as its
    argument `after`: only what happens from then on counts.)"""
    return {"after": fault}


# ---- faults ----


def sigkill_worker(target: Target, at: Trigger) -> FaultPlan:
    """Kill a worker's process."""
    return FaultPlan("sigkill_worker", target, at)


def raise_in_worker(target: Target, at: Trigger) -> FaultPlan:
    """Make the training function raise at its next report."""
    return FaultPlan("raise_in_worker", target, at)


def hang_worker(target: Target, at: Trigger, where: str = "python") -> FaultPlan:
    """Make the training function stand still for good at its next report, in "python", "c" or a data "loader"."""
    return FaultPlan("hang_worker", target, at, {"where": where} if where != "python" else {})


def freeze_worker(target: Target, at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """Stop a worker's process; thaw it at `until`, or when the run is over."""
    return FaultPlan("freeze_worker", target, at, _given(until=until))


def sigterm_node(target: Target, at: Trigger) -> FaultPlan:
    """Reclaim a node with notice."""
    return FaultPlan("sigterm_node", target, at)


def sigkill_node(target: Target, at: Trigger) -> FaultPlan:
    """Kill every process of a node."""
    return FaultPlan("sigkill_node", target, at)


def freeze_node(target: Target, at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """Stop every process of a node; thaw them at `until`, or when the run is over."""
    return FaultPlan("freeze_node", target, at, _given(until=until))


def drain_node(target: Target, at: Trigger, deadline_s: float = 10.0) -> FaultPlan:
    """Announce that a node will be taken `deadline_s` from now."""
    return FaultPlan("drain_node", target, at, {"deadline_s": deadline_s})


def add_node(at: Trigger, slice: int | None = None, tier: str = "") -> FaultPlan:
    """Start one more worker node, of a tier where the experiment has some; on TPU one more slice, or, in slice number
    `slice` (from 0), one of the hosts that it lacks."""
    return FaultPlan("add_node", None, at, _given(slice=slice, tier=tier or None))


def sigkill_driver(at: Trigger) -> FaultPlan:
    """Kill the driver."""
    return FaultPlan("sigkill_driver", None, at)


def sigterm_driver(at: Trigger) -> FaultPlan:
    """Ask the driver to go."""
    return FaultPlan("sigterm_driver", None, at)


def sigint_driver(at: Trigger) -> FaultPlan:
    """Ctrl-C for the driver."""
    return FaultPlan("sigint_driver", None, at)


def freeze_driver(at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """Stop the driver's process; thaw it at `until`, or when the run is over."""
    return FaultPlan("freeze_driver", None, at, _given(until=until))


def relaunch_driver(at: Trigger, changed: dict[str, Any] | None = None) -> FaultPlan:
    """Launch the driver once more under the same name; `changed`: configuration that differs this time."""
    return FaultPlan("relaunch_driver", None, at, _given(changed=changed))


def hurt_storage(
    at: Trigger, effect: str = "slow_down", methods: tuple[str, ...] = (), key: str = "*", probability: float = 1.0,
    times: int | None = None, latency_s: float = 0.0, bytes_per_s: float = 0.0, until: Trigger | None = None,
) -> FaultPlan:  # fmt: skip
    """The storage throttles ("slow_down"), errs ("internal_error"), refuses ("expired_credentials"), is out ("outage"),
    breaks off ("reset", "truncate_answer"), loses answers ("lose_answer") or is slow ("latency", "bandwidth"):
    requests of these methods for these keys (a pattern), at most `times`; until `until`, or the end of the run."""
    arguments = _given(until=until, times=times)
    arguments |= {"effect": effect, "methods": list(methods), "key": key, "probability": probability}
    return FaultPlan(
        "hurt_storage", None, at, {**arguments, "latency_s": latency_s, "bytes_per_s": bytes_per_s}
    )


def fill_disk(at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """The disk on which the run is kept (`storage: disk`) has no byte left; until `until`, or the end of the run."""
    return FaultPlan("fill_disk", None, at, _given(until=until))


def deny_writes(at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """Take away the rights to write to the run's storage; give them back at `until`, or when the run is over."""
    return FaultPlan("deny_writes", None, at, _given(until=until))


def damage_checkpoint(at: Trigger, how: str = "corrupt", which: str = "latest") -> FaultPlan:
    """Damage committed files on the disk: "corrupt", "truncate", "delete"; of the "latest" commit or of "all"."""
    return FaultPlan("damage_checkpoint", None, at, {"how": how, "which": which})


def lose_log(at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """Take the run log away, as a lifecycle rule does; bring it back at `until`, or when the run is over."""
    return FaultPlan("lose_log", None, at, _given(until=until))


def reached(at: Trigger) -> FaultPlan:
    """No fault: demands that the run gets there, or else the experiment proves nothing and is INVALID."""
    return FaultPlan("reached", None, at)


def _given(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}
