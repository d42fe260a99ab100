"""`shaketable run --cluster kuberay`: the same command in a driver's pod, on the Kubernetes that the kubeconfig names.
`--cluster kind`: the same, on one of this machine that is made for it.

What it prints comes out here as it is printed, and the result folder is fetched when it is over; the histories in it
can be judged again here. All that is made there is deleted before this returns.
"""

from __future__ import annotations

import codecs
import functools
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from shaketable.chaos.plan import KIND, KUBERAY
from shaketable.chaos.subjects.ray_train.subject import PROFILE_ENV
from shaketable.clusters.kuberay.manifests import ENV
from shaketable.clusters.protocol import ClusterError
from shaketable.reports.results import Run
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.gate.execution import Trial
from shaketable.suites.gate.outputs import read_run

THERE, FILES = "/tmp/shaketable/results", "/tmp/shaketable/experiments"
KIND_NAME = "shaketable"
# of this machine's environment, to the pod's command
TOLD = (PROFILE_ENV,)
COMMAND = ("python", "-m", "shaketable.suites.command.cli", "run")


def cluster_of(trials: Iterable[Trial]) -> str:
    """Where all of them run, if that is on pods; empty: none does. Raises UsageError for a mixture."""
    asked = {trial.configuration.cluster for trial in trials}
    on_pods = {cluster for cluster in asked if cluster.partition(":")[0] in (KUBERAY, KIND)}
    if on_pods and len(asked) > 1:
        raise UsageError(f"these experiments run on {', '.join(sorted(asked))}: give --cluster, or run them apart")
    return next(iter(on_pods), "")


def check(cluster: str, image: str) -> None:
    """Raises UsageError where the pods would have no image."""
    if image or inside():
        return
    raise UsageError(
        f"--cluster {cluster} needs --image NAME: one with Ray, shaketable[chaos,storage,kubernetes] and your job"
        " (docs/kubernetes.md has a Dockerfile)"
    )


def inside() -> bool:
    """This is a driver's pod already."""
    return ENV in os.environ


class _Text(io.RawIOBase):
    """Bytes as they come, written out as text."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._decoder = out, codecs.getincrementaldecoder("utf-8")(errors="replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._out.write(self._decoder.decode(bytes(data)))
        self._out.flush()
        return len(data)


def run(cluster: str, image: str, arguments: Sequence[str], names: Sequence[str], folder: Path, out: TextIO) -> Run:
    """`arguments` are those of `shaketable run` besides the experiments' names. Raises UsageError where it could not be
    carried out."""
    try:
        from shaketable.clusters.kuberay.visit import Visit
    except ImportError as error:
        raise UsageError(f"{error.name} is not installed: pip install 'shaketable[kubernetes]'") from None
    files = {name: Path(name) for name in names if Path(name).is_file()}
    there = {name: f"{FILES}/{number}-{path.name}" for number, (name, path) in enumerate(files.items())}
    told = [f"{name}={os.environ[name]}" for name in TOLD if name in os.environ]
    command = [
        "env",
        *told,
        *COMMAND,
        *(there.get(name, name) for name in names),
        *arguments,
        "--results",
        THERE,
        "--jobs",
        "1",
    ]
    try:
        with _kubernetes(cluster, image, out) as (context, namespace), Visit(context, namespace, image) as visit:
            if files:
                visit.bring({there[name]: path for name, path in files.items()})
            try:
                visit.run(command, io.BufferedWriter(_Text(out), 1))
            finally:
                # what there is of a run that was interrupted, too
                visit.fetch(THERE, folder)
    except ClusterError as error:
        raise UsageError(str(error)) from error
    return read_run(folder / "results.json")


@contextmanager
def _kubernetes(cluster: str, image: str, out: TextIO) -> Iterator[tuple[str, str]]:
    """Which context and which namespace; empty: the current one, and one that is made. Raises ClusterError."""
    kind, _, place = cluster.partition(":")
    if kind == KUBERAY:
        context, _, namespace = place.partition("/")
        yield context, namespace
        return
    from shaketable.clusters.kind.cluster import KindCluster

    with KindCluster(place or KIND_NAME, image, functools.partial(print, file=out, flush=True)):
        yield "", ""


def arguments_of(
    variables: Mapping[str, str],
    *,
    tags: Sequence[str],
    everything: bool,
    seed: int | None,
    mutant: str,
    repeat: int,
    retry_invalid: int,
    flags: Sequence[str],
) -> list[str]:
    """As the command line of the pod's command, which knows of no kind."""
    if variables.get("cluster", "").partition(":")[0] == KIND:
        variables = {**variables, "cluster": KUBERAY}
    said = [word for key, value in variables.items() for word in ("--var", f"{key}={value}")]
    said += [word for tag in tags for word in ("--tag", tag)]
    said += ["--all"] if everything else []
    said += [] if seed is None else ["--seed", str(seed)]
    said += ["--mutant", mutant] if mutant else []
    said += [] if repeat == 1 else ["--repeat", str(repeat)]
    said += ["--retry-invalid", str(retry_invalid)] if retry_invalid else []
    return [*said, *flags]
