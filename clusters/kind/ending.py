"""The end of a kind cluster, whoever brings it about: the harness, or as the watchdog's last act
`python -m shaketable.clusters.kind.ending NAME`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from shaketable.clusters.protocol import ClusterError

GONE_WITHIN_S = 100.0
COMMAND_S = 90.0
LOOK_S = 0.2
# a container that a killed `kind create` had asked for may be there only after the first look
LOOKS = 2


def names() -> list[str]:
    """Of the clusters that the engine has. Raises ClusterError."""
    return _kind("get", "clusters", "-q").split()


def end_for_good(name: str) -> None:
    """Back when there is no such cluster. Raises ClusterError where there still is."""
    deadline_s, looks = time.monotonic() + GONE_WITHIN_S, 0
    while looks < LOOKS:
        _kind("delete", "cluster", "-q", "--name", name)
        looks = 0 if name in names() else looks + 1
        if time.monotonic() > deadline_s:
            raise ClusterError(f"kind cluster {name} is still there after {GONE_WITHIN_S:g} s: {by_hand(name)}")
        time.sleep(LOOK_S)


def by_hand(name: str) -> str:
    return f"`kind delete cluster --name {name}`"


def _kind(*arguments: str) -> str:
    """With a kubeconfig of its own: the user's is left as it is."""
    with tempfile.TemporaryDirectory(prefix="shaketable-kind-") as folder:
        given = {**os.environ, "KUBECONFIG": f"{folder}/config"}
        try:
            done = subprocess.run(
                ["kind", *arguments],
                env=given,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMMAND_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ClusterError(f"`kind {' '.join(arguments)}`: {error}") from error
    if done.returncode:
        raise ClusterError(f"`kind {' '.join(arguments)}`: {last_line(done.stderr)}")
    return done.stdout


def last_line(said: str) -> str:
    return (said.strip().splitlines() or ["it said nothing"])[-1]


if __name__ == "__main__":
    try:
        end_for_good(sys.argv[1])
    except ClusterError as error:
        sys.exit(str(error))
