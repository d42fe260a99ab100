"""SIGTERM to the driver: its pod is evicted. It may tidy up; the evidence is that it went because of the signal."""

from __future__ import annotations

import signal

from shaketable.chaos.faults.processes import SignalsDriver


class SigtermDriver(SignalsDriver):
    """Ask the driver to go."""

    name, manner, signal, observe_within_s = "sigterm_driver", "interrupted", signal.SIGTERM, 30.0
