"""Mutants that only real processes can tell: their experiments, run as a user would, several at once, on a cluster of
processes or, where only Ray has what is broken, on local Ray."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from shaketable.suites.gate.catalogue import select
from shaketable.suites.mutants.defining import Mutant
from shaketable.suites.mutants.hunting import Caught

# one experiment, with the cluster's start
ENDS_WITHIN_S = 400.0
METRICS = "metrics-match"


def on_real_clusters(mutants: Sequence[Mutant], at_once: int) -> Iterator[Caught]:
    """In the order of the mutants."""
    running: set[subprocess.Popen[str]] = set()
    with ThreadPoolExecutor(at_once) as pool:
        calls = [pool.submit(_run, mutant, running) for mutant in mutants]
        try:
            yield from (call.result() for call in calls)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running.copy():
                # it tidies up its cluster
                process.send_signal(signal.SIGINT)
            raise


def _run(mutant: Mutant, running: set[subprocess.Popen[str]]) -> Caught:
    with tempfile.TemporaryDirectory(prefix="shaketable-mutant-") as folder:
        out, experiment = Path(folder) / "run.json", Path(folder) / f"{mutant.experiment}.yaml"
        experiment.write_text(yaml.safe_dump(_experiment(mutant), sort_keys=False))
        command = [
            sys.executable,
            "-m",
            "shaketable.suites.command.cli",
            "run",
            str(experiment),
            "--cluster",
            mutant.tried,
            "--mutant",
            mutant.name,
            "--results",
            str(Path(folder) / "results"),
            "--json",
            str(out),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        running.add(process)
        try:
            printed, _ = process.communicate(timeout=ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return Caught(mutant.name, "", 0, f"{mutant.experiment} took more than {ENDS_WITHIN_S:g} s")
        finally:
            running.discard(process)
        if not out.exists():
            return Caught(mutant.name, "", 0, f"{mutant.experiment}: {printed.strip()[-200:]}")
        return _caught(mutant, json.loads(out.read_text())["results"][0])


def _experiment(mutant: Mutant) -> dict[str, Any]:
    [entry] = select([mutant.experiment])
    document = dict(entry.document)
    if METRICS in mutant.caught_by:
        # A busy machine may start with fewer workers and grow; metrics are compared only where the world kept one size.
        workers = document["configuration"]["num_workers"]
        most = workers[-1] if isinstance(workers, list) else workers
        document["configuration"] = {**document["configuration"], "num_workers": most}
    if mutant.within_s is not None:
        for probe in document["steady-state-hypothesis"]["probes"]:
            probe["provider"]["arguments"]["within_s"] = mutant.within_s
    return document


def _caught(mutant: Mutant, result: dict[str, Any]) -> Caught:
    failed = [each["invariant"] for each in result["findings"] if each["status"] == "FAIL"]
    by = next((name for name in failed if name in mutant.caught_by), "")
    said = f"{mutant.experiment}: {result['verdict']} {'' if by else result['reason']}"
    return Caught(mutant.name, by, 0, said.strip())
