"""What an autoscaler is told of slices that are missing, through Ray's AutoscalingCoordinator (promise demand-1).

A pending placement group, the demand on CPU and GPU, would ask host by host, and its parts could come up in two slices.
The coordinator merges what all runs on a cluster want, and forgets what is not renewed: the word of a driver that was
killed goes by itself. It wants to be told of everything that is wanted, what is held already included, since it is held
against all that there is and not against what is free. All of it happens on a thread of its own: nobody waits for it
but the end of the run.
"""

from __future__ import annotations

import importlib
import math
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import ray
from ray.exceptions import RayError

from shaketable.runtime.tpu.topology import SliceShape

# a slice that is back before needs no machine, and asking costs the driver an import
ANNOUNCED_AFTER_S = 5.0
RENEWED_EVERY_S = 5.0
# the coordinator looks every 20 s: a killed driver's demand is gone 35 s later
EXPIRES_AFTER_S = 15.0
_ANSWER_S = 10.0

Bundles = list[dict[str, float]]


class Coordinator(Protocol):
    """Both raise what Ray raises."""

    def request(self, bundles: Bundles, expire_after_s: float) -> None:
        """In the place of what was requested before."""
        ...

    def cancel(self) -> None:
        """Returns when it is done."""
        ...


@dataclass(slots=True)
class RaysCoordinator:
    """Ray's own, a detached actor that is started by whoever needs it first and stays. `requester`: whose demand."""

    requester: str
    _actor: Any = None
    _last: Any = None

    def request(self, bundles: Bundles, expire_after_s: float) -> None:
        """Its answer is heard next time."""
        if self._last is not None and ray.wait([self._last], timeout=0)[0]:
            ray.get(self._last)
        # as Ray Train's
        priority = _coordinators().ResourceRequestPriority.HIGH
        self._last = self._found().request_resources.remote(
            self.requester, bundles, expire_after_s=expire_after_s, priority=priority
        )

    def cancel(self) -> None:
        ray.get(self._found().cancel_request.remote(self.requester), timeout=_ANSWER_S)

    def _found(self) -> Any:
        if not ray.is_initialized():
            # and a call would start a cluster of its own
            raise RuntimeError("Ray has been shut down")
        if self._actor is None:
            self._actor = _coordinators().get_or_create_autoscaling_coordinator()
        return self._actor


def _coordinators() -> Any:
    """Imported late: it takes a second, and what `ray.data` needs."""
    return importlib.import_module("ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator")


def bundle_of(shape: SliceShape) -> dict[str, float]:
    """What makes an autoscaler bring one more slice. Of several hosts: what Ray gives to worker 0 alone. KubeRay adds
    hosts by whole slices, so asking for each host would bring as many slices as one has hosts."""
    if shape.hosts > 1:
        return {f"TPU-{shape.pod_type}-head": 1.0}
    return {"TPU": float(shape.chips_per_host), f"accelerator_type:{shape.accelerator_type}": 0.001}


@dataclass(slots=True)
class SliceDemand:
    """Of one run. `bundle`: of one slice; `warn` is told once if the coordinator cannot be reached, which is nobody's
    failure: the run goes on with the slices that there are."""

    coordinator: Coordinator
    bundle: dict[str, float]
    warn: Callable[[str], None]
    after_s: float = ANNOUNCED_AFTER_S
    renew_s: float = RENEWED_EVERY_S
    _wanted: int = 0
    _news: queue.SimpleQueue[int | None] = field(default_factory=queue.SimpleQueue)
    _thread: threading.Thread | None = None
    _announced: bool = False
    _warned: bool = False

    def want(self, slices: int) -> None:
        """So many in all, because one of them is missing; 0: none is. Returns at once."""
        if slices == self._wanted:
            return
        self._wanted = slices
        self._news.put(slices)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="shaketable-slice-demand", daemon=True)
            self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Withdraw; returns when that is done, or after `timeout_s`: then it expires."""
        self._news.put(None)
        if self._thread is not None:
            self._thread.join(timeout_s)

    # ---- the thread

    def _run(self) -> None:
        wanted, due_s = 0, math.inf
        while True:
            try:
                news = self._news.get(timeout=None if wanted == 0 else max(0.0, due_s - time.monotonic()))
            except queue.Empty:
                self._try(self._announce, wanted)
                due_s = time.monotonic() + self.renew_s
                continue
            if not news:
                self._try(self._withdraw)
            elif self._announced:
                due_s = time.monotonic()
            elif wanted == 0:
                due_s = time.monotonic() + self.after_s
            if news is None:
                return
            wanted = news

    def _announce(self, slices: int) -> None:
        # before: what is not answered may have been heard
        self._announced = True
        self.coordinator.request([self.bundle] * slices, EXPIRES_AFTER_S)

    def _withdraw(self) -> None:
        if self._announced:
            self._announced = False
            self.coordinator.cancel()

    def _try(self, call: Callable[..., None], *arguments: int) -> None:
        """The outermost boundary of this thread."""
        try:
            call(*arguments)
        except (RayError, ImportError, RuntimeError, ValueError, OSError) as error:
            if not self._warned:
                self._warned = True
                why = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
                self.warn(
                    f"no autoscaler can be told of missing slices: {why}. The run continues with the slices that exist;"
                    " if there is an autoscaler, look for the actor AutoscalingCoordinator, which needs 'ray[data]'"
                )
