"""What only real processes show: workers, agents, and the files of a real job."""

from __future__ import annotations

from typing import Any

from shaketable.suites.mutants.defining import defect, replace


@defect("agent.loop", "liveness", "grow-back", experiment="node-added", tried="processes", within_s=60)
def workers_not_killed(agentloop: Any) -> None:
    """workers of an ended attempt are not killed"""
    replace(agentloop, "_killpg", lambda original: lambda pid: None)


@defect("session", "metrics-match", experiment="torch-ddp-worker-crash", tried="processes")
def restored_without_momentum(session: Any) -> None:
    """the optimizer's momentum is not restored from a checkpoint"""

    def make(original: Any) -> Any:
        def get_checkpoint(self: Any) -> Any:
            given = original(self)
            if given is None:
                return None
            import tempfile
            from pathlib import Path

            import torch

            directory = Path(tempfile.mkdtemp(dir=self._staging))
            with given.as_directory() as restored:
                saved = torch.load(Path(restored) / "state.pt", weights_only=True)
            saved["optimizer"]["state"] = {}
            torch.save(saved, directory / "state.pt")
            return session.Checkpoint.from_directory(directory)

        return get_checkpoint

    replace(session.Session, "get_checkpoint", make)
