"""The agent: a Ray actor, one per worker, that holds the resources and outlives attempts.

Its work is done by one thread (`loop.py`) that lives as long as the process: the fork server's parent-death signal
hangs on it (docs/architecture.md, "Process tree"). Without its driver it ends.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, get_current_placement_group, remove_placement_group

from shaketable.runtime import ray_internals
from shaketable.runtime.agent.checkpoint_io import Place
from shaketable.runtime.agent.loop import AgentLoop, AgentSpec, DriverSilent, Leave
from shaketable.runtime.errors import ShaketableError
from shaketable.runtime.transport import wire
from shaketable.runtime.transport.wire import ChannelClosed

_GIVEN_BACK_S = 2.0


class Agent:
    """The actor. Everything happens on its thread; Ray only ever asks whether it has come up."""

    def __init__(self, spec: AgentSpec) -> None:
        node_id = ray.get_runtime_context().get_node_id()
        place = Place(node_id, ray_internals.node_ip(), ray_internals.session_directory() / "shaketable")
        lease = get_current_placement_group()
        threading.Thread(target=_live, args=(spec, place, lease), name="shaketable-agent", daemon=True).start()

    def up(self) -> bool:
        return True


def _live(spec: AgentSpec, place: Place, lease: PlacementGroup | None) -> None:
    """The agent's whole life. The process ends with it, so that the lease returns to Ray."""
    try:
        AgentLoop(wire.connect(spec.host, spec.port, spec.secret), spec, place).run()
    except Leave:
        pass
    except (ChannelClosed, OSError, ShaketableError) as error:
        print(f"shaketable agent {spec.agent} leaves: {error}", file=sys.stderr, flush=True)
        if isinstance(error, DriverSilent):
            _give_back(lease)
    except Exception:  # noqa: BLE001  (a bug of ours, which os._exit would hide: the agent's log has to have it)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


def _give_back(lease: PlacementGroup | None) -> None:
    """The end of this process frees nothing: the placement group is the driver's, and goes only with that. Without this
    another driver of the run would wait for the machines until the stopped one is ended or thawed."""
    if lease is None:
        return
    try:
        remove_placement_group(lease)
        # Ray does it behind our back, and ends this process
        time.sleep(_GIVEN_BACK_S)
    except (RayError, RuntimeError, OSError) as error:
        print(f"shaketable agent: its lease could not be given back: {error}", file=sys.stderr, flush=True)
