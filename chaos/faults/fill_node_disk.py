"""The disk of a node is full: what its workers want to write there, a checkpoint before its upload, cannot be written.
Healed by taking away what fills it. (`fill_disk` is about the disk on which the run is kept.)"""

from __future__ import annotations

from shaketable.chaos.injection.fault import Fault, Scene
from shaketable.chaos.injection.targets import ResolvedTarget

BALLAST = "/tmp/.ballast"
# until not a page fits; that it then fails is the point
FILL = f"cat /dev/zero > {BALLAST}; true"
FREE = "df --output=avail /tmp | tail -n 1"


class FillNodeDisk(Fault):
    """The disk of a node has no byte left; until `until`, or the end of the run."""

    name, target_kind, loss, manner, heals = "fill_node_disk", "node", "worker", "raises", True
    charged_to, causes, needs = "max_failures", ("worker_error", "worker_death", "node_lost"), "attempt"
    apart = "machine"

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        for number in hit.nodes:
            scene.cluster.on_machine(number, ["sh", "-c", FILL])

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        """The file system itself says that nothing is free."""
        free = [scene.cluster.on_machine(number, ["sh", "-c", FREE]).strip() for number in hit.nodes]
        return "0 bytes free" if free and all(each == "0" for each in free) else None

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        for number in set(hit.nodes) & {node.number for node in scene.cluster.nodes()}:
            scene.cluster.on_machine(number, ["rm", "-f", BALLAST])
