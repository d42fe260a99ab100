"""How `report()` hands a checkpoint over: whose upload it is, and what becomes of the directory."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shaketable.runtime.checkpoint import Checkpoint, CheckpointUploadMode
from shaketable.runtime.storage.files import check_name
from shaketable.runtime.text import told

UploadFunction = Callable[[Checkpoint, str], Checkpoint]


@dataclass(frozen=True, slots=True)
class Handover:
    """As in `report()`. `delete`: None for what the mode does by itself. `name`: of the directory, for `upload` alone;
    the runtime has a name of its own for each commit, so that no attempt ever writes into the directory of another."""

    mode: CheckpointUploadMode = CheckpointUploadMode.SYNC
    name: str | None = None
    delete: bool | None = None
    upload: UploadFunction | None = None

    def __post_init__(self) -> None:
        """Raises ConfigurationError (a ValueError), in the report that it is for."""
        if self.name is not None:
            check_name("report: checkpoint_dir_name", self.name)

    @property
    def staged(self) -> bool:
        return self.mode is CheckpointUploadMode.ASYNC

    @property
    def may_take(self) -> bool:
        """The entries of the directory may be moved away."""
        return self.delete is not False and self.upload is None

    def brought(self, checkpoint: Checkpoint, index: int) -> Checkpoint:
        """By the user's own upload, if there is one. Raises what that raises, ValueError, and TypeError."""
        if not isinstance(checkpoint, Checkpoint):
            raise TypeError(_foreign(checkpoint))
        if self.upload is None:
            return checkpoint
        given: Any = self.upload(checkpoint, self.name or f"checkpoint_{index:06d}")
        if not isinstance(given, Checkpoint):
            raise ValueError(
                "report: checkpoint_upload_fn must return a `shaketable.runtime.Checkpoint` of where it has put the"
                f" files, not a {type(given).__name__}"
            )
        return given

    def source(self, checkpoint: Checkpoint) -> str:
        """Its directory, which the agent on this node can read. Raises ValueError."""
        source = checkpoint.path
        if "://" in source:
            raise ValueError(
                f"report: the checkpoint is at {source}, and a commit is made of files that this node can read: write"
                " them into a local or mounted directory, without checkpoint_upload_fn and NO_UPLOAD; the runtime"
                " uploads them to storage_path"
            )
        if told(source) != source:
            raise ValueError(f"report: the directory {source!r} cannot be named in UTF-8; use another one")
        return source

    def tidy(self, given: Checkpoint) -> None:
        """Once it is handed over: what the caller does not want to keep. The mode alone decides of NO_UPLOAD (it stays)
        and of ASYNC (the directory stays, empty); never an error, for the checkpoint is safe."""
        if self.mode is CheckpointUploadMode.NO_UPLOAD or not self.delete:
            return
        with contextlib.suppress(OSError):
            shutil.rmtree(given.path)


def _foreign(given: object) -> str:
    kind = f"{type(given).__module__}.{type(given).__qualname__}"
    return f"report: checkpoint is a {kind}, not a shaketable.runtime.Checkpoint: change its import"


def handover(
    mode: CheckpointUploadMode, name: str | None, delete: bool | None, upload: UploadFunction | None
) -> Handover:
    """Of what `report()` was given; its mode also by Ray Train's own enumeration."""
    return Handover(CheckpointUploadMode(getattr(mode, "value", mode)), name, delete, upload)
