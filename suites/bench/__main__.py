"""`python -m shaketable.suites.bench`: measures, prints the table, writes `bench.json`.

A scenario that fails is named and left out; the rest is still measured, and the exit code says that something is
missing. Ctrl-C keeps what has been measured.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from shaketable.chaos.subjects.ray_train.subject import PROFILE_ENV
from shaketable.clusters.protocol import ClusterError
from shaketable.suites.bench.figures import NAMES, Sample, as_json, summarise, unit_of
from shaketable.suites.bench.rig import BenchError
from shaketable.suites.bench.scenarios import Scenario, chosen
from shaketable.suites.bench.setting import Setting
from shaketable.suites.bench.table import table, terminal, write_markdown

# where there is no terminal, nothing has to be folded to fit
PLAIN_WIDTH = 180
PEER = "ray-train"
# of the peer, as columns beside each other
SETTINGS = ("stock", "tuned")

console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    settings = SETTINGS if options.peer_settings == "both" else (options.peer_settings,)
    peers = [f"{PEER}, {one}" for one in settings] if options.peer or options.peer_only else []
    columns = peers if options.peer_only else ["bundled", *peers]
    if peers and not _has_ray_train():
        console.print("ray-train: Ray Train is not complete here; pip install 'shaketable[ray-train]'", style="red")
        return 2
    folder = Path(tempfile.mkdtemp(prefix="shaketable-bench-"))
    samples: list[Sample] = []
    failed: list[str] = []
    code = 0
    try:
        for scenario, column in chosen(options.only, columns):
            subject, _, own = column.partition(", ")
            place = folder / f"{subject}-{own}-{scenario.run.__name__}"
            failed += _measure(scenario, Setting(subject, options.repeat, place, own), samples)
    except KeyboardInterrupt:
        code = 130
    _publish(samples, columns, options)
    for line in failed:
        console.print(f"MISSING  {line}", style="red", markup=False)
    if failed:
        console.print(f"logs and histories: {folder}", markup=False)
    else:
        shutil.rmtree(folder)
    return code or (1 if failed else 0)


def _measure(scenario: Scenario, setting: Setting, samples: list[Sample]) -> list[str]:
    """Adds to `samples` as they come; returns what went wrong, if anything."""
    console.print(f"{setting.column}: {scenario.title}, {setting.repeat} times", style="bold", markup=False)
    if setting.settings:
        os.environ[PROFILE_ENV] = setting.settings
    try:
        for sample in scenario.run(setting):
            samples.append(sample)
            if sample.part is None:
                console.print(f"  {sample.name} {sample.value:.4g} {unit_of(sample.name)}", markup=False)
    except (BenchError, ClusterError, OSError, RuntimeError) as error:
        return [f"{setting.column}: {scenario.title}: {error}"]
    return []


def _publish(samples: Sequence[Sample], columns: Sequence[str], options: argparse.Namespace) -> None:
    made, title = table(samples, columns), _title()
    if samples:
        console.print(terminal(made, title))
    options.json.write_text(json.dumps(as_json(summarise(samples)), indent=2) + "\n")
    console.print(f"figures: {options.json}", markup=False)
    if options.markdown is not None:
        write_markdown(options.markdown, made, title)


def _title() -> str:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    machine = f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()}, Python {platform.python_version()}"
    return f"shaketable {version('shaketable')}, Ray {version('ray')}; {machine}"


def _has_ray_train() -> bool:
    try:
        importlib.import_module("ray.train")
    except ImportError:
        return False
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description="Measure recovery, growth and the cost of the runtime.")
    parser.add_argument("--peer", choices=[PEER], help="also measure Ray Train")
    parser.add_argument("--peer-only", action="store_true", help="measure only Ray Train")
    parser.add_argument(
        "--peer-settings",
        choices=["both", *SETTINGS],
        default="both",
        help="Ray Train's own defaults, the fastest it can be set to, or both (default: %(default)s)",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=NAMES,
        metavar="NAME",
        help="measure only this figure; repeatable",
    )
    parser.add_argument(
        "--repeat", type=_count, default=5, metavar="N", help="samples per figure (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, default=Path("bench.json"), metavar="FILE", help="default: %(default)s")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also put the figures into the table of FILE")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least one")
    return value


if __name__ == "__main__":
    sys.exit(main())
