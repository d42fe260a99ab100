"""SIGINT to the driver: somebody pressed Ctrl-C. It may tidy up; the evidence is that it went because of the signal."""

from __future__ import annotations

import signal

from shaketable.chaos.faults.processes import SignalsDriver


class SigintDriver(SignalsDriver):
    """Ctrl-C for the driver."""

    name, manner, signal, observe_within_s = "sigint_driver", "interrupted", signal.SIGINT, 30.0
