"""A worker takes all memory of its node, and is killed for it: the limit of a pod, of a container, of a machine.

Asked for like `hang_worker`, by a file. Who kills depends on how fast memory goes: Ray looks four times a second and
takes the process that holds the lease, of the bundled runtime the agent; else the kernel takes the worker. The evidence
is the count that the kernel keeps of such kills on that node, or what Ray wrote there of one, and that the worker is
gone: one that was killed otherwise leaves both as they were.
"""

from __future__ import annotations

from shaketable.chaos.injection.fault import Fault, Scene
from shaketable.chaos.injection.targets import ResolvedTarget
from shaketable.clusters.protocol import ClusterError

# control groups of version 2, and of version 1
BY_KERNEL = "cat /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control 2> /dev/null; true"
# What the raylet writes at each kill. ("killed due to the node running low on memory" is its sum of a minute, and comes
# late.) `cat`, for there may be many sessions or none.
BY_RAY = "cat /tmp/*/*/session_2*/logs/raylet.out 2> /dev/null | grep -c '^Selected to kill: '; true"


class OomWorker(Fault):
    """Make a worker take all memory of its node, until the kernel kills it, or Ray its agent."""

    name, target_kind, loss, manner = "oom_worker", "worker", "agent", "killed"
    charged_to, causes, needs = "max_failures", ("worker_death", "node_lost"), "attempt"
    apart = "machine"
    observe_within_s = 60.0

    def __init__(self) -> None:
        # by the number of the node, before
        self._killed: dict[int, int] = {}

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        # first of all: where a node has no limit of its own this raises
        self._killed = {number: kills(scene, number) for number in _numbers(scene, hit)}
        for node_id, pid in zip(hit.node_ids, hit.pids, strict=True):
            scene.cluster.put_file(node_id, scene.directory / f"leak-{pid}", "")

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        if not self._killed or not all(map(scene.cluster.process_gone, hit.node_ids, hit.pids)):
            return None
        try:
            more = [kills(scene, number) - before for number, before in self._killed.items()]
        except ClusterError:
            # a machine without memory runs no program that looks
            return None
        return f"gone, {sum(more)} killed for want of memory" if all(count > 0 for count in more) else None


def kills(scene: Scene, number: int) -> int:
    """How often the kernel or Ray has done that on this node. Raises ClusterError where it cannot be seen now."""
    events = scene.cluster.on_machine(number, ["sh", "-c", BY_KERNEL]).splitlines()
    by_kernel = sum(int(line.split()[1]) for line in events if line.startswith("oom_kill "))
    by_ray = scene.cluster.on_machine(number, ["sh", "-c", BY_RAY])
    if not by_ray.isdigit():
        raise ClusterError(f"node {number}: what Ray wrote cannot be read: {by_ray!r}")
    return by_kernel + int(by_ray)


def _numbers(scene: Scene, hit: ResolvedTarget) -> list[int]:
    return [node.number for node in scene.cluster.nodes() if node.node_id in hit.node_ids]
