"""The system's Chromium without a window, to look at pages: for the pictures of the docs, and the tests of the report.

Selenium is a development tool (the group `browser`), the browser comes with the system: `apt-get install chromium
chromium-driver`.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROWSERS, DRIVERS = ("chromium", "chromium-browser", "google-chrome"), ("chromedriver",)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)
PAGE_WITHIN_S = 60


def missing() -> str:
    """What is not there, and what to do; empty: nothing."""
    if importlib.util.find_spec("selenium") is None:
        return "selenium is not installed: pip install selenium"
    for names in (BROWSERS, DRIVERS):
        if not _found(names):
            return f"there is no {names[0]}: apt-get install chromium chromium-driver"
    return ""


@contextmanager
def browser(width: int = 1280, height: int = 900, *, dark: bool = False) -> Iterator[Any]:
    """A selenium driver with a profile of its own. Raises RuntimeError where something is `missing`."""
    if said := missing():
        raise RuntimeError(said)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory(prefix="shaketable-browser-", ignore_cleanup_errors=True) as profile:
        driver = webdriver.Chrome(options=_options(profile), service=Service(_found(DRIVERS)))
        try:
            driver.set_page_load_timeout(PAGE_WITHIN_S)
            resize(driver, width, height)
            if dark:
                _emulate(driver, "dark")
            yield driver
        finally:
            driver.quit()


def _options(profile: str) -> Any:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = _found(BROWSERS)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return options


def resize(driver: Any, width: int, height: int) -> None:
    """Of the page itself: a window is never narrower than 500 pixels."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def _emulate(driver: Any, scheme: str) -> None:
    told = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", told)


def complaints(driver: Any) -> list[str]:
    """What the console has said since it was last asked; a page of ours says nothing."""
    return [json.dumps(entry["message"]) for entry in driver.get_log("browser")]


def screenshot(driver: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    driver.save_screenshot(str(path))


def _found(names: tuple[str, ...]) -> str:
    return next((path for name in names if (path := shutil.which(name))), "")
