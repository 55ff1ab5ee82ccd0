"""The page in a real Chromium. Skipped where there is none: apt-get install chromium."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser

from gspo_lab.report import Report, write

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH")


@pytest.fixture(scope="module")
def page(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(report, tmp_path_factory.mktemp("page"))[0]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM is not None
    with Browser(CHROMIUM) as opened:
        yield opened


def scroll_through(browser: Browser) -> None:
    for _ in range(60):
        browser.evaluate("window.scrollBy({top: 600, behavior: 'instant'})")
        browser.evaluate("new Promise(requestAnimationFrame)")
    browser.wait_for("[...document.querySelectorAll('figure:not(.empty)')].every((f) => f.querySelector('.main-svg'))")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_figure_comes_alive_without_complaint_or_request(browser: Browser, page: Path, dark: bool) -> None:
    browser.open(page, dark=dark)
    scroll_through(browser)
    assert browser.evaluate("document.querySelectorAll('figure.live').length") >= 20
    assert browser.evaluate("[...document.querySelectorAll('svg.chart')].every((s) => !s.checkVisibility())")
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")


def test_a_phone_never_scrolls_sideways(browser: Browser, page: Path) -> None:
    browser.open(page, width=390)
    scroll_through(browser)
    assert browser.evaluate("document.documentElement.scrollWidth") == 390


def test_a_link_leads_to_its_figure(browser: Browser, page: Path) -> None:
    browser.open(page, "#m-grad-norm")
    browser.wait_for("Math.abs(document.getElementById('m-grad-norm').getBoundingClientRect().top) < 300")


def test_without_scripts_the_verdict_the_drawings_and_the_tables_read(browser: Browser, page: Path) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
        assert browser.evaluate("document.querySelectorAll('.verdict').length") == 3
        assert browser.evaluate("[...document.querySelectorAll('svg.chart')].every((s) => s.checkVisibility())")
        assert not browser.evaluate("[...document.querySelectorAll('.plot')].some((s) => s.checkVisibility())")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_print_shows_the_drawings_and_opens_the_numbers(browser: Browser, page: Path) -> None:
    browser.open(page)
    scroll_through(browser)
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate("[...document.querySelectorAll('svg.chart')].every((s) => s.checkVisibility())")
    assert not browser.evaluate("[...document.querySelectorAll('.plot')].some((s) => s.checkVisibility())")
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert browser.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    browser.evaluate("dispatchEvent(new Event('afterprint'))")
    assert browser.evaluate("document.querySelectorAll('details[open]').length") == 0
    assert browser.pdf().startswith(b"%PDF")
