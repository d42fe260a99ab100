"""`shaketable.Recorder` where Ray Train looks for it. On a Ray that is not known the run goes on unrecorded, and says
so: a recorder must never be what keeps a production run from starting.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ray.train.v2.api.callback import RayTrainCallback

if TYPE_CHECKING:
    from shaketable.chaos.subjects.ray_train.recorder import Recorder

logger = logging.getLogger(__name__)


class NotRecording(RayTrainCallback):
    """Does nothing."""


def recorder() -> type[RayTrainCallback]:
    try:
        from shaketable.chaos.subjects.ray_train.recorder import Recorder
    except ImportError as error:
        logger.error("shaketable: this run is not recorded: this Ray is not one that is known (%s)", error)
        return NotRecording
    return Recorder


def __getattr__(name: str) -> Any:
    if name != "Recorder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return recorder()


__all__ = ["NotRecording", "Recorder", "recorder"]
