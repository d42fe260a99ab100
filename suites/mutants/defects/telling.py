"""What workers and agents say to each other and to the driver: left out, said too early, or said wrong."""

from __future__ import annotations

from typing import Any

from shaketable.suites.mutants.defining import defect, replace

BUDGET, LIVE, RESUME, SAMPLES = "failure-budget", "liveness", "resume-from-checkpoint", "sample-accounting"


# ---- the session, in the worker


@defect("session", "durability", RESUME, "runtime", experiment="worker-crash", tried="processes", within_s=60)
def reports_numbered_from_1(session: Any) -> None:
    """a worker that resumes numbers its reports from 1 again"""

    def make(original: Any) -> Any:
        def begin(self: Any, channel: Any, task: Any) -> None:
            original(self, channel, task)
            self._returned = 0

        return begin

    replace(session.Session, "__init__", make)


@defect("session", "truthful-ending", SAMPLES, experiment="worker-crash", tried="processes")
def metrics_of_the_report_before(session: Any) -> None:
    """each report tells the metrics of the one before it"""

    def make(original: Any) -> Any:
        def hand_over(self: Any, index: int, metrics: Any, given: Any, how: Any) -> None:
            before = getattr(self, "_told", metrics)
            self._told = metrics
            original(self, index, before, given, how)

        return hand_over

    replace(session.Session, "_hand_over", make)


@defect("session", "truthful-ending", experiment="worker-crash", tried="processes", within_s=60)
def checkpoints_not_handed_over(session: Any) -> None:
    """report() forgets its checkpoint"""

    def make(original: Any) -> Any:
        def hand_over(self: Any, index: int, metrics: Any, given: Any, how: Any) -> None:
            original(self, index, metrics, None, how)

        return hand_over

    replace(session.Session, "_hand_over", make)


# ---- the worker


@defect("agent.worker", BUDGET, "truthful-ending", LIVE, experiment="worker-crash", tried="processes", within_s=60)
def finished_without_a_word(worker: Any) -> None:
    """a worker that comes to the end of the function just exits"""

    def make(original: Any) -> Any:
        def send(self: Any, message: Any) -> None:
            if not isinstance(message, worker.msg.WorkerFinished):
                original(self, message)

        return send

    replace(worker.session.Session, "send", make)


@defect("agent.worker", SAMPLES, "truthful-ending", BUDGET, experiment="worker-exception", tried="processes")
def error_called_an_end(worker: Any) -> None:
    """a worker whose function raises says that it has finished"""

    def make(original: Any) -> Any:
        def failed(ours: Any, error: Any, detail: str, **signs: bool) -> int:
            ours.send(worker.msg.WorkerFinished(attempt=ours.context.attempt, rank=ours.context.rank))
            return 0

        return failed

    replace(worker, "_failed", make)


@defect("agent.worker", BUDGET, experiment="worker-exception", tried="processes")
def error_called_a_death(worker: Any) -> None:
    """a worker whose function raises just dies"""

    def make(original: Any) -> Any:
        def failed(ours: Any, error: Any, detail: str, **signs: bool) -> int:
            worker.os.kill(worker.os.getpid(), worker.signal.SIGKILL)
            return 1

        return failed

    replace(worker, "_failed", make)


METRICS = "runtime/test_metrics.py::"


@defect("log.metrics", tests=METRICS + "test_nan_comes_back_wherever_it_is")
def nan_recorded_as_null(metrics: Any) -> None:
    """a metric that is not a number is recorded as null"""

    def make(original: Any) -> Any:
        def recorded(value: Any, name: str) -> Any:
            return None if isinstance(value, float) and value != value else original(value, name)

        return recorded

    replace(metrics, "_recorded", make)


@defect("log.metrics", tests=METRICS + "test_what_would_not_come_back_is_refused_by_its_name")
def any_report_is_recorded(metrics: Any) -> None:
    """a report of a list, or of nothing, is sent to the driver as it is"""
    replace(metrics, "encode", lambda original: lambda value: metrics.msgspec.json.encode(value))
