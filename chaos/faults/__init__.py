"""Every fault there is, by the name it has in experiment files, in Python and in the history.

Ours are the classes imported below, one line each, in the order in which exploration draws them. Other packages declare
theirs with an entry point of the group `shaketable.faults` (docs/writing-faults.md).
"""
# ruff: noqa: F401  (to import a fault is to declare it)

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from shaketable.chaos.faults import disturbances
from shaketable.chaos.injection.fault import Fault, Scene
from shaketable.chaos.plugins import Declarations

# isort: off
from shaketable.chaos.faults.sigkill_worker import SigkillWorker
from shaketable.chaos.faults.raise_in_worker import RaiseInWorker
from shaketable.chaos.faults.hang_worker import HangWorker
from shaketable.chaos.faults.freeze_worker import FreezeWorker
from shaketable.chaos.faults.sigterm_node import SigtermNode
from shaketable.chaos.faults.sigkill_node import SigkillNode
from shaketable.chaos.faults.freeze_node import FreezeNode
from shaketable.chaos.faults.drain_node import DrainNode
from shaketable.chaos.faults.add_node import AddNode
from shaketable.chaos.faults.sigkill_driver import SigkillDriver
from shaketable.chaos.faults.sigterm_driver import SigtermDriver
from shaketable.chaos.faults.sigint_driver import SigintDriver
from shaketable.chaos.faults.relaunch_driver import RelaunchDriver
from shaketable.chaos.faults.reached import Reached
from shaketable.chaos.faults.hurt_storage import HurtStorage
from shaketable.chaos.faults.fill_disk import FillDisk
from shaketable.chaos.faults.deny_writes import DenyWrites
from shaketable.chaos.faults.damage_checkpoint import DamageCheckpoint
from shaketable.chaos.faults.lose_log import LoseLog
from shaketable.chaos.faults.freeze_driver import FreezeDriver
from shaketable.chaos.faults.sigkill_agent import SigkillAgent
from shaketable.chaos.faults.slow_worker import SlowWorker
from shaketable.chaos.faults.freeze_controller import FreezeController
from shaketable.chaos.faults.freeze_raylet import FreezeRaylet
from shaketable.chaos.faults.partition_node import PartitionNode
from shaketable.chaos.faults.unplug_node import UnplugNode
from shaketable.chaos.faults.slow_network import SlowNetwork
from shaketable.chaos.faults.oom_worker import OomWorker
from shaketable.chaos.faults.fill_node_disk import FillNodeDisk
from shaketable.chaos.faults.second_run import SecondRun
from shaketable.chaos.faults.evict_node import EvictNode
from shaketable.chaos.faults.preempt_node import PreemptNode
from shaketable.chaos.faults.drain_kube_node import DrainKubeNode
from shaketable.chaos.faults.scale_down_node import ScaleDownNode
from shaketable.chaos.faults.block_replacements import BlockReplacements
from shaketable.chaos.faults.stop_operator import StopOperator
from shaketable.chaos.faults.delete_head import DeleteHead
from shaketable.chaos.faults.suspend_job import SuspendJob
from shaketable.chaos.faults.sigkill_head import SigkillHead
# isort: on

__all__ = ["FAULTS", "GROUP", "Fault", "Scene", "declared", "making_good"]

GROUP = "shaketable.faults"
NAME = re.compile(r"[a-z][a-z0-9_]*")
# What the vocabulary has besides faults.
TAKEN = ("rank", "node", "tpu_slice", "randomly", "step", "event", "state", "after", "verdict", "shake")


def _declared_in(names: dict[str, object]) -> Iterator[tuple[str, type[Fault]]]:
    for value in names.values():
        if inspect.isclass(value) and issubclass(value, Fault) and value is not Fault:
            yield value.name, value


def _wrong(name: str, declared: object) -> str:
    """What is wrong with the class of another package; empty: nothing."""
    if not (inspect.isclass(declared) and issubclass(declared, Fault)):
        return f"{declared!r} is no subclass of {Fault.__module__}.Fault"
    lacking = [part for part in ("name", "target_kind") if not hasattr(declared, part)]
    lacking += sorted(declared.__abstractmethods__)
    if lacking:
        return f"the class {declared.__name__} does not say {' and '.join(lacking)}"
    if declared.name != name:
        return f"the class {declared.__name__} is named {declared.name!r}"
    return "that is no name for a fault" if name in TAKEN or not NAME.fullmatch(name) else ""


FAULTS: Declarations[type[Fault]] = Declarations(GROUP, _declared_in(dict(globals())), _wrong)
UNPLANNED = dict(_declared_in(vars(disturbances)))


def declared(name: str) -> type[Fault] | None:
    """What is known by this name, be it a fault that can be asked for or one that happens by itself."""
    return FAULTS.get(name) or UNPLANNED.get(name)


def making_good(fault: type[Fault]) -> type[Fault] | None:
    """What brings back what `fault` takes away for good. None: nothing does, or nothing has to."""
    if fault.loss == "nothing" or (fault.loss == "driver" and fault.manner == "frozen"):
        return None
    return next((repair for repair in FAULTS.values() if repair.makes_good == fault.loss), None)
