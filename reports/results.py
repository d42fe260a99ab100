"""What one `shaketable run` (or `judge`) came to, as values: the console, JUnit, JSON and HTML are views of these.

A `Result` is one experiment, a `Run` is all of them with their canary. The exit code is a pure function of the run,
so that no view can disagree with another about what was red.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Literal

from shaketable.chaos.plan import Finding
from shaketable.chaos.verdict.recoveries import Recovery
from shaketable.reports.cost import OnTier
from shaketable.reports.goodput import Goodput

# Of the JSON that is written, published in docs/schema/. A new field leaves it as it is; one that goes, or that means
# something else, makes it the next.
SCHEMA = 1
# KNOWN: it fails by exactly what is recorded of its subject. ERROR: the harness itself broke, in suites or chaos.
ResultVerdict = Literal["PASS", "KNOWN", "FAIL", "INVALID", "ERROR"]

EXIT_PASS, EXIT_FAIL, EXIT_USAGE, EXIT_INVALID, EXIT_HARNESS, EXIT_INTERRUPTED = 0, 1, 2, 3, 4, 130
NOT_YOUR_JOB = "this is a bug in shaketable, not in your job"


@dataclass(frozen=True, slots=True)
class KnownDeviation:
    """One that was recorded and did occur: what was `seen` this time, why the subject does so, and where that is
    discussed in public."""

    invariant: str
    seen: str
    reason: str
    issue: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """One experiment. `folder` is relative to the results directory, so that the whole of it can be moved.
    The `canary` runs with a `mutant` loaded: it is right when the verdict is FAIL by the invariant `must_fail`."""

    name: str
    verdict: ResultVerdict
    reason: str
    seconds: float
    folder: str
    title: str = ""
    subject: str = ""
    cluster: str = ""
    nodes: int = 0
    seed: int = 0
    tags: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    landed: tuple[str, ...] = ()
    # the last lines of a job that does not even work without faults
    output: tuple[str, ...] = ()
    reproduce: str = ""
    # a file in the results directory, for ERROR
    traceback: str = ""
    canary: bool = False
    mutant: str = ""
    must_fail: str = ""
    deviations: tuple[KnownDeviation, ...] = ()
    # where its time went; None where it never started to train
    goodput: Goodput | None = None
    # what each fault cost
    recoveries: tuple[Recovery, ...] = ()
    # limits of speed that were exceeded; the verdict says nothing of them
    exceeded: tuple[str, ...] = ()
    # what somebody should know besides the verdict
    notes: tuple[str, ...] = ()
    # what each tier of capacity took, where the run has tiers
    tiers: tuple[OnTier, ...] = ()
    # what the history alone came to, where known deviations made another of it
    judged: ResultVerdict | Literal[""] = ""
    # The experiment's name, and which of its repeats this is, from 1. The results of a repeated one are numbered.
    experiment: str = ""
    repeat: int = 1
    # seconds of each phase, by name, in their order: the cluster, the baseline, the run, ...
    took: dict[str, float] = field(default_factory=dict)
    # reasons of tries before this one, which were INVALID (--retry-invalid)
    invalid_before: tuple[str, ...] = ()

    @property
    def caught_by(self) -> str:
        """For a canary: the invariant that caught its mutant, or nothing."""
        failed = {finding.invariant for finding in self.findings if finding.status == "FAIL"}
        return self.must_fail if self.verdict == "FAIL" and self.must_fail in failed else ""


@dataclass(frozen=True, slots=True)
class Run:
    """Everything of one invocation. `errors` are harness errors that belong to no experiment."""

    shaketable: str
    ray: str
    seed: int | None
    # local time, ISO 8601
    started: str
    seconds: float = 0.0
    results: tuple[Result, ...] = ()
    canary: Result | None = None
    canary_expected: bool = False
    not_run: tuple[str, ...] = ()
    interrupted: bool = False
    errors: tuple[str, ...] = ()
    # by --fail-fast
    stopped: bool = False
    # where it exceeds the limit of a comparison (`--max-slower`)
    beyond: tuple[str, ...] = ()
    schema: int = SCHEMA

    def with_result(self, result: Result) -> Run:
        if result.canary:
            return replace(self, canary=result)
        return replace(self, results=(*self.results, result))

    def count(self, verdict: ResultVerdict) -> int:
        return sum(result.verdict == verdict for result in self.results)


@dataclass(frozen=True, slots=True)
class Written(Run):
    """The run as it is written for programs, with what follows from it. The JSON schema is that of this class."""

    colour: Literal["GREEN", "RED", "INTERRUPTED"] = "GREEN"
    exit_code: int = 0


def written(run: Run) -> Written:
    told = {each.name: getattr(run, each.name) for each in fields(run)}
    return Written(**told, colour=colour(run), exit_code=exit_code(run))


def canary_problem(run: Run) -> str:
    """Why the canary says that the harness cannot be trusted; empty when it was caught, or none was asked for."""
    if run.canary is None:
        return "the canary never ran" if run.canary_expected and not (run.interrupted or run.stopped) else ""
    if run.canary.caught_by:
        return ""
    mutant, must_fail = run.canary.mutant, run.canary.must_fail
    return f"{mutant}: NOT caught by {must_fail}: {run.canary.verdict} {run.canary.reason}"


def exit_code(run: Run) -> int:
    """0 pass, 1 fail, 3 invalid, 4 harness error, 130 interrupted. An untrustworthy harness outranks its verdicts."""
    if run.interrupted:
        return EXIT_INTERRUPTED
    if run.errors or run.count("ERROR") or canary_problem(run):
        return EXIT_HARNESS
    if run.count("FAIL") or run.beyond or slow(run):
        return EXIT_FAIL
    return EXIT_INVALID if run.count("INVALID") else EXIT_PASS


def slow(run: Run) -> int:
    """How many experiments were right, and exceeded a limit of speed."""
    return sum(bool(result.exceeded) and result.verdict in ("PASS", "KNOWN") for result in run.results)


def colour(run: Run) -> Literal["GREEN", "RED", "INTERRUPTED"]:
    """The one word of the last line. Whatever is not a pass is red."""
    code = exit_code(run)
    return "INTERRUPTED" if code == EXIT_INTERRUPTED else "RED" if code else "GREEN"


def tally(run: Run) -> str:
    """`13 passed, 2 with known deviations, 1 failed`: zero counts are left out, but for passes if that is all."""
    words = [
        (run.count("PASS"), "passed"),
        (run.count("KNOWN"), "with known deviations"),
        (run.count("FAIL"), "failed"),
        (run.count("INVALID"), "invalid"),
        (run.count("ERROR") + len(run.errors) + bool(canary_problem(run)), "harness error"),
        (len(run.not_run), "not run"),
        (slow(run), "beyond a limit of speed"),
        (len(run.beyond), "beyond --max-slower"),
    ]
    said = [f"{count} {word}" for count, word in words if count]
    return ", ".join(said) or "0 passed"


def duration(seconds: float) -> str:
    """`4 min 12 s`, `41 s`, `4.1 s`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
