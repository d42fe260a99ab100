"""slice-atomicity: on TPU every attempt runs on whole slices of the right topology, each host once, and ranks are by
slice and worker id. Judged twice: from what the workers found in their own environment, and from the nodes that the
controller says it started the attempt on. Where jax.distributed is used, `MEGASCALE_*` tell every worker of the slices
of its own attempt, and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shaketable.chaos.history.events import WorkerStarted
from shaketable.chaos.history.view import Attempt, History
from shaketable.chaos.invariants.findings import counted, failed, invariant, not_applicable, passed
from shaketable.chaos.plan import Configuration, Finding

NAME = "slice-atomicity"
PLACE, COUNT = "MEGASCALE_SLICE_ID", "MEGASCALE_NUM_SLICES"
# the same for all workers of an attempt
SHARED = ("MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_PORT")


@invariant(NAME, order=30)
def slice_atomicity(history: History) -> Finding:
    hosts = history.configuration.hosts_per_slice
    if not hosts:
        return not_applicable(NAME, "the run is not on TPU slices")
    if not history.attempts:
        return not_applicable(NAME, "no attempt was recorded")
    slices = {event.node_id: event.slice for event in history.nodes if event.slice}
    for attempt in history.attempts:
        wrong = _wrong_workers(attempt, hosts, history.configuration) or _wrong_members(attempt, hosts, slices)
        if wrong is not None:
            return failed(NAME, f"{attempt.name} ({attempt.start.place}) {wrong}")
    return passed(NAME, f"{counted(len(history.attempts), 'attempt')} on whole slices of {counted(hosts, 'host')}")


def _wrong_workers(attempt: Attempt, hosts: int, configuration: Configuration) -> str | None:
    """What the workers say."""
    workers = sorted({worker.rank: worker for worker in attempt.workers}.values(), key=lambda w: w.rank)
    generation = configuration.accelerator_type.lower().removeprefix("tpu-")
    for worker in workers:
        if not worker.slice or worker.topology != configuration.topology:
            return f"has rank {worker.rank} on a host of {worker.slice or 'no slice'}, topology {worker.topology!r}"
        if worker.pod_type.rpartition("-")[0] != generation:
            return f"has rank {worker.rank} on a host of slice {worker.slice}, which is {worker.pod_type or 'no TPU'}"
    names = {worker.rank: worker.slice for worker in workers}
    # who is on two slices is not on the right hosts of one either
    return _wrong_slices(names, hosts) or _wrong_order(workers, hosts) or _wrong_megascale(workers, hosts)


def _wrong_members(attempt: Attempt, hosts: int, slices: Mapping[str, str]) -> str | None:
    """What the controller says. `slices`: node id -> the slice of which it is a host, where the harness knows any."""
    if attempt.world_size % hosts:
        return f"has {counted(attempt.world_size, 'worker')}, which is no whole number of slices of {hosts}"
    if not slices:
        return None
    members = attempt.start.members
    stray = next(((rank, node) for rank, node in members if node not in slices), None)
    if stray is not None:
        return f"has rank {stray[0]} on node {stray[1][:8]}, which is in no usable slice"
    nodes = [node for _, node in members]
    twice = next((node for node in nodes if nodes.count(node) > 1), None)
    if twice is not None:
        return f"has node {twice[:8]} twice"
    return _wrong_slices({rank: slices[node] for rank, node in members}, hosts)


def _wrong_order(workers: Sequence[WorkerStarted], hosts: int) -> str | None:
    """Rank r is worker r mod n of its slice."""
    for worker in workers:
        place = worker.rank % hosts
        if worker.host != str(place):
            return f"has rank {worker.rank} on worker {worker.host} of slice {worker.slice}, not on {place}"
    return None


def _wrong_megascale(workers: Sequence[WorkerStarted], hosts: int) -> str | None:
    """How the slices of an attempt find each other. One slice has nobody to find."""
    told = [worker for worker in workers if worker.megascale is not None]
    for worker in told:
        slices, found = worker.world_size // hosts, worker.megascale or {}
        own = {COUNT: str(slices), PLACE: str(worker.rank // hosts)} if slices > 1 else {}
        known = {*own, *SHARED} if own else set()
        wrong = [name for name in found if name not in known or found[name] != own.get(name, found[name])]
        if wrong:
            return f"has rank {worker.rank} of {counted(slices, 'slice')} with {wrong[0]}={found[wrong[0]]}"
        if lacking := sorted(known - found.keys()):
            return f"has rank {worker.rank} of {counted(slices, 'slice')} without {lacking[0]}"
    for name in SHARED:
        values = sorted({(worker.megascale or {}).get(name, "") for worker in told})
        if len(values) > 1:
            return f"has workers with different {name}: {' and '.join(values)}"
    return None


def _wrong_slices(slices: Mapping[int, str], hosts: int) -> str | None:
    """The ranks of one slice are side by side, and nobody else's. `slices`: by rank."""
    blocks = dict[int, set[str]]()
    for rank, name in slices.items():
        blocks.setdefault(rank // hosts, set()).add(name)
    for number, names in blocks.items():
        if len(names) > 1:
            return f"has ranks {number * hosts} to {(number + 1) * hosts - 1} on slices {', '.join(sorted(names))}"
    used = [name for names in blocks.values() for name in names]
    twice = next((name for name in used if used.count(name) > 1), None)
    return None if twice is None else f"has slice {twice} twice"
