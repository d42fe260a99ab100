"""What goes wrong by itself in a simulated run, told in its history as a fault. Nobody can ask for these."""

from __future__ import annotations

from shaketable.chaos.injection.fault import Fault


class FailUpload(Fault):
    """The storage refuses a checkpoint for good."""

    name, target_kind, loss, manner = "fail_upload", "worker", "worker", "raises"
    charged_to, causes = "max_failures", ("worker_error",)


class FailStart(Fault):
    """A worker dies before it is in the training function."""

    name, target_kind, loss, manner = "fail_start", "worker", "worker", "raises"
    charged_to = "max_start_failures"


class FreezeEverything(Fault):
    """All machines of the run stand still for a while."""

    name, target_kind, loss, manner = "freeze_everything", "cluster", "everything", "frozen"
