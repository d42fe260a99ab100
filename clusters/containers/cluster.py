"""A Ray cluster of containers: a head without CPUs here, at this machine's address on a network that leads nowhere
else, and worker nodes that are containers on it. Drivers, the collector and the storage gateway are here too.

What is sent to a node is what is sent to one of a local cluster. Besides, a node is a machine of its own as far as its
network, its memory and its disk go: `on_machine` runs a program there.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shaketable.clusters.containers import engine
from shaketable.clusters.containers import image as images
from shaketable.clusters.containers import node as nodes_
from shaketable.clusters.containers.firewall import Rule
from shaketable.clusters.containers.node import ContainerProcess, Place
from shaketable.clusters.local.cluster import LocalCluster
from shaketable.clusters.local.node import Start
from shaketable.clusters.own_nodes import HEAD
from shaketable.clusters.protocol import ClusterError, Cut, Shape, Way


@dataclass(frozen=True, slots=True)
class _FirewallCut:
    cluster: ContainerCluster
    number: int
    rule: Rule

    def dropped(self) -> int:
        return self.rule.met()

    def mend(self) -> None:
        if self.number in {node.number for node in self.cluster.nodes()}:
            self.rule.remove()


class ContainerCluster(LocalCluster):
    """`ContainerCluster(Shape(nodes=3))` returns when Ray's own view shows all of them alive. `folders` of this machine
    can be read on the nodes, under the same names. `image`: empty for the usual one."""

    kind = "containers"

    def __init__(
        self,
        shape: Shape,
        directory: Path | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        image: str = "",
        folders: Sequence[str] = (),
    ) -> None:
        self._client = engine.connect()
        self._image = image or images.USUAL
        images.check(self._client, self._image)
        # a harness that was killed may have left what even its watchdog could not remove
        engine.reap(self._client)
        self._folders = tuple(folders)
        super().__init__(shape, directory, environment=environment)

    def _last_act(self) -> Sequence[str]:
        return (sys.executable, "-m", engine.__name__, self.id)

    def _head_ip(self) -> str:
        """Of the cluster's network, which is made here."""
        name = f"shaketable-{self.id}"
        with engine.refusals(f"a network for cluster {self.id}"):
            network = self._client.networks.create(
                name, driver="bridge", internal=True, labels=engine.labels(self.id), check_duplicate=True
            )
            network.reload()
            ip: str = network.attrs["IPAM"]["Config"][0]["Gateway"]
        self._place = Place(self._client, self.id, name, self._image, self._folders)
        self.host = ip
        return ip

    def _start_head(self, ip: str) -> None:
        """Until it is alive, before there is any container: of a head that gives up, none has to be discarded."""
        super()._start_head(ip)
        self._connect()

    def _starts(self, number: int) -> Start:
        return super()._starts(number) if number == HEAD else functools.partial(nodes_.start, self._place)

    def _remove(self) -> None:
        engine.remove(self._client, self.id)
        self._client.close()

    # -- a node is a machine

    def on_machine(self, number: int, command: Sequence[str]) -> str:
        # with all rights in the node's own network, whoever the node's processes are
        code, said = self._executed(number, command, privileged=True, user="root")
        if code:
            raise ClusterError(f"node {number}: `{' '.join(command)}` exited with {code}: {said}")
        return said

    def cut_off(self, number: int, way: Way, share: float = 1.0) -> Cut:
        cut = _FirewallCut(self, number, Rule(functools.partial(self.on_machine, number), way, share))
        cut.rule.add()
        return cut

    def put_file(self, node_id: str, path: Path, text: str) -> None:
        script = 'mkdir -p "$1" && printf %s "$3" > "$1/.$2" && mv "$1/.$2" "$1/$2"'
        code, said = self._on(node_id, ["sh", "-c", script, "put", str(path.parent), path.name, text])
        if code:
            raise ClusterError(f"{path} cannot be written on node {node_id[:8]}: {said}")

    def has_file(self, node_id: str, path: Path) -> bool:
        return self._on(node_id, ["test", "-e", str(path)])[0] == 0

    def drop_file(self, node_id: str, path: Path) -> None:
        self._on(node_id, ["rm", "-f", str(path)])

    def _on(self, node_id: str, command: Sequence[str]) -> tuple[int, str]:
        """As the node's own processes would. One that has ended has no files, and answers as if it failed."""
        number = next(number for number, node in self._nodes.items() if node.node_id == node_id)
        if not self._nodes[number].running():
            return 1, "the node has ended"
        return self._executed(number, command, user=f"{os.getuid()}:{os.getgid()}")

    def _executed(self, number: int, command: Sequence[str], **how: Any) -> tuple[int, str]:
        process = self._worker(number).process
        assert isinstance(process, ContainerProcess), "a worker node is a container"
        with engine.refusals(f"`{command[0]}` on node {number}"):
            code, output = process.container.exec_run(list(command), **how)
        return code, output.decode(errors="replace").strip()
