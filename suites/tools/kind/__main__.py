"""`python -m shaketable.suites.tools.kind run -- --tag gate`: builds what is lacking, starts a container engine if none
is named, runs `shaketable run --cluster kind` with these arguments, and stops what it has started.

`up` and `down` are its two halves, `build` only builds, `why-not` says what is missing here, or nothing.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from types import FrameType

from shaketable.clusters.marked import MARK
from shaketable.clusters.watchdog import Watchdog
from shaketable.suites.tools.kind import prerequisites, published
from shaketable.suites.tools.kind.setting import HERE, HOME, NETWORK, RAY_IMAGE, Setting, setting
from shaketable.suites.tools.kind.stages import BuildFailed, alone, build, environment, stages, to_stderr

EXAMPLES = f"""examples:
  python -m shaketable.suites.tools.kind run                              the gate on kind, and nothing is left behind
  python -m shaketable.suites.tools.kind run -- worker-crash node-sigkill
  eval "$(python -m shaketable.suites.tools.kind up)"                     kind, kubectl and docker are on PATH now
  shaketable run worker-crash --cluster kind --image {RAY_IMAGE}
  python -m shaketable.suites.tools.kind down

{HOME} says where the cache is (12 GB), by default ~/.cache/shaketable/kind. DOCKER_HOST names an engine that is there
already; it is neither started nor stopped then."""
# the clusters, the engine's containers, and the engine
DOWN_S = 120.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m shaketable.suites.tools.kind",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["run", "build", "up", "down", "why-not"])
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="after run --: those of `shaketable run`")
    given = parser.parse_args(arguments)
    # whether argparse leaves it there depends on Python's version
    passed_on = given.arguments[given.arguments[:1] == ["--"] :]
    here, why = setting(os.environ), prerequisites.why_not()
    pulled = published.usable(os.environ) if given.what != "down" else False
    if given.what == "why-not":
        print("" if pulled else why)
        return 0
    if pulled:
        return published.main(given.what, passed_on)
    if why:
        print(f"Error: {why}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    try:
        return {"run": run, "build": only_build, "up": up, "down": down}[given.what](here, passed_on)
    except BuildFailed as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def up(here: Setting, arguments: list[str]) -> int:
    _up(here)
    for name, value in here.for_users.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def _up(here: Setting) -> None:
    with alone(here):
        told = environment(here)
        _engine("up", told)
        for stage in stages(here):
            build(here, stage, told, to_stderr)


def down(here: Setting, arguments: list[str]) -> int:
    _engine("down", here.for_scripts)
    return 0


def only_build(here: Setting, arguments: list[str]) -> int:
    stays = _is_up(here)
    try:
        _up(here)
    finally:
        if not stays:
            _down_for_good(here)
    return 0


def run(here: Setting, arguments: list[str]) -> int:
    """What `up` has started stays. A watchdog stops the rest, should this process be killed."""
    mark = f"kind-{uuid.uuid4().hex[:10]}:"
    if _is_up(here):
        _up(here)
        return _shaketable(here, arguments, mark)
    with tempfile.TemporaryDirectory(prefix="shaketable-kind-") as folder:
        last_act = ["env", f"{HOME}={here.home}", sys.executable, "-m", "shaketable.suites.tools.kind", "down"]
        watchdog = Watchdog(mark, Path(folder) / "nothing", last_act)
        try:
            _up(here)
            return _shaketable(here, arguments, mark)
        finally:
            try:
                _down_for_good(here)
            finally:
                watchdog.close()


def _is_up(here: Setting) -> bool:
    asked = ["docker", "network", "inspect", NETWORK]
    return not subprocess.run(asked, env=here.for_scripts, capture_output=True, check=False).returncode


def _shaketable(here: Setting, arguments: list[str], mark: str) -> int:
    """In a session of its own: it is interrupted once, by us, and deletes its cluster before it ends."""
    wanted = ["run", "--cluster", "kind", "--image", RAY_IMAGE, *arguments]
    command = [sys.executable, "-m", "shaketable.suites.command.cli", *wanted]
    marked = {**os.environ, **here.for_users, MARK: f"{mark}1"}
    with subprocess.Popen(command, env=marked, start_new_session=True) as running:
        try:
            return running.wait()
        except KeyboardInterrupt:
            _be_patient()
            running.send_signal(signal.SIGTERM)
            return running.wait()


def _down_for_good(here: Setting) -> None:
    _be_patient()
    _engine("down", here.for_scripts)


def _be_patient() -> None:
    """Whoever interrupts once more would leave something behind."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _engine(what: str, told: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", str(HERE / "engine.sh"), what],
        env=told,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DOWN_S,
    )
    if done.returncode:
        raise BuildFailed(f"the container engine ({what}): {(done.stdout + done.stderr).strip()}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
