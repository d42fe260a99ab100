"""An agent as a process of this machine, without Ray: `python -m shaketable.suites.tests.rigs.local_agent SPEC`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from shaketable.runtime.agent.checkpoint_io import Place
from shaketable.runtime.agent.loop import AgentLoop, AgentSpec, Leave
from shaketable.runtime.transport import wire
from shaketable.runtime.transport.wire import ChannelClosed


def main() -> None:
    told = json.loads(sys.argv[1])
    folder, secret = Path(told.pop("folder")), bytes.fromhex(told.pop("secret"))
    spec = AgentSpec(secret=secret, **told)
    place = Place(f"n{spec.unit}", "127.0.0.1", folder)
    try:
        AgentLoop(wire.connect(spec.host, spec.port, spec.secret), spec, place).run()
    except (Leave, ChannelClosed):
        os._exit(0)


if __name__ == "__main__":
    main()
