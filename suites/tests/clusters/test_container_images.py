"""What an image and the marks of a cluster of containers are made from; no engine is needed for it."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shaketable.clusters import marked
from shaketable.clusters.containers import engine, image, node
from shaketable.clusters.protocol import ClusterError
from shaketable.clusters.watchdog import Watchdog


def test_an_image_has_what_shaketable_needs_in_the_versions_that_are_installed_here() -> None:
    pinned = dict(line.split("==") for line in image.requirements())
    assert pinned["ray"] == importlib.metadata.version("ray")
    # asked for by ray, not by shaketable itself
    assert pinned["msgpack"] == importlib.metadata.version("msgpack")
    assert "moto" not in pinned and "shaketable" not in pinned


def test_an_extra_is_pinned_too() -> None:
    assert "moto" in dict(line.split("==") for line in image.requirements(["storage"]))


def test_a_library_that_is_not_installed_here_cannot_go_into_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(ClusterError, match="not installed here"):
        image.requirements()


def test_a_harness_is_told_from_another_process_that_gets_its_number() -> None:
    mine = engine.harness()
    assert engine.lives(mine) and not engine.lives(f"{mine}1") and not engine.lives("")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert not engine.lives(f"{ended.pid}-1")


def test_a_node_gets_what_the_harness_says_to_ray_and_nothing_else_of_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_health_check_period_ms", "500")
    monkeypatch.setenv("RAY_ADDRESS", "elsewhere")
    monkeypatch.setenv("SECRET", "word")
    made = node.environment("mark:1", {"TPU_NAME": "slice-0"})
    assert made["RAY_health_check_period_ms"] == "500" and made["TPU_NAME"] == "slice-0"
    assert made[marked.MARK] == "mark:1" and (Path(made["PYTHONPATH"]) / "shaketable").is_dir()
    assert not {"SECRET", "RAY_ADDRESS", "PATH"} & made.keys()


def test_a_watchdog_does_its_last_act_when_the_harness_has_ended(tmp_path: Path) -> None:
    done = tmp_path / "done"
    Watchdog(f"nobody-{os.getpid()}:", tmp_path / "nothing", ["touch", str(done)]).close()
    assert done.exists()
