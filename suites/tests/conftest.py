"""What holds for all of the project's own tests."""

from __future__ import annotations

import os
import signal

import pytest

ON_DEMAND = "SHAKETABLE_ON_DEMAND"  # nox -s on_demand


def pytest_configure() -> None:
    """Ctrl-C means Ctrl-C here and in what the tests start, also where whoever started us ignores it (nohup, `&`)."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that take minutes each belong to `nox -s on_demand`, and to no other run."""
    if ON_DEMAND in os.environ:
        return
    slow = [item for item in items if item.get_closest_marker("on_demand")]
    if slow:
        items[:] = [item for item in items if item not in slow]
        config.hook.pytest_deselected(items=slow)
