"""What faults do to the machine of a node, where it is one of its own: rules of its firewall, each with a counter that
says what it met. A rule is known by the number of its fault's instance, so that only its own is read and taken away."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shaketable.chaos.injection.scene import Scene
from shaketable.clusters.protocol import ClusterError

_numbers = itertools.count(1)
MET_WITHIN_S = 15.0
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Rule:
    """In `chain` (INPUT, OUTPUT) of a node's firewall: drops what meets `condition`, but nothing of the node to
    itself."""

    chain: str
    condition: tuple[str, ...] = ()
    name: str = field(default_factory=lambda: f"shaketable-{next(_numbers)}")

    def add(self, scene: Scene, number: int) -> None:
        scene.cluster.on_machine(number, self._command("-A"))

    def remove(self, scene: Scene, number: int) -> None:
        scene.cluster.on_machine(number, self._command("-D"))

    def met(self, scene: Scene, number: int) -> int:
        """Packets that it has dropped."""
        listed = scene.cluster.on_machine(number, ["iptables", "-w", "-nvxL", self.chain])
        counts = [int(line.split()[0]) for line in listed.splitlines() if f"/* {self.name} */" in line]
        return sum(counts)

    def _command(self, action: str) -> list[str]:
        outside = ("!", "-i" if self.chain == "INPUT" else "-o", "lo")
        named = ("-m", "comment", "--comment", self.name)
        return ["iptables", "-w", action, self.chain, *outside, *self.condition, *named, "-j", "DROP"]


def cut(scene: Scene, rules: Sequence[Rule], numbers: Sequence[int]) -> None:
    for number in numbers:
        for rule in rules:
            rule.add(scene, number)


def join(scene: Scene, rules: Sequence[Rule], numbers: Sequence[int]) -> None:
    """Where the machine is still there: one that is gone has no rules."""
    for number in set(numbers) & {node.number for node in scene.cluster.nodes()}:
        for rule in rules:
            rule.remove(scene, number)


def dropped(scene: Scene, rules: Sequence[Rule], numbers: Sequence[int]) -> str | None:
    """The evidence of a partition: each of its own rules has dropped what somebody tried to send."""
    counts = [rule.met(scene, number) for number in numbers for rule in rules]
    return f"{sum(counts)} packets dropped" if counts and all(counts) else None


def wait_for(look: Callable[[], str | None], what: str) -> str:
    """Raises ClusterError where that does not come true."""
    deadline_s = time.monotonic() + MET_WITHIN_S
    while (seen := look()) is None:
        if time.monotonic() > deadline_s:
            raise ClusterError(f"waited {MET_WITHIN_S:g} s for {what}, in vain")
        time.sleep(LOOK_S)
    return seen
