"""Mutants that nobody has thought of: the operators of cosmic-ray (an `==` becomes `!=`, a number one more, a condition
is denied, an `except` catches nothing) at places of the runtime drawn by chance. Each is tried on the unit tests of its
room and on schedules of the exploration, in a copy of the project.
"""

from __future__ import annotations

import ast
import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

from shaketable.clusters import marked

ROOT = Path(__file__).resolve().parents[2]
TESTS = Path("src/shaketable/suites/tests")
# what a copy needs: the package, and what its tests read besides
COPIED = ("runtime", "chaos", "clusters", "reports", "suites", "src", "docs", "pyproject.toml", "README.md")
SCHEDULES = 500
# in a copy: what the last stage has printed
SAID = "said.txt"
# It goes on for ever, if it takes that many times what the sound runtime takes, and this long at least.
TIMES_AS_LONG, LEAST_S = 5.0, 60.0
KilledBy = Literal["tests", "schedules", "time", ""]


@dataclass(frozen=True, slots=True)
class Room:
    """`tests`: patterns of test files, the quick ones first. `schedules`: whether the simulation executes the room.
    `goal`: the part that is to be killed."""

    files: tuple[str, ...]
    tests: tuple[str, ...]
    schedules: bool
    goal: float


ROOMS: Mapping[str, Room] = {
    "controller": Room(
        ("runtime/controller/**/*.py",),
        (
            *("runtime/test_controller.py", "runtime/test_controller_[!s]*.py", "runtime/test_attempt_given_up.py"),
            *("runtime/test_node_quarantine.py", "runtime/test_slices_controller.py", "runtime/test_*_properties.py"),
            *("runtime/test_controller_seldom.py", "chaos/test_budget_*.py"),
        ),
        True,
        0.9,
    ),
    "log": Room(
        ("runtime/log/*.py",),
        (
            *("runtime/test_fold*.py", "runtime/test_trail.py", "runtime/test_metrics.py", "runtime/test_redaction.py"),
            *("runtime/test_runlog_append.py", "runtime/test_runlog_open.py", "runtime/test_snapshots.py"),
            *("runtime/test_unfit_nodes.py", "runtime/test_power_loss.py", "runtime/test_crash_points.py"),
            "suites/test_project_settings.py",
        ),
        True,
        0.9,
    ),
    "checkpoints": Room(
        ("runtime/checkpoints/*.py",),
        (
            *("runtime/test_checkpoint_quarantine.py", "runtime/test_checkpoint_metadata.py"),
            *("runtime/test_checkpoints_*.py", "runtime/test_collection.py", "runtime/test_unfit_nodes.py"),
            *("runtime/test_power_loss.py", "runtime/test_crash_points.py", "runtime/test_objects_s3.py"),
        ),
        True,
        0.9,
    ),
    "agent": Room(
        ("runtime/agent/*.py",),
        (
            *("runtime/test_forkserver.py", "runtime/test_process_node.py", "runtime/test_runtime_stacks.py"),
            *("runtime/test_unfit_nodes.py", "runtime/test_ghosts.py", "runtime/test_runtime_without_ray.py"),
            *("runtime/test_runtime_on_processes.py", "runtime/test_unfit_nodes_run.py"),
        ),
        False,
        0.8,
    ),
    "session": Room(
        ("runtime/session.py", "runtime/handover.py", "runtime/context.py", "runtime/checkpoint.py"),
        (
            *("runtime/test_session_*.py", "runtime/test_user_callback.py", "runtime/test_checkpoint_metadata.py"),
            *("runtime/test_runtime_without_ray.py", "runtime/test_runtime_on_processes.py"),
        ),
        False,
        0.8,
    ),
}


@dataclass(frozen=True, slots=True)
class Change:
    """One place of one file, and what it becomes. `operator`: cosmic-ray's name of it."""

    room: str
    file: str
    line: int
    operator: str
    text: str

    def shown(self) -> str:
        """The lines that differ."""
        before = (ROOT / self.file).read_text().splitlines()
        lines = difflib.unified_diff(before, self.text.splitlines(), n=0, lineterm="")
        return "\n".join(line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))


@dataclass(frozen=True, slots=True)
class Tried:
    change: Change
    killed_by: KilledBy


# ---- drawing


def drawn(room: str, count: int, seed: int) -> list[Change]:
    """Places are drawn first, and an operator for each: a `+` has twelve of them, an `if` has one. Raises ImportError
    without cosmic-ray."""
    from cosmic_ray.commands.init import _all_work_items
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    rng = random.Random(f"systematic/{room}/{seed}")
    files = sorted({path for pattern in ROOMS[room].files for path in ROOT.glob(pattern)})
    places: dict[tuple[str, tuple[int, int], tuple[int, int]], list[Any]] = {}
    for item in _all_work_items(files, {}):
        one = item.mutations[0]
        if _is_a_bug(one.operator_name):
            places.setdefault((str(one.module_path), one.start_pos, one.end_pos), []).append(one)
    order = sorted(places)
    rng.shuffle(order)
    changes: list[Change] = []
    for place in order:
        if len(changes) == count:
            break
        one = rng.choice(places[place])
        path = Path(one.module_path)
        text = mutate_code(path.read_text(), get_operator(one.operator_name)(), one.occurrence)
        if text is not None and _executed(text) != _executed(path.read_text()):
            name = one.operator_name.removeprefix("core/")
            changes.append(Change(room, str(path.relative_to(ROOT)), one.start_pos[0], name, text))
    return changes


def _is_a_bug(operator: str) -> bool:
    """`is` says the same as `==` of enumerations and small numbers."""
    old, _, new = operator.partition("Operator_")[2].partition("_")
    return ("Is" in old) == ("Is" in new)


def _executed(text: str) -> str:
    """Without annotations, which nobody evaluates, without what decorates or says `frozen`, and without
    the lines' numbers."""

    class Bare(ast.NodeTransformer):
        def visit_arg(self, node: ast.arg) -> ast.AST:
            node.annotation = None
            return node

        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
            node.returns, node.decorator_list = None, []
            return self.generic_visit(node)

        def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
            node.decorator_list, node.keywords = [], []
            return self.generic_visit(node)

        def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
            node.annotation = ast.Constant(None)
            return self.generic_visit(node)

    try:
        return ast.dump(Bare().visit(ast.parse(text)))
    except SyntaxError:
        return text


# ---- trying


class Copies:
    """Of the project, one for each that is tried at the same time."""

    def __init__(self, folder: Path, count: int) -> None:
        self.free: SimpleQueue[Path] = SimpleQueue()
        for number in range(count):
            copy = folder / str(number)
            copy.mkdir()
            for name in COPIED:
                source = ROOT / name
                if source.is_dir():
                    shutil.copytree(source, copy / name, symlinks=True)
                else:
                    shutil.copy2(source, copy / name)
            self.free.put(copy)

    def tried(self, change: Change, limits: Mapping[str, float]) -> Tried:
        copy = self.free.get()
        file = copy / change.file
        sound, times = file.read_bytes(), file.stat()
        try:
            file.write_text(change.text)
            return Tried(change, _killed_by(copy, change.room, limits))
        finally:
            file.write_bytes(sound)
            # so that what Python has compiled of it is right again
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
            self.free.put(copy)


def _killed_by(copy: Path, room: str, limits: Mapping[str, float]) -> KilledBy:
    for stage, command in _stages(copy, room).items():
        code = _run(copy, command, limits.get(stage, 10 * LEAST_S))
        if code is None:
            return "time"
        if code != 0:
            return "tests" if stage == "tests" else "schedules"
    return ""


def _stages(copy: Path, room: str) -> dict[str, list[str]]:
    tests = [path for pattern in ROOMS[room].tests for path in sorted((copy / TESTS).glob(pattern))]
    files = list(dict.fromkeys(str(path.relative_to(copy)) for path in tests))
    options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "--timeout=300"]
    stages = {"tests": [sys.executable, "-m", "pytest", *options, *files]}
    if ROOMS[room].schedules:
        explore = ["explore", "--schedules", str(SCHEDULES), "--seed", "1", "--jobs", "1", "--results", "explored"]
        stages["schedules"] = [sys.executable, "-m", "shaketable.suites.command.cli", *explore]
    return stages


def _run(copy: Path, command: Sequence[str], within_s: float) -> int | None:
    """The exit code; None: it was not over in time. Nothing that it started is left."""
    mark = f"systematic-{uuid.uuid4().hex}:"
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        marked.MARK: mark,
    }
    with (
        (copy / SAID).open("wb") as said,
        subprocess.Popen(
            command,
            cwd=copy,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            return process.wait(within_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            process.kill()
            marked.kill_all(mark)


def measured(rooms: Sequence[str], copies: Copies, pool: ThreadPoolExecutor) -> dict[str, dict[str, float]]:
    """How long each stage may take. Raises RuntimeError where the sound runtime does not pass."""

    def of(room: str) -> dict[str, float]:
        copy, limits = copies.free.get(), {}
        try:
            for stage, command in _stages(copy, room).items():
                began = time.monotonic()
                code = _run(copy, command, 20 * LEAST_S)
                if code != 0:
                    said = (copy / SAID).read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"{room}: without a mutant the {stage} exited with {code}\n{said}")
                took = time.monotonic() - began
                print(f"{room}: without a mutant the {stage} pass in {took:.0f} s", file=sys.stderr, flush=True)
                limits[stage] = max(LEAST_S, TIMES_AS_LONG * took)
            return limits
        finally:
            copies.free.put(copy)

    return dict(zip(rooms, pool.map(of, rooms), strict=True))


def all_tried(rooms: Sequence[str], count: int, seed: int, at_once: int) -> Iterator[Tried]:
    """In the order in which they are drawn."""
    with tempfile.TemporaryDirectory(prefix="shaketable-systematic-") as folder:
        copies = Copies(Path(folder), at_once)
        with ThreadPoolExecutor(at_once) as pool:
            limits = measured(rooms, copies, pool)
            changes = [change for room in rooms for change in drawn(room, count, seed)]
            calls = [pool.submit(copies.tried, change, limits[change.room]) for change in changes]
            try:
                yield from (call.result() for call in calls)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


# ---- what came of it


def lines(tried: Sequence[Tried]) -> Iterator[str]:
    """A table for docs/mutants.md."""
    yield "| room | mutants | killed by tests | by schedules | by time | survived | killed | goal |"
    yield "|---|---|---|---|---|---|---|---|"
    for room in dict.fromkeys(one.change.room for one in tried):
        mine = [one.killed_by for one in tried if one.change.room == room]
        counts = [mine.count(by) for by in ("tests", "schedules", "time", "")]
        rate = 1 - mine.count("") / len(mine)
        cells = " | ".join(str(count) for count in counts)
        yield f"| {room} | {len(mine)} | {cells} | {rate:.0%} | {ROOMS[room].goal:.0%} |"
