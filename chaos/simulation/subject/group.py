"""The workers of one attempt, stepping together through the hash-chain job.

Every step ends in a collective, so the group moves as one: from one step at which something happens (a checkpoint, a
hold, the end, a step that a trigger waits for) straight to the next. The steps between are recorded as one event that
stands for all of them (`Stepped.since`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from shaketable.chaos import chain
from shaketable.chaos.faults.disturbances import FailStart, FailUpload
from shaketable.chaos.history.events import Resumed, Stepped, UploadStarted, WorkerFinished, WorkerStarted
from shaketable.chaos.simulation.subject.agent import Worker
from shaketable.chaos.simulation.subject.storage import STATE_FILE, Answer, Content, NotRestored
from shaketable.chaos.simulation.subject.world import World
from shaketable.runtime.backends import jax
from shaketable.runtime.controller import events as ev
from shaketable.runtime.log.records import CheckpointCommitted
from shaketable.runtime.log.run_state import checkpoint_name

# What every simulated TPU host has in its environment from an earlier run.
INHERITED = {
    "MEGASCALE_COORDINATOR_ADDRESS": "gone",
    "MEGASCALE_PORT": "1",
    "MEGASCALE_NUM_SLICES": "9",
    "MEGASCALE_SLICE_ID": "8",
    "MEGASCALE_TRANSPORT_TYPE": "stale",
}


class Group:
    def __init__(self, world: World, term: int, attempt: int, world_size: int) -> None:
        self.world, self.term, self.attempt, self.world_size = world, term, attempt, world_size
        self.workers: list[Worker] = []
        self.broken = False
        # everybody has arrived at the collective
        self.stepping = False
        # how many ranks have come to the two rounds of the control collective
        self._entered = self._met = 0
        # the last step that everybody has done and returned from
        self._at = 0
        # in the middle of it
        self._reporting = False
        # some rank has returned from the function
        self._done = False
        # frozen, or on a frozen node
        self._halted: set[Worker] = set()
        # inside a report: uploading, or held
        self._busy: set[Worker] = set()
        # reports that the group has come to and the rank has not made yet
        self._owing: dict[Worker, int] = {}
        # to raise or to hang at its next report
        self._asked: list[Worker] = []
        # holding, and not told until which report
        self._untold: set[Worker] = set()
        # reports at which a checkpoint was asked for
        self._told: dict[Worker, set[int]] = {}
        # when that was
        self._since_s = 0.0
        # the next step at which something happens
        self._next = 0
        # of the step that is under way: what was planned before counts no more
        self._turn = 0
        self._step_s = world.chain.pace_s(world_size)
        self._most = max(1, int(world.silent_s / self._step_s)) if world.silent_s else world.chain.steps

    # ---- coming together

    def add(self, worker: Worker) -> None:
        self.workers.append(worker)
        if worker.fork.resume is not None:
            self._fetch(worker, worker.fork.resume)

    def _fetch(self, worker: Worker, given: CheckpointCommitted) -> None:
        """The agent restores while the worker starts, and tells of what is broken at once."""
        try:
            self.world.checkpoints.restore(given)
        except NotRestored as error:
            broken = ev.CheckpointCorrupt(self.attempt, worker.fork.rank, given.checkpoint, str(error))
            self.world.timeline.later(self.world.draw(self.world.pace.restore), worker.agent.up, broken)

    def enter(self, worker: Worker) -> None:
        """The process is there: it is about to call the training function, once all the others are."""
        if not worker.runs:
            self._wait(worker, self.enter)
            return
        if self.world.rng.random() < self.world.chance.start:
            self.world.failed_by_itself(FailStart.name, worker)
            self._raise(worker, "RuntimeError: the backend could not be started")
            return
        worker.agent.up(ev.WorkerEntered(worker.fork.attempt, worker.fork.rank))
        worker.agent.contribute(self._all_entered)

    def _all_entered(self) -> None:
        """In the driver, through which the ranks find each other: so nobody is in the function before all can be."""
        self._entered += 1
        if self._entered == self.world_size:
            for worker in self.workers:
                worker.agent.down(worker.agent.tell, self.attempt, "call")

    def call(self, worker: Worker) -> None:
        """The training function."""
        if not worker.runs:
            self._wait(worker, self.call)
            return
        fork, pace, node = worker.fork, self.world.pace, worker.agent.node
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
        took = self.world.draw(pace.enter) + (self.world.draw_slow(pace.restore) if fork.resume else 0.0)
        self.world.timeline.later(took, self._resume, worker)

    def _megascale(self, rank: int) -> dict[str, str]:
        """On slices the job is one of JAX, whose environment the runtime's own backend makes."""
        first = next(worker for worker in self.workers if worker.fork.rank == 0)
        environment = dict(INHERITED)
        at = jax.Coordination(first.agent.node.node_id, self.attempt, self.attempt)
        jax.with_slices(environment, at, rank, self.world_size, self.world.cluster.hosts)
        return environment

    def _wait(self, worker: Worker, again: Callable[[Worker], None]) -> None:
        """A frozen process goes on where it was once it thaws; a dead one does not."""
        if worker.alive and worker.agent.alive:
            self.world.timeline.later(0.5, again, worker)

    def _resume(self, worker: Worker) -> None:
        if not worker.runs:
            self._wait(worker, self._resume)
            return
        given = worker.fork.resume
        if given is None:
            worker.step, worker.digest = 0, chain.lineage(self.world.chain, 0)[0]
        else:
            try:
                found = self.world.checkpoints.restore(given)
            except NotRestored as error:
                # it waits in `get_checkpoint()` until it is killed
                fork = worker.fork
                worker.agent.up(ev.CheckpointCorrupt(fork.attempt, fork.rank, given.checkpoint, str(error)))
                return
            worker.step, worker.digest = found.step, found.digest
        worker.said = worker.step
        worker.writer.say(
            Resumed, term=self.term, attempt=self.attempt, rank=worker.fork.rank, step=worker.step, digest=worker.digest
        )
        worker.arrived = True
        if self.broken:
            self._break_off(worker)
        else:
            worker.agent.contribute(self._meet)

    def _meet(self) -> None:
        """In the driver again: rank 0 tells everybody where its collective is."""
        self._met += 1
        if self._met == self.world_size:
            self.world.timeline.later(self.world.draw(self.world.pace.join), self._join)

    def _join(self) -> None:
        if not self.broken and not self.stepping:
            self.stepping = True
            self._at = max(worker.step for worker in self.workers)
            self.go_on()

    # ---- stepping

    def go_on(self) -> None:
        """Plan the next step at which something happens."""
        if self._reporting:
            return
        self._turn += 1
        if self._stuck():
            return
        if self._owing:
            self._report_all()
        if self._stuck() or self._busy or self._owing or self._done:
            return
        if self._at >= self.world.chain.steps:
            self._return()
            return
        self._since_s = self.world.timeline.now
        self._next = self._next_step()
        took = (self._next - self._at) * self._step_s
        self.world.timeline.later(took, self._reach, self._next, self._turn)

    def _stuck(self) -> bool:
        return self.broken or not self.stepping or bool(self._halted)

    def plan_anew(self) -> None:
        if self.stepping and not self.broken and self.world.watched_step(self._at, self.world_size) is not None:
            self.interrupted()
            self.go_on()

    def _next_step(self) -> int:
        config, at = self.world.chain, self._at
        step = min((at // config.checkpoint_every + 1) * config.checkpoint_every, config.steps, at + self._most)
        watched = self.world.watched_step(at, self.world_size)
        if watched is not None and watched < step:
            step = watched
        if config.fail_at is not None and at < config.fail_at < step:
            step = config.fail_at
        if self._untold or any(worker.raises or worker.hangs for worker in self._asked):
            return at + 1
        if self._told:
            # Report indexes are steps, unless a worker resumed something else than the controller meant.
            told = ((index - worker.returned) for worker, indexes in self._told.items() for index in indexes)
            step = min(step, at + min((more for more in told if more > 0), default=step - at))
        return step

    def interrupted(self) -> None:
        """Somebody died or stopped: the others have come as far as time allowed, which none of them does halted."""
        if self._stuck() or self._reporting:
            return
        self._turn += 1
        if self._busy or self._owing or self._done:
            return
        done = self._at + max(0, math.floor((self.world.timeline.now - self._since_s) / self._step_s - 1e-9))
        done = min(done, self._next - 1)
        if done > self._at:
            before = self._at
            self._advance(done)
            for worker in self.workers:
                if worker.alive:
                    self._say(worker, checkpoint=False)
                    self._passed(worker, done - before)

    def _reach(self, step: int, turn: int) -> None:
        if turn != self._turn or self.broken:
            return
        config = self.world.chain
        for worker in self.workers:
            if step == config.fail_at and worker.fork.rank == config.fail_rank:
                self._raise(worker, f"PlannedFailure: rank {worker.fork.rank} fails at step {step}")
                return
        passed = step - self._at
        self._advance(step)
        self._owing = dict.fromkeys(self.workers, passed)
        for worker in self.workers:
            worker.requested = worker.returned + passed in self._told.get(worker, ())
        self._report_all()
        self.go_on()

    def _report_all(self) -> None:
        """Rank after rank: a trigger may come true in the middle, and its fault take or freeze one of us."""
        self._reporting = True
        for worker in self.workers:
            if worker in self._owing and worker.runs and not self.broken:
                self._report(worker, self._owing.pop(worker))
        self._reporting = False

    def _report(self, worker: Worker, passed: int) -> None:
        """One rank's `report()`: record, raise if asked to, hand a checkpoint over, return or wait."""
        config, fork, step = self.world.chain, worker.fork, worker.step
        index = worker.returned + passed
        due = step % config.checkpoint_every == 0 or step == config.steps or worker.requested
        gives = due and (fork.rank == 0 or config.sharded)
        self._say(worker, checkpoint=gives)
        if worker.gone():
            return
        if worker.raises:
            worker.raised = True
            self._raise(worker, "InjectedError: raise_in_worker")
            return
        worker.returned = index - 1
        if worker.hangs:
            worker.hangs, worker.hung = False, True
            self.halt(worker)
            return
        if gives:
            worker.writer.say(UploadStarted, term=self.term, attempt=self.attempt, rank=fork.rank, step=step)
            if worker.gone():
                return
        metrics = {"step": step, "digest": worker.digest, "rank": fork.rank}
        worker.agent.up(ev.ReportReceived(fork.attempt, fork.rank, index, metrics, uploading=gives))
        if gives:
            self._upload(worker, index, Content(step, worker.digest))
        else:
            self._try_return(worker, index)

    def _say(self, worker: Worker, *, checkpoint: bool) -> None:
        step, since = worker.step, worker.said + 1
        worker.said = step
        last = step == self.world.chain.steps
        metrics = {"step": step, "digest": worker.digest, "rank": worker.fork.rank} if last else None
        worker.writer.say(
            Stepped,
            term=self.term,
            attempt=self.attempt,
            rank=worker.fork.rank,
            step=step,
            world_size=worker.fork.world_size,
            digest=worker.digest,
            checkpoint=checkpoint,
            metrics=metrics,
            since=since if since < step else None,
        )

    def _advance(self, step: int) -> None:
        """The group gets to `step`. Everybody's state: what the lineage says where all are on it, else computed."""
        workers, known, before = self.workers, chain.lineage(self.world.chain, step), self._at
        self._at, self._since_s = step, self.world.timeline.now
        if all(w.step == before and w.digest == known[before] for w in workers):
            for worker in workers:
                worker.step, worker.digest = step, known[step]
            return
        for _ in range(step - before):
            parts = [
                chain.part(w.digest, w.step + 1, rank, len(workers), self.world.chain)
                for rank, w in enumerate(sorted(workers, key=lambda worker: worker.fork.rank))
            ]
            for worker in workers:
                worker.step += 1
                worker.digest = chain.combine(worker.digest, worker.step, parts, self.world.chain)

    # ---- uploads

    def _upload(self, worker: Worker, index: int, content: Content) -> None:
        worker.uploading = True
        self._busy.add(worker)
        name = checkpoint_name(index, self.term, self.attempt)
        self.world.records.points.passes(f"before the directory {name}")
        if worker.agent.gone():
            return
        self.world.checkpoints.begin(name)
        self.world.records.points.passes(f"after the directory {name}")
        took = self.world.draw_slow(self.world.pace.upload)
        self.world.timeline.later(took, self._uploaded, worker, index, name, content, self.world.timeline.now)

    def _uploaded(
        self, worker: Worker, index: int, name: str, content: Content, began_s: float, waited: bool = False
    ) -> None:
        """The agent uploads, so the worker may be dead by now, but not its agent."""
        agent, timeline = worker.agent, self.world.timeline
        if not agent.alive:
            return
        if agent.node.state == "frozen":
            timeline.later(0.5, self._uploaded, worker, index, name, content, began_s, waited)
            return
        path = self._file_of(worker)
        size = self.world.pace.checkpoint_bytes
        answer = Answer() if waited else self.world.records.hurt.ask("PUT", f"run/checkpoints/{name}/{path}", size)
        if answer.after_s:
            timeline.later(answer.after_s, self._uploaded, worker, index, name, content, began_s, True)
            return
        if answer.lost:
            self.world.checkpoints.upload(name, path, content)
        if answer.refused or answer.lost:
            agent.driver.retried.add(f"rank {worker.fork.rank}", {"upload": 1})
            if timeline.now - began_s > agent.driver.storage_outage_s:
                self._outage(worker, index, answer.refused)
            else:
                pause_s = self.world.draw((0.1, 1.0))
                timeline.later(pause_s, self._uploaded, worker, index, name, content, began_s)
            return
        self._stored(worker, index, name, content)

    def _file_of(self, worker: Worker) -> str:
        fork = worker.fork
        return f"state-{fork.rank}-of-{fork.world_size}.json" if self.world.chain.sharded else STATE_FILE

    def _outage(self, worker: Worker, index: int, why: str) -> None:
        """The run ends with it; the worker waits in its report until it is killed."""
        fork = worker.fork
        detail = f"{why}; the files lie in /staging on node {worker.agent.node.number}"
        worker.agent.up(ev.UploadFailed(fork.attempt, fork.rank, index, detail, outage=True))

    def _stored(self, worker: Worker, index: int, name: str, content: Content) -> None:
        agent, fork = worker.agent, worker.fork
        if self.world.rng.random() < self.world.chance.upload:
            self._upload_failed(worker, index)
            return
        path = self._file_of(worker)
        points = self.world.records.points
        points.passes(f"before {name}/{path}")
        if agent.gone():
            return
        if points.passes(f"torn {name}/{path}") and agent.gone():
            self.world.checkpoints.tear(name, path, content)
            return
        file = self.world.checkpoints.upload(name, path, content)
        points.passes(f"after {name}/{path}")
        if agent.gone():
            return
        agent.up(ev.UploadFinished(fork.attempt, fork.rank, index, (file,)))
        worker.uploading = False
        self._busy.discard(worker)
        if worker.alive and not self.broken:
            self._try_return(worker, index)
            self.go_on()

    def _upload_failed(self, worker: Worker, index: int) -> None:
        """The storage refused it for good: `report()` raises. Every other time the function takes that for bad luck and
        goes on: the index is consumed, and the rank has voted no."""
        worker.uploading = False
        fork = worker.fork
        worker.agent.up(ev.UploadFailed(fork.attempt, fork.rank, index, "the storage refuses it"))
        if not worker.alive:
            return
        self.world.refused += 1
        if self.broken or self.world.refused % 2:
            self.world.failed_by_itself(FailUpload.name, worker)
            self._raise(worker, "OSError: a checkpoint could not be uploaded: the storage refuses it")
        else:
            self._busy.discard(worker)
            self._try_return(worker, index, failed=True)
            self.go_on()

    # ---- returning from a report, and the hold

    def _passed(self, worker: Worker, reports: int) -> None:
        """So many plain reports: the agent passes the last one on."""
        worker.returned += reports
        metrics = {"step": worker.step, "digest": worker.digest, "rank": worker.fork.rank}
        worker.agent.up(ev.ReportReceived(self.attempt, worker.fork.rank, worker.returned, metrics))

    def _try_return(self, worker: Worker, index: int, *, failed: bool = False) -> None:
        """The session's rule (`runtime/session.py`)."""
        if worker.holding and index == worker.hold_at and not worker.reached:
            worker.reached = True
            worker.agent.up(ev.HoldReached(self.attempt, worker.fork.rank, index))
        may = not worker.holding or (worker.hold_at is not None and (failed or index != worker.hold_at))
        worker.blocked = not may
        if may:
            worker.returned = index
            self._busy.discard(worker)
        else:
            self._busy.add(worker)

    def hold(self, worker: Worker) -> None:
        worker.holding, worker.hold_at, worker.reached = True, None, False
        self._untold.add(worker)
        self.interrupted()
        worker.agent.up(ev.HoldAnswered(self.attempt, worker.fork.rank, worker.returned))
        self.go_on()

    def hold_until(self, worker: Worker, index: int) -> None:
        worker.hold_at = index
        self._untold.discard(worker)
        self._told.setdefault(worker, set()).add(index)
        self._heed(worker)

    def cancel_hold(self, worker: Worker) -> None:
        # what was requested stays so
        worker.holding, worker.hold_at = False, None
        self._untold.discard(worker)
        self._heed(worker)

    def _heed(self, worker: Worker) -> None:
        if worker.blocked:
            self._try_return(worker, worker.returned + 1)
        else:
            self.interrupted()
        self.go_on()

    # ---- the end

    def _return(self) -> None:
        for worker in self.workers:
            worker.finished = self._done = True
            worker.writer.say(WorkerFinished, term=self.term, attempt=self.attempt, rank=worker.fork.rank)
            worker.agent.up(ev.WorkerFinished(self.attempt, worker.fork.rank))
            worker.agent.died(worker, None)

    def _raise(self, worker: Worker, error: str) -> None:
        self.lose(worker)
        fork = worker.fork
        worker.agent.died(worker, ev.WorkerFailed(fork.attempt, fork.rank, error, error=f"Traceback\n{error}"))

    def kill(self, worker: Worker) -> None:
        """SIGKILL to the worker's process."""
        self.lose(worker)
        fork = worker.fork
        failure = ev.WorkerFailed(fork.attempt, fork.rank, "killed by SIGKILL", None, 9)
        worker.agent.died(worker, None if worker.finished else failure)

    def ask_to_raise(self, worker: Worker) -> None:
        worker.raises = True
        self._ask(worker)

    def ask_to_hang(self, worker: Worker) -> None:
        worker.hangs = True
        self._ask(worker)

    def _ask(self, worker: Worker) -> None:
        self._asked.append(worker)
        self.interrupted()
        self.go_on()

    def freeze(self, worker: Worker) -> None:
        worker.frozen = True
        self.halt(worker)

    def thaw(self, worker: Worker) -> None:
        worker.frozen = False
        self.thawed(worker)

    def halt(self, worker: Worker) -> None:
        """It, or its whole node, is stopped."""
        # which may have come true a trigger that thaws it again
        self.interrupted()
        if not worker.runs:
            self._halted.add(worker)

    def thawed(self, worker: Worker) -> None:
        if worker.runs:
            self._halted.discard(worker)
        self.go_on()

    def lose(self, worker: Worker) -> None:
        """The worker is gone. The peers notice when they next need it, some sooner, some later."""
        if not worker.alive:
            return
        if not worker.finished:
            self.interrupted()
        worker.alive = False
        if self.broken or worker.finished:
            return
        self.broken = True
        for peer in self.workers:
            if peer.alive and peer.called and not peer.finished:
                self.world.timeline.later(self.world.draw(self.world.pace.echo), self._break_off, peer)

    def _break_off(self, worker: Worker) -> None:
        """The collective of a peer is broken; who waits inside a report notices only after it."""
        if not worker.alive or worker.blocked or worker.uploading or worker.finished or not worker.arrived:
            return
        if not worker.runs:
            self._wait(worker, self._break_off)
            return
        worker.alive = False
        fork = worker.fork
        failure = ev.WorkerFailed(
            fork.attempt,
            fork.rank,
            "ConnectionError: a peer is gone",
            error="Traceback\nConnectionError: a peer is gone",
            collateral=True,
        )
        worker.agent.died(worker, failure)
