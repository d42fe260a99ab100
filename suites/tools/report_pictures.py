"""Takes the pictures of a report that the docs show: `python -m shaketable.suites.tools.report_pictures RESULTS`.

RESULTS is a results directory, such as that of `shaketable run`. Needs `suites/tools/browser.py`'s Chromium.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shaketable.suites.command.compare_command import recorded
from shaketable.suites.gate.outputs import LiveReport
from shaketable.suites.tools import browser

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAINTED_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Picture:
    """`around`: zoomed around the first fault of the first experiment, which is opened."""

    name: str
    width: int
    height: int
    dark: bool = False
    around: bool = False


PICTURES = (
    Picture("report.png", 1280, 1100, around=True),
    Picture("report-dark.png", 1280, 1100, dark=True),
    Picture("report-phone.png", 420, 1100, around=True),
)


def take(page: Path, folder: Path) -> None:
    for picture in PICTURES:
        with browser.browser(picture.width, picture.height, dark=picture.dark) as driver:
            driver.get(page.absolute().as_uri())
            _show(driver, around=picture.around)
            browser.screenshot(driver, folder / picture.name)


def _show(driver: Any, *, around: bool) -> None:
    script = (
        "const shown = document.querySelector('.experiment[open]') ?? document.querySelector('.experiment');"
        "shown.open = true; const {timeline} = view(shown); timeline.layout();"
        "const around = [...shown.querySelectorAll('.zoom .focus')].find(one => one.textContent.includes('fault'));"
        "if (arguments[0]) around?.click();"
        "history.replaceState(null, '', '#'); shown.scrollIntoView();"
    )
    driver.execute_script(script, around)
    driver.set_script_timeout(PAINTED_WITHIN_S)
    # two frames: one to lay out, one to paint
    driver.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")


def main(arguments: list[str]) -> None:
    (results,) = map(Path, arguments)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        LiveReport.of(recorded(results), results, page).write(recorded(results))
        take(page, DOCS)


if __name__ == "__main__":
    main(sys.argv[1:])
