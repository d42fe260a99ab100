"""How the workers of one attempt come together: each process starts and restores, all enter the function at once, and
then find each other. After that they step (`group.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shaketable.chaos import chain
from shaketable.chaos.faults.disturbances import FailStart
from shaketable.chaos.history.events import RestoreStarted, Resumed, WorkerStarted
from shaketable.chaos.simulation.subject.agent import Worker
from shaketable.chaos.simulation.subject.storage import NotRestored
from shaketable.runtime.backends import jax
from shaketable.runtime.controller import events as ev
from shaketable.runtime.log.records import CheckpointCommitted

if TYPE_CHECKING:
    from shaketable.chaos.simulation.subject.group import WorkerGroup

# What every simulated TPU host has in its environment from an earlier run.
INHERITED = {
    "MEGASCALE_COORDINATOR_ADDRESS": "gone",
    "MEGASCALE_PORT": "1",
    "MEGASCALE_NUM_SLICES": "9",
    "MEGASCALE_SLICE_ID": "8",
    "MEGASCALE_TRANSPORT_TYPE": "stale",
}


class Joining:
    def __init__(self, group: WorkerGroup) -> None:
        self._group, self._world = group, group.world
        # how many ranks have come to the two rounds of the control collective
        self._entered = self._met = 0

    def fetch(self, worker: Worker, given: CheckpointCommitted) -> None:
        """The agent restores while the worker starts, and tells of what is broken at once."""
        try:
            self._world.checkpoints.restore(given)
        except NotRestored as error:
            broken = ev.CheckpointCorrupt(self._group.attempt, worker.fork.rank, given.checkpoint, str(error))
            self._world.timeline.later(self._world.draw(self._world.pace.restore), worker.agent.up, broken)

    def enter(self, worker: Worker) -> None:
        """The process is there: it is about to call the training function, once all the others are."""
        if not worker.runs:
            wait(worker, self.enter)
            return
        if self._world.rng.random() < self._world.chance.start:
            self._world.failed_by_itself(FailStart.name, worker)
            self._group.fail(worker, "RuntimeError: the backend could not be started")
            return
        worker.agent.up(ev.WorkerEntered(worker.fork.attempt, worker.fork.rank))
        worker.agent.contribute(self._all_entered)

    def _all_entered(self) -> None:
        """In the driver, through which the ranks find each other: so nobody is in the function before all can be."""
        self._entered += 1
        if self._entered == self._group.world_size:
            for worker in self._group.workers:
                worker.agent.down(worker.agent.tell, self._group.attempt, "call")

    def call(self, worker: Worker) -> None:
        """The training function."""
        if not worker.runs:
            wait(worker, self.call)
            return
        fork, pace, node = worker.fork, self._world.pace, worker.agent.node
        worker.called = True
        worker.writer.say(
            WorkerStarted,
            term=fork.term,
            attempt=fork.attempt,
            rank=fork.rank,
            world_size=fork.world_size,
            node_id=node.node_id,
            pid=worker.pid,
            resume=fork.resume.checkpoint if fork.resume else None,
            slice=node.slice,
            host=node.worker,
            topology=node.topology,
            pod_type=node.pod_type,
            megascale=self._megascale(fork.rank) if node.slice else None,
        )
        if fork.resume is not None:
            said = {"term": fork.term, "attempt": fork.attempt, "rank": fork.rank}
            worker.writer.say(RestoreStarted, **said, checkpoint=fork.resume.checkpoint)
        took = self._world.draw(pace.enter) + (self._world.draw_slow(pace.restore) if fork.resume else 0.0)
        self._world.timeline.later(took, self._resume, worker, took)

    def _megascale(self, rank: int) -> dict[str, str]:
        """On slices the job is one of JAX, whose environment the runtime's own backend makes."""
        first = next(worker for worker in self._group.workers if worker.fork.rank == 0)
        environment = dict(INHERITED)
        at = jax.Coordination(first.agent.node.node_id, self._group.attempt, self._group.attempt)
        jax.with_slices(environment, at, rank, self._group.world_size, self._world.cluster.hosts)
        return environment

    def _resume(self, worker: Worker, took: float = 0.0) -> None:
        if not worker.runs:
            wait(worker, self._resume)
            return
        if took > 0 and worker.factor > 1:
            # all that a real worker does until its first report is slow, its restore as well
            self._world.timeline.later(took * (worker.factor - 1), self._resume, worker)
            return
        given = worker.fork.resume
        if given is None:
            worker.step, worker.digest = 0, chain.lineage(self._world.chain, 0)[0]
        else:
            try:
                found = self._world.checkpoints.restore(given)
            except NotRestored as error:
                # it waits in `get_checkpoint()` until it is killed
                fork = worker.fork
                worker.agent.up(ev.CheckpointCorrupt(fork.attempt, fork.rank, given.checkpoint, str(error)))
                return
            worker.step, worker.digest = found.step, found.digest
        worker.said = worker.step
        worker.writer.say(
            Resumed,
            term=self._group.term,
            attempt=self._group.attempt,
            rank=worker.fork.rank,
            step=worker.step,
            digest=worker.digest,
        )
        worker.arrived = True
        if self._group.broken:
            self._group.break_off(worker)
        else:
            worker.agent.contribute(self._meet)

    def _meet(self) -> None:
        """In the driver again: rank 0 tells everybody where its collective is."""
        self._met += 1
        if self._met == self._group.world_size:
            self._world.timeline.later(self._world.draw(self._world.pace.join), self._group.join)


def wait(worker: Worker, again: Callable[[Worker], None]) -> None:
    """A frozen process goes on where it was once it thaws; a dead one does not."""
    if worker.alive and worker.agent.alive:
        worker.agent.world.timeline.later(0.5, again, worker)
