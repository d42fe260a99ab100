"""Every fault there is, by the name it has in experiment files, in Python and in the history."""

from __future__ import annotations

from shaketable.chaos.faults.add_node import AddNode
from shaketable.chaos.faults.base import Fault, Scene
from shaketable.chaos.faults.damage_checkpoint import DamageCheckpoint
from shaketable.chaos.faults.deny_writes import DenyWrites
from shaketable.chaos.faults.drain_node import DrainNode
from shaketable.chaos.faults.fill_disk import FillDisk
from shaketable.chaos.faults.freeze_driver import FreezeDriver
from shaketable.chaos.faults.freeze_node import FreezeNode
from shaketable.chaos.faults.freeze_worker import FreezeWorker
from shaketable.chaos.faults.hang_worker import HangWorker
from shaketable.chaos.faults.hurt_storage import HurtStorage
from shaketable.chaos.faults.lose_log import LoseLog
from shaketable.chaos.faults.raise_in_worker import RaiseInWorker
from shaketable.chaos.faults.reached import Reached
from shaketable.chaos.faults.relaunch_driver import RelaunchDriver
from shaketable.chaos.faults.sigint_driver import SigintDriver
from shaketable.chaos.faults.sigkill_driver import SigkillDriver
from shaketable.chaos.faults.sigkill_node import SigkillNode
from shaketable.chaos.faults.sigkill_worker import SigkillWorker
from shaketable.chaos.faults.sigterm_driver import SigtermDriver
from shaketable.chaos.faults.sigterm_node import SigtermNode

__all__ = ["FAULTS", "Fault", "Scene"]

FAULTS: dict[str, type[Fault]] = {
    fault.name: fault
    for fault in (
        SigkillWorker, RaiseInWorker, HangWorker, FreezeWorker, SigtermNode, SigkillNode, FreezeNode, DrainNode,
        AddNode, SigkillDriver, SigtermDriver, SigintDriver, RelaunchDriver, Reached,
        HurtStorage, FillDisk, DenyWrites, DamageCheckpoint, LoseLog, FreezeDriver,
    )
}  # fmt: skip
