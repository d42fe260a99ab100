"""The smallest thing that trains: a driver with one worker process, no Ray, for tests of the engine.

    python -m shaketable.suites.tests.rigs.plain_driver STORAGE JOB_CONFIG_JSON

The worker takes steps and keeps the last one in a file; when it dies, the driver charges one failure and starts it
again. `JOB_CONFIG` may ask for bad manners: {"hang": true}, {"orphan": true}, {"file": true}."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from shaketable.chaos.history.events import (
    AnyEvent,
    AttemptEnded,
    AttemptStarted,
    CheckpointProbed,
    Committed,
    LogRecord,
    Member,
    RunEnded,
    Stepped,
    TermBegan,
    WorkerFinished,
    WorkerStarted,
)
from shaketable.chaos.history.witness import Witness, WitnessConfig
from shaketable.chaos.subjects.protocol import Launch
from shaketable.clusters.protocol import DriverCommand


class PlainSubject:
    name = "plain"

    def driver(self, launch: Launch, log: Path) -> DriverCommand:
        job = json.dumps(launch.configuration.job_config | {"budget": launch.effective.max_failures})
        command = [sys.executable, "-m", "shaketable.suites.tests.rigs.plain_driver", launch.storage_path, job]
        return DriverCommand(command, log, {WitnessConfig.ENV: launch.witness.dump()})

    def log_records(self, storage_path: str, name: str) -> list[LogRecord]:
        return []

    def probe_checkpoints(self, events: Sequence[AnyEvent], storage_path: str, name: str) -> list[CheckpointProbed]:
        commits = [event for event in events if isinstance(event, Committed)]
        return [CheckpointProbed(checkpoint=event.checkpoint, index=event.index, ok=True) for event in commits]

    def files_left(self, storage_path: str, name: str) -> list[str]:
        return [path.name for path in Path(storage_path).glob("*.tmp")]


def drive(storage: Path, job: dict[str, object]) -> int:
    witness, term_file = (Witness(WitnessConfig.load(os.environ[WitnessConfig.ENV]), "driver"), storage / "term")
    term = int(term_file.read_text()) + 1 if term_file.exists() else 1
    term_file.write_text(str(term))
    witness.emit(TermBegan(term=term, spent={}))
    for attempt in range(1, 10):
        step = last(storage)
        command = [sys.executable, __file__, str(storage), json.dumps(job), str(term), str(attempt)]
        worker = subprocess.Popen(command, start_new_session=True)
        member = Member(rank=0, node_id="hex1", pid=worker.pid)
        witness.emit(
            AttemptStarted(
                term=term,
                attempt=attempt,
                world_size=1,
                members=[member],
                resume=f"step-{step}" if step else None,
                resume_index=step or None,
            )
        )
        code, done = worker.wait(), last(storage)
        witness.emit(Committed(term=term, attempt=attempt, index=done, checkpoint=f"step-{done}"))
        if code == 0:
            witness.emit(AttemptEnded(term=term, attempt=attempt, cause="finished", account=None))
            witness.emit(RunEnded(term=term, outcome="finished", metrics={"step": last(storage)}))
            return 0
        witness.emit(AttemptEnded(term=term, attempt=attempt, cause="worker_death", account="max_failures"))
        if attempt > int(str(job["budget"])) >= 0:
            break
    witness.emit(RunEnded(term=term, outcome="failed", error="beyond the budget"))
    return 1


def work(storage: Path, job: dict[str, object], term: int, attempt: int) -> None:
    witness, begun = Witness(WitnessConfig.load(os.environ[WitnessConfig.ENV]), "worker"), last(storage)
    witness.emit(
        WorkerStarted(
            term=term,
            attempt=attempt,
            rank=0,
            world_size=1,
            node_id="hex1",
            pid=os.getpid(),
            resume=f"step-{begun}" if begun else None,
        )
    )
    for step in range(begun + 1, int(str(job["steps"])) + 1):
        witness.emit(Stepped(term=term, attempt=attempt, rank=0, step=step, world_size=1))
        (storage / "last.new").write_text(str(step))
        (storage / "last.new").replace(storage / "last")
        time.sleep(0.02)
    if job.get("orphan"):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    if job.get("file"):
        (storage / "half.tmp").touch()
    while job.get("hang"):
        time.sleep(1)
    witness.emit(WorkerFinished(term=term, attempt=attempt, rank=0))


def last(storage: Path) -> int:
    text = (storage / "last").read_text() if (storage / "last").exists() else ""
    return int(text or 0)


if __name__ == "__main__":
    place, said = Path(sys.argv[1]), json.loads(sys.argv[2])
    if len(sys.argv) > 3:
        work(place, said, int(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(drive(place, said))
