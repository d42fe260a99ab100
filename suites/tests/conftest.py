"""What holds for all of the project's own tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Ctrl-C means Ctrl-C here and in what the tests start, also where whoever started us ignores it (nohup, `&`)."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
