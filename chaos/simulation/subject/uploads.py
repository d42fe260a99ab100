"""The checkpoints that the workers of one attempt hand over: how the agents upload them, and what goes wrong there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shaketable.chaos.faults.disturbances import FailUpload
from shaketable.chaos.simulation.subject.agent import Worker
from shaketable.chaos.simulation.subject.storage import STATE_FILE, Answer, Content
from shaketable.runtime.controller import events as ev
from shaketable.runtime.log.run_state import checkpoint_name

if TYPE_CHECKING:
    from shaketable.chaos.simulation.subject.group import WorkerGroup


class Uploads:
    def __init__(self, group: WorkerGroup) -> None:
        self._group, self._world = group, group.world

    def begin(self, worker: Worker, index: int, content: Content) -> None:
        worker.uploading = True
        self._group.busy.add(worker)
        name = checkpoint_name(index, self._group.term, self._group.attempt)
        self._world.records.points.passes(f"before the directory {name}")
        if worker.agent.gone():
            return
        self._world.checkpoints.begin(name)
        self._world.records.points.passes(f"after the directory {name}")
        took = self._world.draw_slow(self._world.pace.upload)
        self._world.timeline.later(took, self._uploaded, worker, index, name, content, self._world.timeline.now)

    def _uploaded(
        self, worker: Worker, index: int, name: str, content: Content, began_s: float, waited: bool = False
    ) -> None:
        """The agent uploads, so the worker may be dead by now, but not its agent."""
        agent, timeline = worker.agent, self._world.timeline
        if not agent.alive:
            return
        if agent.node.state == "frozen":
            timeline.later(0.5, self._uploaded, worker, index, name, content, began_s, waited)
            return
        path = self._file_of(worker)
        size = self._world.pace.checkpoint_bytes
        answer = Answer() if waited else self._world.records.hurt.ask("PUT", f"run/checkpoints/{name}/{path}", size)
        if answer.after_s:
            timeline.later(answer.after_s, self._uploaded, worker, index, name, content, began_s, True)
            return
        if answer.lost:
            self._world.checkpoints.upload(name, path, content)
        if answer.refused or answer.lost:
            agent.driver.retried.add(f"rank {worker.fork.rank}", {"upload": 1})
            if timeline.now - began_s > agent.driver.storage_outage_s:
                self._outage(worker, index, answer.refused)
            else:
                pause_s = self._world.draw((0.1, 1.0))
                timeline.later(pause_s, self._uploaded, worker, index, name, content, began_s)
            return
        self._stored(worker, index, name, content)

    def _file_of(self, worker: Worker) -> str:
        fork = worker.fork
        return f"state-{fork.rank}-of-{fork.world_size}.json" if self._world.chain.sharded else STATE_FILE

    def _outage(self, worker: Worker, index: int, why: str) -> None:
        """The run ends with it; the worker waits in its report until it is killed."""
        fork = worker.fork
        detail = f"{why}; the files lie in /staging on node {worker.agent.node.number}"
        worker.agent.up(ev.UploadFailed(fork.attempt, fork.rank, index, detail, outage=True))

    def _stored(self, worker: Worker, index: int, name: str, content: Content) -> None:
        agent, fork = worker.agent, worker.fork
        if self._world.rng.random() < self._world.chance.upload:
            self._failed(worker, index)
            return
        path = self._file_of(worker)
        points = self._world.records.points
        points.passes(f"before {name}/{path}")
        if agent.gone():
            return
        if points.passes(f"torn {name}/{path}") and agent.gone():
            self._world.checkpoints.tear(name, path, content)
            return
        file = self._world.checkpoints.upload(name, path, content)
        points.passes(f"after {name}/{path}")
        if agent.gone():
            return
        agent.up(ev.UploadFinished(fork.attempt, fork.rank, index, (file,)))
        worker.uploading = False
        self._group.busy.discard(worker)
        if worker.alive and not self._group.broken:
            self._group.try_return(worker, index)
            self._group.go_on()

    def _failed(self, worker: Worker, index: int) -> None:
        """The storage refused it for good: `report()` raises. Every other time the function takes that for bad luck and
        goes on: the index is consumed, and the rank has voted no."""
        worker.uploading = False
        fork = worker.fork
        worker.agent.up(ev.UploadFailed(fork.attempt, fork.rank, index, "the storage refuses it"))
        if not worker.alive:
            return
        self._world.refused += 1
        if self._group.broken or self._world.refused % 2:
            self._world.failed_by_itself(FailUpload.name, worker)
            self._group.fail(worker, "OSError: a checkpoint could not be uploaded: the storage refuses it")
        else:
            self._group.busy.discard(worker)
            self._group.try_return(worker, index, failed=True)
            self._group.go_on()
