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
from shaketable.suites.bench.table import markdown, terminal, write_markdown

# where there is no terminal, nothing has to be folded to fit
PLAIN_WIDTH = 180

console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    subjects = ["ray-train"] if options.peer_only else ["bundled", *filter(None, [options.peer])]
    if "ray-train" in subjects and not _has_ray_train():
        console.print("ray-train: Ray Train is not complete here; pip install 'shaketable[ray-train]'", style="red")
        return 2
    os.environ.setdefault(PROFILE_ENV, options.peer_settings)
    folder = Path(tempfile.mkdtemp(prefix="shaketable-bench-"))
    samples: list[Sample] = []
    failed: list[str] = []
    code = 0
    try:
        for scenario, subject in chosen(options.only, subjects):
            setting = Setting(subject, options.repeat, folder / f"{subject}-{scenario.run.__name__}")
            failed += _measure(scenario, setting, samples)
    except KeyboardInterrupt:
        code = 130
    _publish(samples, subjects, options)
    for line in failed:
        console.print(f"MISSING  {line}", style="red", markup=False)
    if failed:
        console.print(f"logs and histories: {folder}", markup=False)
    else:
        shutil.rmtree(folder)
    return code or (1 if failed else 0)


def _measure(scenario: Scenario, setting: Setting, samples: list[Sample]) -> list[str]:
    """Adds to `samples` as they come; returns what went wrong, if anything."""
    console.print(f"{setting.subject}: {scenario.title}, {setting.repeat} times", style="bold", markup=False)
    try:
        for sample in scenario.run(setting):
            samples.append(sample)
            if sample.part is None:
                console.print(f"  {sample.name} {sample.value:.4g} {unit_of(sample.name)}", markup=False)
    except (BenchError, ClusterError, OSError, RuntimeError) as error:
        return [f"{setting.subject}: {scenario.title}: {error}"]
    return []


def _publish(samples: Sequence[Sample], subjects: Sequence[str], options: argparse.Namespace) -> None:
    title = _title(subjects)
    if samples:
        console.print(terminal(samples, subjects, title))
    options.json.write_text(json.dumps(as_json(summarise(samples)), indent=2) + "\n")
    console.print(f"figures: {options.json}", markup=False)
    if options.markdown is not None:
        write_markdown(options.markdown, markdown(samples, subjects, title))


def _title(subjects: Sequence[str]) -> str:
    peer = f", ray-train with its {os.environ[PROFILE_ENV]} settings" if "ray-train" in subjects else ""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    machine = f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()}, Python {platform.python_version()}"
    return f"shaketable {version('shaketable')}, Ray {version('ray')}{peer}; {machine}"


def _has_ray_train() -> bool:
    try:
        importlib.import_module("ray.train")
    except ImportError:
        return False
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description="Measure recovery, growth and the cost of the runtime.")
    parser.add_argument("--peer", choices=["ray-train"], help="also measure Ray Train")
    parser.add_argument("--peer-only", action="store_true", help="measure only Ray Train")
    parser.add_argument("--peer-settings", choices=["stock", "tuned"], default="stock", help="default: %(default)s")
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
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also put the table between the marks in FILE")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least one")
    return value


if __name__ == "__main__":
    sys.exit(main())
