"""What is done, when, and by whom it is waited for."""

from __future__ import annotations

from typing import Any

from shaketable.suites.mutants.defining import defect, replace, replace_item

LIVE = "liveness"


@defect("driver.pipeline", "world-size-bounds", "truthful-ending", "single-writer")
def done_before_it_is_recorded(pipeline: Any) -> None:
    """commands are executed before the records that precede them are durable"""

    def make(original: Any) -> Any:
        def run(self: Any) -> None:
            queue = self._commands
            for command in [c for c in queue if not isinstance(c, pipeline.ev.AppendRecord)]:
                if command in queue and not isinstance(command, pipeline.ev.FinishRun):
                    queue.remove(command)
                    self._execute(command)
            original(self)

        return run

    replace(pipeline.Pipeline, "run", make)


@defect("driver.pipeline", "truthful-ending", "world-size-bounds", "single-writer", experiment="two-drivers")
def done_though_not_recorded(pipeline: Any) -> None:
    """commands that wait for a record are executed although the record cannot be written"""
    replace(pipeline.Pipeline, "log_failed", lambda original: lambda self: setattr(self, "_appending", False))


@defect("controller.handlers.endings", LIVE)
def stop_not_passed_on(endings: Any) -> None:
    """workers of an ended attempt are not told to stop"""

    def make(original: Any) -> Any:
        def stop(m: Any) -> None:
            original(m)
            m.commands[:] = [c for c in m.commands if not isinstance(c, endings.ev.StopAttempt)]

        return stop

    replace(endings, "stop", make)


@defect("controller.core", LIVE, experiment="worker-crash", within_s=60)
def stop_not_noticed(core: Any) -> None:
    """the controller ignores that the last worker of an attempt has stopped"""

    def make(original: Any) -> Any:
        def stopped(m: Any, event: Any) -> None:
            if m.state is not core.STOPPING:
                original(m, event)

        return stopped

    replace_item(core.HANDLERS, core.ev.WorkersStopped, make)


@defect("controller.handlers.hosts", LIVE, experiment="node-sigkill")
def lost_member_not_noticed(hosts: Any) -> None:
    """an attempt keeps waiting for a rank whose agent is lost"""
    replace(hosts, "_member_lost", lambda original: lambda m, rank, detail: None)


@defect("controller.handlers.starting", "world-size-bounds", LIVE)
def one_rank_never_forked(starting: Any) -> None:
    """the last rank of a large attempt is not forked"""

    def make(original: Any) -> Any:
        def start(m: Any, decision: Any) -> None:
            original(m, decision)
            for place, command in enumerate(m.commands):
                if isinstance(command, starting.ev.StartAttempt) and len(command.members) > 2:
                    values = (command.attempt, command.members[:-1], command.resume, command.first_index)
                    m.commands[place] = starting.ev.StartAttempt(*values)

        return start

    replace(starting, "_start", make)
