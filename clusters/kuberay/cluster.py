"""A Ray cluster whose nodes are pods that KubeRay made for this run, as an experiment in the driver's pod sees it.

Beyond what Ray itself can do (`attached/`), nodes are added, announced to go, frozen and killed as Kubernetes does it.
What became of one is asked of Kubernetes: the pod's uid, its restarts, whether it is being deleted. Exit codes prove
nothing, and Ray's own view is 14 s late.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Protocol

from shaketable.clusters.attached.cluster import AttachedCluster
from shaketable.clusters.kuberay.kubernetes import SeenPod
from shaketable.clusters.kuberay.manifests import groups_of, workers_of
from shaketable.clusters.protocol import TIER_LABEL, ClusterError, Node, NodeState, PodActs, Shape, Unsupported
from shaketable.clusters.view import ListedNode

JOINED_WITHIN_S = 240.0
# Ray's autoscaler looks every five seconds for what is idle
GIVEN_BACK_WITHIN_S = 60.0
LOOK_S = 0.1
# to every process but the first, which Linux spares, and the shell itself
FREEZE, THAW = ("sh", "-c", "kill -STOP -1"), ("sh", "-c", "kill -CONT -1")
STATES = ("sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null")
# who looks, and the probes of the kubelet
LOOKING = frozenset({"sh", "cat", "bash", "wget", "grep"})


class Pods(Protocol):
    """What is asked of Kubernetes here (`kubernetes.py`)."""

    def pods(self, labels: dict[str, str]) -> list[SeenPod]: ...
    def pod(self, name: str) -> SeenPod | None: ...
    def delete_pod(self, name: str) -> None: ...
    def execute(self, pod: str, *command: str) -> tuple[int, bytes]: ...
    def replicas(self, cluster: str, group: int) -> int: ...
    def scale(self, cluster: str, group: int, replicas: int) -> None: ...


class RayOf(Protocol):
    """A RayCluster that is up at `address`. Another one may come in its stead, of the same RayJob."""

    name: str
    address: str

    def join(self) -> None:
        """Has this pod be a node of it, of a new head too."""
        ...


class KubeRayCluster(AttachedCluster):
    """`acts`: what can be done to its pods beside what any cluster can do to its nodes."""

    kind = "kuberay"

    def __init__(self, kubernetes: Pods, ray: RayOf, shape: Shape, acts: Callable[[KubeRayCluster], PodActs]) -> None:
        self._kubernetes, self._ray = kubernetes, ray
        # of each node, as it was when it was seen first
        self._pods: dict[int, SeenPod] = {}
        self._unsaid: list[Node] = []
        self._entering = threading.RLock()
        self._headless = False
        # whoever looks for the head, and whoever waits for it
        self._joining = threading.Lock()
        self._left: set[int] = set()
        super().__init__(ray.address, shape)
        self.pods = acts(self)

    @property
    def ray_cluster(self) -> str:
        return self._ray.name

    # -- nodes

    def _entered(self, node: Node, seen: ListedNode) -> None:
        there = [pod for pod in self.workers() if pod.ip == seen.ip and not pod.deleting]
        if there:
            self._pods[node.number] = max(there, key=lambda pod: pod.born)

    # -- a head that goes

    def begins_anew(self) -> None:
        """Its head goes. Until this pod has joined another one, Ray is asked nothing."""
        self._headless = True

    def joined_anew(self) -> bool:
        """Nodes that were known stay in the book, and are dead."""
        with self._joining:
            if self._headless:
                before = self._node_agents
                self._ray.join()
                self.address = self._ray.address
                self._connect()
                self._headless = False
                before.close()
        return True

    def newcomers(self) -> list[Node]:
        """But for those that are being added from here, which are told of by whoever adds them."""
        if self._headless or not self._entering.acquire(blocking=False):
            return []
        try:
            come, self._unsaid = [*self._unsaid, *super().newcomers()], []
            return come
        finally:
            self._entering.release()

    def nodes(self) -> list[Node]:
        there = list(self._book.values()) if self._headless else super().nodes()
        return [node for node in there if self.state(node.number) != "dead"]

    def add_node(self) -> Node:
        return self.add_capacity()[0]

    def add_capacity(self, slice_: int | None = None, tier: str = "", host: int | None = None) -> list[Node]:
        """One more replica; back when Ray has it."""
        names = [group.labels.get(TIER_LABEL, "") for group in groups_of(self.shape)]
        if slice_ is not None or self.shape.slices is not None or tier not in names:
            raise Unsupported(
                f"no slice is added to the RayCluster {self.ray_cluster}, nor a tier {tier!r}: use cluster: local"
            )
        with self._entering:
            before = {pod.uid for pod in self.workers()}
            group = names.index(tier)
            self._kubernetes.scale(self.ray_cluster, group, self._kubernetes.replicas(self.ray_cluster, group) + 1)
            return [self._joined(before)]

    def _joined(self, before: set[str]) -> Node:
        deadline_s = time.monotonic() + JOINED_WITHIN_S
        while time.monotonic() < deadline_s:
            self._unsaid += super().newcomers()
            for node in self._unsaid:
                pod = self._pods.get(node.number)
                if pod is not None and pod.uid not in before:
                    self._unsaid.remove(node)
                    return node
            time.sleep(LOOK_S)
        starting = [f"{p.name} {p.trouble}" for p in self.workers() if p.uid not in before]
        raise ClusterError(f"no node joined within {JOINED_WITHIN_S:g} s of one more replica; pods: {starting}")

    def workers(self) -> list[SeenPod]:
        return self._kubernetes.pods(workers_of(self.ray_cluster))

    def pod_of(self, number: int) -> SeenPod:
        """As it was when its node was seen first."""
        self.node(number)
        if number not in self._pods:
            raise ClusterError(f"node {number} is no pod of the RayCluster {self.ray_cluster}")
        return self._pods[number]

    # -- faults

    def signal_node(self, number: int, sig: signal.Signals) -> list[int]:
        """SIGTERM as Kubernetes sends it: the pod is deleted, with its grace period. SIGKILL and SIGSTOP by the actor
        that is there, for a command in a pod may take seconds to start; who is stopped is thawed by such a command."""
        pod = self.pod_of(number)
        match sig:
            case signal.SIGTERM:
                self._kubernetes.delete_pod(pod.name)
            case signal.SIGKILL:
                super().signal_node(number, sig)
            case signal.SIGSTOP:
                self._node_agents.on(self.node(number).node_id, "stop_node")
                # what is not below the raylet
                self._kubernetes.execute(pod.name, *FREEZE)
            case signal.SIGCONT:
                self._kubernetes.execute(pod.name, *THAW)
            case _:
                raise ClusterError(f"a node takes SIGTERM, SIGKILL, SIGSTOP or SIGCONT, not {sig.name}")
        return []

    def node_stopped(self, number: int) -> bool:
        """Every process of the pod that can be stopped from inside, which is all but its first."""
        code, said = self._kubernetes.execute(self.pod_of(number).name, *STATES)
        return code == 0 and all_stopped(said.decode(errors="replace"))

    # -- what became of a node

    def state(self, number: int) -> NodeState:
        self.node(number)
        rays = "alive" if self._headless else super().state(number)
        pod = self._pods.get(number)
        if rays == "dead" or pod is None:
            return rays
        seen = became(pod, self._kubernetes.pod(pod.name)) or rays
        if seen == "draining":
            self._leave(number)
        return seen

    def _leave(self, number: int) -> None:
        """A node that drains ends at once when nobody is on it any more, and its replacement comes so much sooner: the
        harness is not to be in the way."""
        if number not in self._left and not self._headless:
            self._left.add(number)
            self._node_agents.on(self.node(number).node_id, "leave")

    def wait_state(self, number: int, state: NodeState, timeout_s: float) -> float:
        began_s = time.monotonic()
        while (seen := self.state(number)) != state:
            if time.monotonic() - began_s > timeout_s:
                raise ClusterError(f"node {number}: waited {timeout_s:g} s for {state}; it is {seen}")
            time.sleep(LOOK_S)
        return time.monotonic() - began_s

    def leftovers(self) -> list[str]:
        """With an autoscaler, also what it should have taken back, for which it has time."""
        # nobody is there to be asked
        left = [] if self._headless else super().leftovers()
        if self.shape.autoscaler is None or left:
            return left
        deadline_s = time.monotonic() + GIVEN_BACK_WITHIN_S
        while len(there := [pod for pod in self.workers() if not pod.deleting]) > self.shape.nodes:
            if time.monotonic() > deadline_s:
                more = len(there) - self.shape.nodes
                return [f"{more} pods that nobody uses, {GIVEN_BACK_WITHIN_S:g} s after the run: {there[-1].name}"]
            time.sleep(LOOK_S)
        return []

    def close(self) -> None:
        if self.pods is not None:
            self.pods.close()
        super().close()

    def check_shared(self, directory: str) -> None:
        """Pods share nothing."""
        raise Unsupported("pods share no directory: the run is kept in an object store that the harness brings")


def became(pod: SeenPod, now: SeenPod | None) -> NodeState | None:
    """What Kubernetes says of the node that was in this pod; None: nothing. A pod that comes back in place is none."""
    if now is None or now.uid != pod.uid or now.restarts > pod.restarts:
        return "dead"
    return "draining" if now.deleting else None


def all_stopped(stats: str) -> bool:
    """By lines of /proc/<pid>/stat: whatever runs there, but for the first process and whoever looks, is stopped."""
    states = []
    for line in stats.splitlines():
        pid, _, rest = line.partition(" (")
        name, _, fields = rest.rpartition(") ")
        if pid != "1" and name not in LOOKING:
            states.append(fields[:1])
    return bool(states) and all(state in "TtZX" for state in states) and any(state in "Tt" for state in states)
