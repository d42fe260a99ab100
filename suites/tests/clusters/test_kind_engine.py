"""The container engine that `python -m shaketable.suites.tools.kind` starts and stops (engine.sh)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from shaketable.suites.tools.kind.setting import HERE

# the largest pid of Linux is one less
ENDED = 1 << 22
LEFT_BY_A_KILLED_ENGINE = 'mount --bind /proc/self/ns/net "$KIND_HOME/docker-run/netns/default"'


def _mounts_of_its_own() -> bool:
    if os.geteuid() or not shutil.which("unshare"):
        return False
    return not subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode


@pytest.mark.skipif(not _mounts_of_its_own(), reason="needs root and `unshare`, for mounts of its own")
def test_an_engine_that_was_killed_is_put_away(tmp_path: Path) -> None:
    """A dockerd that was killed leaves namespaces mounted. Nothing can be removed before they are unmounted."""
    run = tmp_path / "docker-run"
    (run / "netns").mkdir(parents=True)
    (run / "netns" / "default").touch()
    (tmp_path / "dockerd.pid").write_text(str(ENDED))
    told = {
        "PATH": os.environ["PATH"],
        "HERE": str(HERE),
        "KIND_HOME": str(tmp_path),
        "BIN": str(tmp_path / "bin"),
        "OWN_ENGINE": "1",
        "DOCKER_HOST": f"unix://{tmp_path}/docker.sock",
        "NETWORK": "shaketable-test",
        "BRIDGE": "shaketest0",
    }
    # two engines were killed: the second one's mount is on top of the first one's
    twice = f"{LEFT_BY_A_KILLED_ENGINE}; {LEFT_BY_A_KILLED_ENGINE}; exec bash {HERE / 'engine.sh'} down"
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", twice], env=told, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not run.exists()
    assert not (tmp_path / "dockerd.pid").exists()
