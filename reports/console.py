"""What the terminal shows: one line per experiment, and in a real terminal a live line for what is running.

Lines are plain text wherever the output is not a terminal, so that a log file or a CI page holds no escape codes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from rich.console import Console as RichConsole
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from shaketable.reports import results
from shaketable.reports.results import KnownDeviation, Result, Run

STYLES = {
    "PASS": "green",
    "KNOWN": "cyan",
    "GREEN": "bold green",
    "INVALID": "yellow",
    "FAIL": "bold red",
    "ERROR": "bold magenta",
    "RED": "bold red",
    "INTERRUPTED": "bold yellow",
}
REFRESH_PER_SECOND = 8
PROGRESS_EVERY_S = 10.0
# a new phase is told of so soon
LOOK_EVERY_S = 1.0
# of a table; a terminal wraps what it cannot show
MOST_COLUMNS = 500
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def header(run: Run, subject: str, cluster: str, nodes: Sequence[int]) -> str:
    """`shaketable 0.1.0 · ray 2.60.0 · bundled on local (4 nodes) · seed 20261121`; nodes count the head."""
    biggest = max(nodes, default=0) + 1
    size = f"{'up to ' if len(set(nodes)) > 1 else ''}{biggest} nodes"
    seed = "seeds from the files" if run.seed is None else f"seed {run.seed}"
    return f"shaketable {run.shaketable} · ray {run.ray} · {subject} on {cluster} ({size}) · {seed}"


def verdict_line(result: Result, width: int) -> str:
    """`PASS     worker-crash    4.1 s  resumed at 12 from commit 11; ...`"""
    return f"{result.verdict:<8} {result.name:<{width}} {result.seconds:>6.1f} s  {result.reason}".rstrip()


def detail_lines(result: Result) -> list[str]:
    """The indented lines below a verdict that somebody has to act on."""
    notes = [f"  limit      {said}" for said in result.exceeded] + [f"  note       {note}" for note in result.notes]
    notes += [f"  retried    it was INVALID: {reason}" for reason in result.invalid_before]
    # of a job that ran once or twice before
    if "baseline" in result.took:
        notes.append(f"  took       {', '.join(f'{name} {seconds:.1f} s' for name, seconds in result.took.items())}")
    if result.verdict == "PASS":
        return notes
    known = [f"  known      {one.invariant}: {_because(one)}" for one in result.deviations]
    if result.verdict == "KNOWN":
        return known + notes
    lines = [f"  landed     {line}" for line in result.landed] + known + notes
    lines += [f"  output     {line}" for line in result.output]
    if result.verdict == "ERROR":
        lines.append(f"  {results.NOT_YOUR_JOB}; traceback in {result.traceback}")
    return [*lines, f"  reproduce  {result.reproduce}"] if result.reproduce else lines


def _because(known: KnownDeviation) -> str:
    return f"{known.reason} ({known.issue})" if known.issue else known.reason


def canary_line(run: Run) -> str:
    """`canary   resume-from-scratch: caught by resume-from-checkpoint`, or what is wrong with the canary."""
    problem = results.canary_problem(run)
    if problem:
        return f"canary   {problem} ({results.NOT_YOUR_JOB})"
    return f"canary   {run.canary.mutant}: caught by {run.canary.caught_by}" if run.canary else ""


def last_line(run: Run, report: str) -> str:
    """`GREEN  15 passed in 4 min 12 s   shaketable-results/latest/report.html`"""
    took = f" in {results.duration(run.seconds)}" if run.seconds else ""
    return f"{results.colour(run)}  {results.tally(run)}{took}" + (f"   {report}" if report else "")


class _Terminal(RichConsole):
    """Goes silent where nobody reads any more (`shaketable run | head -1`): the run goes on to its end."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)


class Console:
    """Prints as results come in. `last_event(name)` says in a few words what a running experiment did last, and
    `phase(name)` what it is waiting for. `total`: how many results are to come. `quiet`: only what somebody has to act
    on, and the last line. Where there is no terminal, a line every `every_s` seconds says how far it is, and where a
    single experiment runs, another one says what each of its phases is."""

    def __init__(
        self,
        out: TextIO,
        width: int = 0,
        last_event: Callable[[str], str] = lambda name: "",
        phase: Callable[[str], str] = lambda name: "",
        *,
        total: int = 0,
        quiet: bool = False,
        every_s: float = PROGRESS_EVERY_S,
    ) -> None:
        self._tty = out.isatty() and os.environ.get("TERM") != "dumb"
        forced = bool(os.environ.get("FORCE_COLOR"))
        plain = "NO_COLOR" in os.environ or not (self._tty or forced)
        self._rich = _Terminal(
            file=out,
            force_terminal=self._tty or forced,
            color_system=None if plain else "auto" if self._tty else "standard",
            no_color=plain,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._width, self._last_event, self._phase = width, last_event, phase
        self._total, self._quiet, self._every_s = total, quiet, every_s
        self._began_s, self._done = time.monotonic(), 0
        self._over = threading.Event()
        self._running: dict[str, float] = {}
        self._told: dict[tuple[str, tuple[str, ...]], str] = {}
        self._lock = threading.Lock()
        self._teller: threading.Thread | None = None
        self._live: Live | None = None

    def note(self, text: str) -> None:
        """A line that nobody has to act on."""
        if not self._quiet:
            self.line(text)

    def line(self, text: str) -> None:
        """One line of output, never wrapped; its first word is coloured when it is a verdict."""
        first = text.partition(" ")[0]
        styled = Text(text, end="")
        styled.stylize(STYLES.get(first, "dim" if text.startswith("  ") else ""), 0, _span(text, first))
        self._rich.print(styled, soft_wrap=True)

    def table(self, table: Table) -> None:
        """As wide as it has to be: a log file or a CI page has no width."""
        width, self._rich.width = self._rich.width, MOST_COLUMNS
        self._rich.print(table)
        self._rich.width = width

    def started(self, name: str) -> None:
        with self._lock:
            self._running[name] = time.monotonic()

    def finished(self, name: str, result: Result) -> None:
        """`name` is what `started` was called with; the result of a second one of that name has another."""
        with self._lock:
            self._running.pop(name, None)
            self._done += 1
        if self._quiet and result.verdict in ("PASS", "KNOWN") and not result.exceeded:
            return
        # it has its own line, after all others
        if result.canary:
            return
        for line in self._lines(result):
            self.line(line)

    def _lines(self, result: Result) -> list[str]:
        """A job that does not even work without faults is told about once."""
        if not result.output:
            return [verdict_line(result, self._width), *detail_lines(result)]
        first = self._told.setdefault((result.reason, result.output), result.name)
        if first == result.name:
            return [verdict_line(result, self._width), *detail_lines(result)]
        return [verdict_line(replace(result, reason=f"as {first}"), self._width)]

    def __enter__(self) -> Console:
        self._began_s = time.monotonic()
        if self._quiet:
            return self
        if not self._tty:
            self._over.clear()
            self._teller = threading.Thread(target=self._tell, name="progress", daemon=True)
            self._teller.start()
        else:
            self._live = Live(
                console=self._rich,
                get_renderable=self._progress,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                refresh_per_second=REFRESH_PER_SECOND,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._teller is not None:
            # nothing is told behind the end
            self._teller.join()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _tell(self) -> None:
        told_s, before = time.monotonic(), ""
        while not self._over.wait(min(LOOK_EVERY_S, self._every_s)):
            with self._lock:
                running = dict(self._running)
            phase = next(map(self._phase, running), "") if self._total == 1 else ""
            if phase not in ("", before):
                self.line(f"  progress   {phase}")
            before = phase
            if time.monotonic() - told_s >= self._every_s:
                told = [self._running_words(name, since) for name, since in running.items()]
                self.line("; ".join([f"  progress   {self._far()}", *told]))
                told_s = time.monotonic()

    def _running_words(self, name: str, since: float) -> str:
        return f"{name} {time.monotonic() - since:.0f} s {self._last_event(name)}".rstrip()

    def _far(self) -> str:
        """`7 of 22, about 3 min 20 s left`: at the pace so far."""
        done, took_s = self._done, time.monotonic() - self._began_s
        said = f"{done} of {self._total}" if self._total else f"{done} done"
        if not done or done >= self._total:
            return said
        return f"{said}, about {results.duration(took_s / done * (self._total - done))} left"

    def _progress(self) -> RenderableType:
        with self._lock:
            running = dict(self._running)
        lines = [self._running_line(name, since) for name, since in running.items()]
        return Group(*lines, *([Text(self._far(), style="dim")] if self._total > 1 else []))

    def _running_line(self, name: str, since: float) -> Text:
        running_s = time.monotonic() - since
        frame = FRAMES[int(running_s * REFRESH_PER_SECOND) % len(FRAMES)]
        text = Text(f"{frame} {name:<{self._width}}  {running_s:>6.1f} s  ", no_wrap=True, overflow="ellipsis")
        return text.append(self._last_event(name), style="dim")


def _span(text: str, first: str) -> int:
    return len(text) if text.startswith("  ") else len(first)


def shown(path: Path) -> str:
    """`path` as one would type it here: relative when it lies below the working directory."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path.absolute())
