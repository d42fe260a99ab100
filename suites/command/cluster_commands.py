"""What clusters elsewhere need first: `shaketable image build`, the image that the nodes of `--cluster containers` are
started from, and `shaketable kubernetes-role`, the rights that `--cluster kuberay` needs."""

from __future__ import annotations

import math
import re
import sys
from importlib import metadata
from typing import Annotated, Any

import typer
import yaml

from shaketable.chaos.errors import ExperimentError
from shaketable.clusters.kuberay import rights
from shaketable.clusters.protocol import ClusterError
from shaketable.reports import results
from shaketable.suites.command.commands import app, command
from shaketable.suites.gate.catalogue import UsageError

group = typer.Typer(
    help="Make the image of --cluster containers.",
    no_args_is_help=True,
    epilog="\b\nExamples:\n  shaketable image build    see shaketable image build --help",
)
app.add_typer(group, name="image")


@group.callback()
def image() -> None:
    """Without this the only command would be the group itself."""


@command(
    examples="""
shaketable image build                                    Python and Ray in the versions that are installed here
shaketable image build --extra torch                      with torch, for jobs that train with it
shaketable image build --base my-registry/python:3.11     on an image of your own, with that Python and pip
""",
    group=group,
)
def build(
    base: Annotated[
        str, typer.Option(metavar="NAME", help="An image with this version of Python. Default: Python's own.")
    ] = "",
    tag: Annotated[str, typer.Option(metavar="NAME", help="What the image is called. Default: the usual one.")] = "",
    extra: Annotated[
        list[str] | None, typer.Option(metavar="EXTRA", help="Of shaketable: torch, jax. Repeatable.")
    ] = None,
) -> int:
    """Build the image that nodes are started from.

    Needs a container engine. The libraries get the versions that are installed here. shaketable itself and your job are
    not in the image: a node reads them from this machine."""
    from shaketable.clusters.containers import engine
    from shaketable.clusters.containers import image as images

    named = tag or images.USUAL
    try:
        for line in images.build(engine.connect(), named, base or images.official_base(), extra or ()):
            print(line)
    except ClusterError as error:
        raise UsageError(str(error)) from None
    print(f"built {named}: {images.versions()}")
    return results.EXIT_PASS


@command(
    examples="""
shaketable gke-cluster --accelerator-type TPU-V6E --topology 4x4 --image IMAGE | kubectl apply -f -
shaketable gke-cluster --accelerator-type TPU-V5P --topology 2x2x2 --slices 2 --spot --image IMAGE
shaketable gke-cluster --accelerator-type TPU-V4 --topology 2x2x4 --reservation ours --image IMAGE > raycluster.yaml
"""
)
def gke_cluster(
    accelerator_type: Annotated[
        str, typer.Option(metavar="TYPE", help="As in ScalingConfig: TPU-V4, TPU-V5P, TPU-V5LITEPOD or TPU-V6E.")
    ],
    topology: Annotated[str, typer.Option(metavar="AxB[xC]", help="Of a slice, such as 4x4 or 2x2x2.")],
    image: Annotated[str, typer.Option(metavar="NAME", help="Of the pods.")],
    slices: Annotated[int, typer.Option(metavar="N", min=1, help="How many of them.")] = 1,
    chips_per_host: Annotated[int, typer.Option(metavar="N", min=1, help="Of one machine.")] = 4,
    spot: Annotated[bool, typer.Option("--spot", help="On machines that GKE may take back.")] = False,
    reservation: Annotated[str, typer.Option(metavar="NAME", help="On machines of that reservation.")] = "",
    name: Annotated[str, typer.Option(metavar="NAME", help="Of the RayCluster.")] = "shaketable",
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Without it, kubectl's own.")] = "",
) -> int:
    """Print a RayCluster with real TPU slices for GKE.

    It is what `shaketable run --cluster kuberay --var tpus=gke` makes for an experiment. It needs node pools with these
    slices, and GKE's Ray add-on. `kubectl apply --dry-run=server -f -` checks it and makes nothing."""
    if spot and reservation:
        raise UsageError("--spot and --reservation: a machine is one or the other")
    tpus = f"gke:{reservation}" if reservation else "gke-spot" if spot else "gke"
    try:
        document = _on_gke(
            (name, namespace, image),
            tpus=tpus,
            accelerator_type=accelerator_type,
            topology=topology,
            chips_per_host=chips_per_host,
            slices=["whole"] * slices,
        )
    except (ExperimentError, ClusterError) as error:
        raise UsageError(str(error)) from None
    sys.stdout.write(yaml.dump(document, sort_keys=False, Dumper=_Plain))
    return results.EXIT_PASS


class _Plain(yaml.SafeDumper):  # type: ignore[misc]  # yaml has no types
    """Without anchors, which nobody writes by hand."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _on_gke(called: tuple[str, str, str], **values: Any) -> dict[str, Any]:
    from shaketable.chaos.experiment.configuration import configuration
    from shaketable.chaos.run.borrowed_cluster import shape_of
    from shaketable.clusters.kuberay.manifests import of_ones_own

    workers = math.prod(map(int, re.findall(r"\d+", values["topology"]))) // values["chips_per_host"] or 1
    made = configuration({"cluster": "kuberay", "num_workers": workers, **values}, "gke-cluster")
    return of_ones_own(*called, shape_of(made), metadata.version("ray"))


@command(
    examples="""
shaketable kubernetes-role | kubectl apply -f -                     runs make a namespace of their own
shaketable kubernetes-role --namespace team | kubectl apply -f -    runs stay in that one
shaketable kubernetes-role --namespace team --allow machines --allow operator    what drains and absent operators take
"""
)
def kubernetes_role(
    namespace: Annotated[
        str, typer.Option(metavar="NAME", help="That of kuberay:CONTEXT/NAME; without it, a run makes its own.")
    ] = "",
    allow: Annotated[
        list[str] | None, typer.Option(metavar="WHAT", help=f"Besides: {', '.join(rights.BESIDE)}. Repeatable.")
    ] = None,
) -> int:
    """Print the rights that --cluster kuberay needs.

    It is a Role for one namespace, or a ClusterRole. Bind it to whoever runs the command. What --allow adds is a
    ClusterRole that is bound already, to the pods of the namespace: some faults touch what is no single namespace's."""
    for name in allow or ():
        if name not in rights.BESIDE:
            raise UsageError(f"--allow {name}: there are {', '.join(rights.BESIDE)}")
        if not namespace:
            raise UsageError(f"--allow {name} needs --namespace NAME, to whose pods the rights are given")
    documents = [rights.role(namespace), *(each for name in allow or () for each in rights.beside(name, namespace))]
    sys.stdout.write(yaml.safe_dump_all(documents, sort_keys=False))
    return results.EXIT_PASS
