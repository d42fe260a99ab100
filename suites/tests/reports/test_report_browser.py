"""Each interactive piece of the report, clicked in the system's Chromium. Whatever the console says fails the test."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shaketable.suites.tests.rigs import repeated_runs
from shaketable.suites.tests.rigs.calling import called
from shaketable.suites.tests.rigs.report_pages import run_in
from shaketable.suites.tools import browser

pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(bool(browser.missing()), reason=browser.missing() or "there is a browser"),
]
BROKEN = "two-drivers"
HIT = "node-sigkill"
PLAYED = [("worker-crash", ""), (BROKEN, "fence-ignored"), (HIT, "")]
# a gate as it is run: 22 experiments
GATE = (
    *("below-min", "driver-sigkill", "driver-sigkill-commit", "driver-sigkill-upload", "driver-sigterm"),
    *("early-reclaim", "grow-sharded", "node-added", "node-frozen", "node-sigkill", "node-sigterm", "reopened"),
    *("slice-host-by-host", "slice-host-sigkill", "spare-node", "spot-to-on-demand", "storage-throttled"),
    *("two-drivers", "two-nodes", "worker-crash", "worker-crash-beyond-budget", "worker-exception"),
)
SEEN_WITHIN_S = 20.0
MOST_BYTES = 3_000_000
# interactive: its scripts have run
INTERACTIVE_WITHIN_S = 1.0


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_in(tmp_path_factory.mktemp("report"), PLAYED, loss=True).as_uri()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.browser() as driver:
        yield driver


@pytest.fixture
def opened(chromium: Any, page: str) -> Iterator[Any]:
    browser.resize(chromium, 1280, 900)
    yield at(chromium, page)
    assert browser.complaints(chromium) == []


def at(driver: Any, address: str) -> Any:
    """Loaded anew, also where only the part behind # differs."""
    driver.get("about:blank")
    browser.complaints(driver)
    driver.get(address)
    return driver


def all_of(driver: Any, css: str) -> list[Any]:
    found: list[Any] = driver.find_elements("css selector", css)
    return found


def one(driver: Any, css: str) -> Any:
    return all_of(driver, css)[0]


def choose(driver: Any, css: str, text: str) -> None:
    from selenium.webdriver.support.select import Select

    Select(one(driver, css)).select_by_visible_text(text)


def show(driver: Any, element: Any) -> None:
    """In the middle of the screen. The page hears of it with the next frame, and then hides its tip."""
    driver.execute_async_script(
        "arguments[0].scrollIntoView({block: 'center'});"
        "requestAnimationFrame(() => requestAnimationFrame(() => arguments[1]()))",
        element,
    )


def press(driver: Any, element: Any) -> None:
    show(driver, element)
    element.click()


def wait_for(what: Callable[[], object], name: str) -> None:
    deadline_s = time.monotonic() + SEEN_WITHIN_S
    while not what():
        assert time.monotonic() < deadline_s, f"{name}: not within {SEEN_WITHIN_S:g} s"
        time.sleep(0.05)


def seen(driver: Any) -> list[str]:
    return [each.get_attribute("id") for each in all_of(driver, ".experiment") if each.is_displayed()]


def ticks(driver: Any, name: str = BROKEN) -> list[str]:
    return [tick.text for tick in all_of(driver, f"#{name} .tick")]


def test_the_failing_experiment_stands_first_and_open(opened: Any) -> None:
    assert seen(opened)[0] == BROKEN
    assert [each.get_attribute("id") for each in all_of(opened, ".experiment[open]")] == [BROKEN]


def test_search_verdict_fault_and_invariant_filter_the_experiments(opened: Any) -> None:
    one(opened, "#search").send_keys("killed step")
    assert seen(opened) == ["worker-crash"]
    assert one(opened, "#count").text == "1 of 3 shown"
    one(opened, "#search").clear()
    press(opened, one(opened, ".filters [data-verdict=FAIL]"))
    assert seen(opened) == [BROKEN]
    press(opened, one(opened, ".filters [data-verdict=FAIL]"))
    choose(opened, "#by-fault", "sigkill_node")
    wait_for(lambda: seen(opened) == [HIT], "only what has that fault is shown")
    choose(opened, "#by-fault", "any fault")
    choose(opened, "#by-invariant", "resume-from-checkpoint (1)")
    wait_for(lambda: seen(opened) == [BROKEN], "only what violates that invariant is shown")


def test_filters_and_stretches_of_time_survive_in_the_address(opened: Any, page: str) -> None:
    press(opened, one(opened, ".filters [data-verdict=PASS]"))
    address = opened.current_url
    assert address.endswith("#?v=PASS")
    assert len(seen(at(opened, address))) == 2
    at(opened, f"{page}#node-sigkill@6.0-7.0")
    assert one(opened, "#node-sigkill").get_attribute("open") is not None
    assert (ticks(opened, "node-sigkill")[0], ticks(opened, "node-sigkill")[-1]) == ("6.0 s", "7.0 s")


def test_the_link_of_an_experiment_opens_it(opened: Any) -> None:
    press(opened, one(opened, ".overview a[href='#worker-crash']"))
    wait_for(lambda: one(opened, "#worker-crash").get_attribute("open") is not None, "the experiment is open")
    assert all_of(opened, "#worker-crash .body")[0].is_displayed()


def test_open_all_opens_and_closes_what_is_shown(opened: Any) -> None:
    press(opened, one(opened, "#open-all"))
    assert len(all_of(opened, ".experiment[open]")) == 3
    press(opened, one(opened, "#open-all"))
    assert all_of(opened, ".experiment[open]") == []


def test_the_copy_button_copies_the_reproduction_command(opened: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    press(opened, one(opened, f"#{BROKEN} .copy"))
    wait_for(lambda: one(opened, f"#{BROKEN} .copy").text == "Copied", "the button says so")
    one(opened, "#search").send_keys(Keys.CONTROL, "v")
    pasted = one(opened, "#search").get_attribute("value")
    assert pasted == f"shaketable run shaketable-results/latest/{BROKEN}/experiment.yaml --mutant fence-ignored"


def test_a_link_leads_to_the_drivers_log(opened: Any) -> None:
    (link,) = [link for link in all_of(opened, f"#{BROKEN} .files a") if link.text == "log of driver 0"]
    press(opened, link)
    wait_for(lambda: "the driver says hello" in opened.page_source, "the log is shown")


def test_the_buttons_zoom_around_the_fault_and_back(opened: Any, page: str) -> None:
    at(opened, f"{page}#{HIT}")
    whole = ticks(opened, HIT)
    button = next(each for each in all_of(opened, f"#{HIT} .zoom .focus") if "fault" in each.text)
    press(opened, button)
    begin, end = (float(tick.split()[0]) for tick in (ticks(opened, HIT)[0], ticks(opened, HIT)[-1]))
    assert float(button.get_attribute("data-from")) <= begin < end <= float(button.get_attribute("data-to"))
    assert "on" in button.get_attribute("class")
    around = ticks(opened, HIT)
    for css in (".in", ".later", ".earlier", ".out"):
        press(opened, one(opened, f"#{HIT} .zoom {css}"))
        assert ticks(opened, HIT) != whole
    assert ticks(opened, HIT) == around
    press(opened, one(opened, f"#{HIT} .zoom .whole"))
    assert ticks(opened, HIT) == whole


def test_dragging_over_the_time_line_or_the_chart_zooms_both(opened: Any) -> None:
    from selenium.webdriver import ActionChains

    whole = ticks(opened)
    for place in (f"#{BROKEN} rect.lane-commits", f"#{BROKEN} .u-over"):
        lane = one(opened, place)
        show(opened, lane)
        ActionChains(opened).move_to_element(lane).click_and_hold().move_by_offset(120, 0).release().perform()
        wait_for(lambda: ticks(opened) != whole, f"{place} zooms")
        shown = opened.execute_script(
            "const {timeline} = views.get(document.getElementById(arguments[0])); return [timeline.from, timeline.to]",
            BROKEN,
        )
        assert "@" in opened.current_url
        assert shown[1] - shown[0] < float(one(opened, f"#{BROKEN} svg.timeline").get_attribute("data-duration")) / 3
        press(opened, one(opened, f"#{BROKEN} .zoom .whole"))
        assert ticks(opened) == whole


def test_pointing_at_a_mark_shows_its_record(opened: Any) -> None:
    from selenium.webdriver import ActionChains

    mark = one(opened, f"#{BROKEN} path.mark.violation")
    show(opened, mark)
    ActionChains(opened).move_to_element(mark).perform()
    wait_for(lambda: "of history.jsonl" in one(opened, "#tip").text, "the record is shown")
    assert 'kind: "attempt_started"' in one(opened, "#tip").text
    ActionChains(opened).move_to_element(one(opened, f"#{BROKEN} h2")).perform()
    wait_for(lambda: not one(opened, "#tip").is_displayed(), "the tip goes away")


def test_step_rate_and_loss_are_plotted_with_the_faults_shaded(opened: Any) -> None:
    captions = [caption.text for caption in all_of(opened, f"#{BROKEN} figcaption")]
    assert captions == ["step rate", "loss"]
    assert len(all_of(opened, f"#{BROKEN} .charts canvas")) == 2
    painted = opened.execute_script(
        "const c = document.querySelector(arguments[0]);"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n",
        f"#{BROKEN} .charts canvas",
    )
    assert painted > 500
    labels = [label.text for label in all_of(opened, f"#{BROKEN} .chart .u-label")]
    assert labels == ["at", "steps/s", "at", "without faults", "loss"]


def test_on_a_phone_nothing_is_wider_than_the_screen_and_no_name_leaves_the_picture(opened: Any, page: str) -> None:
    browser.resize(opened, 420, 900)
    at(opened, f"{page}#node-sigkill")
    press(opened, one(opened, "#open-all"))
    assert opened.execute_script("return document.documentElement.scrollWidth") == 420
    outside = opened.execute_script(
        "return [...document.querySelectorAll('.experiment[open] svg text:not(.out)')].filter(text => {"
        " const box = text.getBoundingClientRect(), svg = text.ownerSVGElement.getBoundingClientRect();"
        " return box.width && (box.left < svg.left - 1 || box.right > svg.right + 1); }).map(text => text.textContent)"
    )
    assert outside == []


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two runs of which one recovery is slower, and one experiment fails now."""
    few, folder = {"worker-crash": 0.5, HIT: 1.0}, tmp_path_factory.mktemp("compare")
    runs = {
        "old": repeated_runs.run(1, experiments=few),
        "new": repeated_runs.run(2, experiments=few, slower={HIT: 2.5}, verdicts={"worker-crash": "FAIL"}),
    }
    for name, run in runs.items():
        repeated_runs.write(run, folder / name)
        run_in(folder / f"{name}-once", [(HIT, "")])
        for repeat in range(1, 6):
            shutil.copytree(folder / f"{name}-once" / HIT, folder / name / f"{HIT}-{repeat}", dirs_exist_ok=True)
    done = called("compare", folder / "old", folder / "new", "--html", folder / "page.html")
    assert done.exit_code == 0, done.output
    return (folder / "page.html").as_uri()


@pytest.mark.parametrize("width", [1280, 420])
def test_a_comparison_opens_what_changed_and_nothing_leaves_the_screen(
    chromium: Any, comparison: str, width: int
) -> None:
    browser.resize(chromium, width, 900)
    at(chromium, comparison)
    assert {each.get_attribute("id") for each in all_of(chromium, ".experiment[open]")} == {HIT, "worker-crash"}
    assert chromium.execute_script("return document.documentElement.scrollWidth") == width
    lefts = [name.rect["x"] for name in all_of(chromium, f"#{HIT} text.lane-name")]
    assert len(lefts) == 8 and min(lefts) >= one(chromium, f"#{HIT} svg.timeline").rect["x"]
    assert browser.complaints(chromium) == []


def test_pointing_at_a_mark_of_a_comparison_says_what_it_is(chromium: Any, comparison: str) -> None:
    from selenium.webdriver import ActionChains

    browser.resize(chromium, 1280, 900)
    at(chromium, comparison)
    mark = one(chromium, f"#{HIT} path.mark.injected")
    show(chromium, mark)
    ActionChains(chromium).move_to_element(mark).perform()
    wait_for(lambda: one(chromium, "#tip").is_displayed(), "the tip is shown")
    assert browser.complaints(chromium) == []


def test_it_follows_the_dark_mode_of_the_system(page: str) -> None:
    with browser.browser(dark=True) as driver:
        at(driver, page)
        assert driver.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(17, 21, 27)"
        assert browser.complaints(driver) == []


def test_the_page_of_a_gate_is_small_and_interactive_at_once(chromium: Any, tmp_path: Path) -> None:
    path = run_in(tmp_path, [(name, "") for name in GATE])
    assert len(GATE) == 22 and path.stat().st_size < MOST_BYTES
    took_s = min(_interactive_s(at(chromium, path.as_uri())) for _ in range(5))
    assert took_s < INTERACTIVE_WITHIN_S
    assert browser.complaints(chromium) == []


def _interactive_s(driver: Any) -> float:
    """By the browser's own clock: from the navigation until all scripts have run."""
    (entry,) = driver.execute_script("return performance.getEntriesByType('navigation').map(e => e.toJSON())")
    return float(entry["domContentLoadedEventEnd"]) / 1000
