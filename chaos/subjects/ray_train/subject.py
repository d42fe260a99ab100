"""The subject `ray-train`: Ray Train V2 as it comes, observed from outside.

Read here is only what it leaves in storage: a snapshot that lists the committed checkpoints, and their directories.
It has no log, and nothing but that list tells a committed checkpoint from one whose upload was cut off.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from shaketable.chaos.history.events import AnyEvent, CheckpointProbed, LogRecord
from shaketable.chaos.history.recording import RECORDING
from shaketable.chaos.job_kinds import is_command
from shaketable.chaos.subjects.launching import driver_of_command, driver_of_job
from shaketable.chaos.subjects.probing import broken, committed, has_digests, probed
from shaketable.chaos.subjects.protocol import Launch
from shaketable.chaos.subjects.ray_train.storage import readable
from shaketable.clusters.protocol import DriverCommand

OBSERVER = "shaketable.chaos.subjects.ray_train.callbacks.Observer"
# a callback's constructor gets no arguments
TERM_ENV = "SHAKETABLE_RAY_TRAIN_TERM"
SCRIPT_ENV = "SHAKETABLE_RAY_TRAIN_SCRIPT"
SNAPSHOT = "checkpoint_manager_snapshot.json"
MARKER = ".validate_storage_marker"

# Ray Train is put through the experiments with settings that make it quicker, so that the gate does not wait for its
# polling. SHAKETABLE_RAY_TRAIN_PROFILE=stock takes its own defaults (poll 2 s, start timeout 60 s, health check 600 s,
# no collective timeout, preemption poll 5 s). `tuned` is what somebody would set who wants it as fast as it can be: the
# bench measures both. The experiments have neither, for time-outs that short would change verdicts on a busy machine.
# Whatever of these the environment sets already is left as it is.
PROFILE_ENV = "SHAKETABLE_RAY_TRAIN_PROFILE"
DEFAULT_PROFILE = "quick"
_QUICK = {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2", "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "5"}
PROFILES: Mapping[str, Mapping[str, str]] = {
    "quick": _QUICK,
    "tuned": _QUICK
    | {
        "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": "5",
        "RAY_TRAIN_COLLECTIVE_TIMEOUT_S": "5",
        "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "0.2",
    },
    "stock": {},
}


class RayTrain:
    name = "ray-train"

    def driver(self, launch: Launch, log: Path) -> DriverCommand:
        if is_command(launch.effective.job):
            return driver_of_command(launch, log, environment() | script_environment(launch))
        return driver_of_job(launch, log, environment())

    def log_records(self, storage_path: str, name: str) -> list[LogRecord]:
        return []

    def probe_checkpoints(self, events: Sequence[AnyEvent], storage_path: str, name: str) -> list[CheckpointProbed]:
        digests = has_digests(events)
        with readable(storage_path, name) as run:
            listed = _listed(run)
            return [
                probed(commit, run / commit.checkpoint, digests=digests)
                if commit.checkpoint in listed
                else broken(commit, f"{SNAPSHOT} does not list it")
                for commit in committed(events)
            ]

    def files_left(self, storage_path: str, name: str) -> list[str]:
        with readable(storage_path, name) as run:
            known = {SNAPSHOT, MARKER, RECORDING, *_listed(run)}
            left = sorted(path.name for path in run.iterdir() if path.name not in known) if run.is_dir() else []
        return [f"{name}: not in the snapshot, never removed" for name in left]


def environment() -> dict[str, str]:
    """What the driver of a Ray Train run gets besides its own."""
    profile = os.environ.get(PROFILE_ENV, DEFAULT_PROFILE)
    if profile not in PROFILES:
        raise ValueError(f"{PROFILE_ENV}={profile!r}: use one of {', '.join(PROFILES)}")
    tuned = {key: os.environ.get(key, value) for key, value in PROFILES[profile].items()}
    callbacks = [*filter(None, os.environ.get("RAY_TRAIN_CALLBACKS", "").split(",")), OBSERVER]
    return {"RAY_TRAIN_V2_ENABLED": "1", "RAY_TRAIN_CALLBACKS": ",".join(callbacks), **tuned}


def script_environment(launch: Launch) -> dict[str, str]:
    """What the observer in a user's own script is told (`script.py`, `callbacks.py`)."""
    told = {"storage_path": launch.storage_path, "address": launch.address, "step_key": launch.effective.step_key}
    return {SCRIPT_ENV: msgspec.json.encode(told).decode(), TERM_ENV: str(launch.launch + 1)}


def _listed(run: Path) -> list[str]:
    """The checkpoints that Ray Train would find: its snapshot is the only record of them."""
    snapshot = run / SNAPSHOT
    if not snapshot.exists():
        return []
    try:
        return [result["checkpoint_dir_name"] for result in json.loads(snapshot.read_bytes())["checkpoint_results"]]
    except (ValueError, KeyError, TypeError):
        # torn by a kill in the middle of its rewriting: it lists nothing, for Ray Train neither
        return []
