"""Rules of a machine's firewall that drop packets, each with a counter that says what it met. A rule is known by a
number of its own, so that only its own is read and taken away."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from shaketable.clusters.protocol import Way

# runs a program on the machine as root, and returns what it has printed
Machine = Callable[[Sequence[str]], str]
_CHAINS: Mapping[Way, tuple[str, str]] = {"in": ("INPUT", "-i"), "out": ("OUTPUT", "-o")}
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Rule:
    """Drops that share of what goes in to the machine, or out of it, but nothing of the machine to itself."""

    machine: Machine
    way: Way
    share: float = 1.0
    name: str = field(default_factory=lambda: f"shaketable-{next(_numbers)}")

    def add(self) -> None:
        self.machine(self._command("-A"))

    def remove(self) -> None:
        self.machine(self._command("-D"))

    def met(self) -> int:
        """Packets that it has dropped."""
        listed = self.machine(["iptables", "-w", "-nvxL", _CHAINS[self.way][0]])
        return sum(int(line.split()[0]) for line in listed.splitlines() if f"/* {self.name} */" in line)

    def _command(self, action: str) -> list[str]:
        chain, device = _CHAINS[self.way]
        outside = ("!", device, "lo")
        chance = ("-m", "statistic", "--mode", "random", "--probability", f"{self.share:.4f}") if self.share < 1 else ()
        named = ("-m", "comment", "--comment", self.name)
        return ["iptables", "-w", action, chain, *outside, *chance, *named, "-j", "DROP"]
