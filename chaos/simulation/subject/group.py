"""The workers of one attempt, stepping together through the hash-chain job.

Every step ends in a collective, so the group moves as one: from one step at which something happens (a checkpoint, a
hold, the end, a step that a trigger waits for) straight to the next. The steps between are recorded as one event that
stands for all of them (`Stepped.since`).
"""

from __future__ import annotations

import math

from shaketable.chaos import chain
from shaketable.chaos.history.events import Stepped, UploadStarted, WorkerFinished
from shaketable.chaos.simulation.subject.agent import Worker
from shaketable.chaos.simulation.subject.joining import Joining, wait
from shaketable.chaos.simulation.subject.storage import Content
from shaketable.chaos.simulation.subject.uploads import Uploads
from shaketable.chaos.simulation.subject.world import World
from shaketable.runtime.controller import events as ev


class WorkerGroup:
    def __init__(self, world: World, term: int, attempt: int, world_size: int) -> None:
        self.world, self.term, self.attempt, self.world_size = world, term, attempt, world_size
        self.workers: list[Worker] = []
        self.joining, self.uploads = Joining(self), Uploads(self)
        self.broken = False
        # everybody has arrived at the collective
        self.stepping = False
        # the last step that everybody has done and returned from
        self._at = 0
        # in the middle of it
        self._reporting = False
        # some rank has returned from the function
        self._done = False
        # frozen, or on a frozen node
        self._halted: set[Worker] = set()
        # inside a report: uploading, or held
        self.busy: set[Worker] = set()
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
            self.joining.fetch(worker, worker.fork.resume)

    def call(self, worker: Worker) -> None:
        """The driver says that all ranks are there."""
        self.joining.call(worker)

    def join(self) -> None:
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
        if self._stuck() or self.busy or self._owing or self._done:
            return
        if self._at >= self.world.chain.steps or self._leaves():
            self._return()
            return
        self._since_s = self.world.timeline.now
        self._next = self._next_step()
        took = (self._next - self._at) * self._step_s
        self.world.timeline.later(took, self._reach, self._next, self._turn)

    def _leaves(self) -> bool:
        """The job returns once it has saved what a notice asked for (`return_on_notice`)."""
        return self.world.chain.return_on_notice and any(worker.requested for worker in self.workers)

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
        if self.busy or self._owing or self._done:
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
                self.fail(worker, f"PlannedFailure: rank {worker.fork.rank} fails at step {step}")
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
            self.fail(worker, "InjectedError: raise_in_worker")
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
            self.uploads.begin(worker, index, Content(step, worker.digest))
        else:
            self.try_return(worker, index)

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

    # ---- returning from a report, and the hold

    def _passed(self, worker: Worker, reports: int) -> None:
        """So many plain reports: the agent passes the last one on."""
        worker.returned += reports
        metrics = {"step": worker.step, "digest": worker.digest, "rank": worker.fork.rank}
        worker.agent.up(ev.ReportReceived(self.attempt, worker.fork.rank, worker.returned, metrics))

    def try_return(self, worker: Worker, index: int, *, failed: bool = False) -> None:
        """The session's rule (`runtime/session.py`)."""
        if worker.holding and index == worker.hold_at and not worker.reached:
            worker.reached = True
            worker.agent.up(ev.HoldReached(self.attempt, worker.fork.rank, index))
        may = not worker.holding or (worker.hold_at is not None and (failed or index != worker.hold_at))
        worker.blocked = not may
        if may:
            worker.returned = index
            self.busy.discard(worker)
        else:
            self.busy.add(worker)

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
            self.try_return(worker, worker.returned + 1)
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

    def fail(self, worker: Worker, error: str) -> None:
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

    def slow_down(self, worker: Worker, factor: float) -> None:
        """All wait for the slowest of them."""
        self.interrupted()
        worker.factor = factor
        self._step_s = self.world.chain.pace_s(self.world_size) * max(each.factor for each in self.workers)
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
                self.world.timeline.later(self.world.draw(self.world.pace.echo), self.break_off, peer)

    def break_off(self, worker: Worker) -> None:
        """The collective of a peer is broken; who waits inside a report notices only after it."""
        if not worker.alive or worker.blocked or worker.uploading or worker.finished or not worker.arrived:
            return
        if not worker.runs:
            wait(worker, self.break_off)
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
