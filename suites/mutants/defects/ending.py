"""How a run ends, and what it says of that."""

from __future__ import annotations

from typing import Any

import msgspec

from shaketable.suites.mutants.defining import defect, replace, replace_item

TRUTHFUL = "truthful-ending"


@defect("controller.handlers.leasing", TRUTHFUL, experiment="worker-crash-beyond-budget")
def success_on_failure(leasing: Any) -> None:
    """fit() returns a result although the run has failed"""
    _say_instead(leasing, "failed", "finished")


@defect("controller.handlers.leasing", TRUTHFUL, experiment="driver-sigterm")
def interrupt_called_a_failure(leasing: Any) -> None:
    """a run that SIGTERM interrupted reports a failure"""
    _say_instead(leasing, "interrupted", "failed")


@defect("controller.handlers.leasing", TRUTHFUL, experiment="worker-crash-beyond-budget")
def failure_not_recorded(leasing: Any) -> None:
    """a run with a spent budget ends without a record"""
    replace(leasing, "fail", lambda original: lambda m, error: leasing.finish(m, "failed", error))


@defect("controller.attempt", TRUTHFUL)
def finished_with_the_first_rank(attempt: Any) -> None:
    """a run counts as finished when its first rank has returned and the others are gone"""
    replace(attempt.Attempt, "all_finished", lambda original: property(lambda self: self.any_finished))
    replace(
        attempt.Attempt, "all_stopped", lambda original: property(lambda self: original.fget(self) or self.any_finished)
    )


@defect("controller.following", TRUTHFUL)
def refused_checkpoints_not_named(following: Any) -> None:
    """a finished run does not say which of its checkpoints were never committed"""

    def make(original: Any) -> Any:
        def finish(m: Any) -> None:
            m.live.uncommitted.clear()
            original.then(m)

        return original._replace(then=finish)

    replace_item(following.FOLLOWING, "all returned", make)


def _say_instead(leasing: Any, truth: str, lie: str) -> None:
    def make(original: Any) -> Any:
        def finish(m: Any, *arguments: Any, **known: Any) -> None:
            original(m, *arguments, **known)
            end = m.commands[-1]
            if end.outcome == truth:
                m.commands[-1] = msgspec.structs.replace(end, outcome=lie)

        return finish

    replace(leasing, "finish", make)


@defect("controller.handlers.commits", TRUTHFUL, experiment="worker-crash")
def commits_with_the_metrics_before(commits: Any) -> None:
    """a commit is recorded with the metrics of the commit before it"""

    def make(original: Any) -> Any:
        def commit(m: Any, index: int) -> None:
            candidate, latest = m.live.candidates[index], m.run.latest
            candidate.metrics = latest.metrics if latest is not None else candidate.metrics
            original(m, index)

        return commit

    replace(commits, "_commit", make)


@defect("controller.attempt", TRUTHFUL, experiment="spare-node")
def metrics_of_any_rank(attempt: Any) -> None:
    """the metrics of the run are those of the rank that reported last"""

    def make(original: Any) -> Any:
        def reported(of: Any, rank: int, index: int, metrics: Any, *, uploading: bool) -> None:
            original(of, rank, index, metrics, uploading=uploading)
            of.last_metrics = metrics

        return reported

    replace(attempt, "reported", make)


@defect("controller.attempt", TRUTHFUL)
def commits_with_the_metrics_of_any_rank(attempt: Any) -> None:
    """a commit is recorded with the metrics of the rank that reported it last"""

    def make(original: Any) -> Any:
        def reported(of: Any, rank: int, index: int, metrics: Any, *, uploading: bool) -> None:
            original(of, rank, index, metrics, uploading=uploading)
            if index in of.candidates:
                of.candidates[index].metrics = metrics

        return reported

    replace(attempt, "reported", make)


@defect("log.run_log", TRUTHFUL, experiment="worker-crash")
def budgets_recorded_as_0(runlog: Any) -> None:
    """the record of a driver has budgets of 0, whatever it was given"""

    def make(original: Any) -> Any:
        def opening(*known: Any) -> Any:
            record = original(*known)
            if record is None:
                return None
            said = {key: 0 if key.startswith("max_") else value for key, value in record.configuration.items()}
            return msgspec.structs.replace(record, configuration=said)

        return opening

    replace(runlog, "_opening", make)


@defect(
    "agent.worker",
    tests="runtime/test_runtime_without_ray.py::test_a_rank_that_raises_loses_no_report_that_the_others_are_about_to_make",
)
def error_told_before_the_last_reports(worker: Any) -> None:
    """a rank that raises ends the attempt before its peers have made the reports that it has made"""
    replace(worker, "_LAST_REPORTS_S", lambda original: 0.0)
