"""What a reader can do to the figures, in a real Chromium: point, zoom, hide, save."""

import struct
from pathlib import Path

import pytest
from browser import Browser, saved, scroll_through
from laboratory import rendered
from synthetic_lab import make_lab

from gspo_lab.report import write
from gspo_lab.report.chart import Chart, Section, Series
from gspo_lab.report.document import Article, document


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two arms and three seeds."""
    folder = tmp_path_factory.mktemp("live")
    return write(rendered(make_lab(folder)), folder)[0]


def shown(browser: Browser, figure: str) -> list[tuple[str, int | None]]:
    """(arm, seed) of everything that a figure draws, bands and marks aside."""
    plot = f"document.querySelector('#{figure} .plot')"
    found = browser.evaluate(
        f"{plot}.data.filter((one) => one.visible && !one.meta.role).map((one) => [one.meta.series, one.meta.seed])"
    )
    return [(arm, seed) for arm, seed in found]


def drawn(browser: Browser, figure: str) -> None:
    browser.wait_for(f"document.querySelector('#{figure} .main-svg')")


def press(browser: Browser, text: str) -> None:
    buttons = "[...document.querySelectorAll('.who button')]"
    browser.evaluate(f"{buttons}.find((one) => one.textContent === '{text}').click()")


def test_one_legend_hides_an_arm_and_all_seeds_in_every_figure(browser: Browser, small: Path) -> None:
    browser.open(small, "#m-reward")
    drawn(browser, "m-reward")
    assert {arm for arm, _ in shown(browser, "m-reward")} == {"grpo", "gspo"}
    press(browser, "grpo")
    assert {arm for arm, _ in shown(browser, "m-reward")} == {"gspo"}
    press(browser, "seeds")
    assert shown(browser, "m-reward") == [("gspo", None)]
    scroll_through(browser)  # what is drawn later follows
    assert shown(browser, "m-clip") == shown(browser, "m-clip-minibatch") == [("gspo", None)]
    labels = "[...document.querySelectorAll('#m-clip .annotation-text')].map((one) => one.textContent)"
    assert "gspo" in browser.evaluate(labels)
    assert "grpo" not in browser.evaluate(labels)
    pressed = "[...document.querySelectorAll('.who button')].map((one) => one.getAttribute('aria-pressed'))"
    assert browser.evaluate(pressed) == ["false", "true", "false"]
    browser.open(small, browser.evaluate("location.hash"))  # it is part of the link
    drawn(browser, "m-reward")
    assert shown(browser, "m-reward") == [("gspo", None)]
    press(browser, "grpo")
    press(browser, "seeds")
    assert len(shown(browser, "m-reward")) == 8
    assert browser.complaints() == []


def middle(browser: Browser, figure: str) -> dict[str, float]:
    area = f"document.querySelector('#{figure} .nsewdrag')"
    browser.evaluate(f"{area}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    found: dict[str, float] = browser.evaluate(
        f"(b => ({{x: b.x, y: b.y, w: b.width, h: b.height}}))({area}.getBoundingClientRect())"
    )
    return found


def test_pointing_at_a_step_tells_all_arms_and_dragging_zooms(browser: Browser, small: Path) -> None:
    browser.open(small, "#m-reward")
    drawn(browser, "m-reward")
    area = middle(browser, "m-reward")
    x, y = area["x"] + area["w"] / 2, area["y"] + area["h"] / 2
    hover = "document.querySelector('#m-reward .hoverlayer').textContent"
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x - 3, y=y)
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    browser.wait_for(f"{hover}.includes('gspo')")
    told = browser.evaluate(hover)
    assert "step 5" in told or "step 6" in told
    assert "grpo: 0." in told
    assert " to 0." in told  # the lowest and the highest seed
    assert "seed" not in told
    span = "document.querySelector('#m-reward .plot')._fullLayout.xaxis.range.map(Number)"
    low, high = browser.evaluate(span)
    for kind, at, held in (("mousePressed", x, 1), ("mouseMoved", x + 40, 1), ("mouseMoved", x + 80, 1),
                           ("mouseReleased", x + 80, 0)):  # fmt: skip
        browser.call("Input.dispatchMouseEvent", type=kind, x=at, y=y, button="left", buttons=held, clickCount=1)
    browser.wait_for(f"({span})[1] - ({span})[0] < {(high - low) / 2}")
    assert browser.complaints() == []


def test_a_figure_can_be_saved_as_png_and_svg(browser: Browser, small: Path, tmp_path: Path) -> None:
    browser.open(small, "#m-clip", dark=True)
    drawn(browser, "m-clip")
    browser.downloads_to(tmp_path)
    buttons = "[...document.querySelectorAll('#m-clip .save')]"
    assert browser.evaluate(f"{buttons}.map((one) => one.textContent)") == ["CSV", "PNG", "SVG"]
    browser.evaluate(f"{buttons}[1].click()")
    picture = saved(tmp_path, "toy-m-clip.png")
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">I", picture[16:20])[0] == 1800
    browser.evaluate(f"{buttons}[2].click()")
    drawing = saved(tmp_path, "toy-m-clip.svg").decode()
    assert drawing.startswith("<svg")
    date = browser.evaluate("document.querySelector('article').dataset.date")
    assert f"toy · {date}" in drawing
    assert "Clipped tokens. gspo clips" in drawing
    press(browser, "gspo")
    image = "charts.image(document.getElementById('m-clip'), 'svg').then(decodeURIComponent)"
    hidden = browser.evaluate(image)
    assert "Clipped tokens" in hidden
    assert "gspo clips" not in hidden, "a heading about an arm that is hidden"
    assert "rgb(255, 255, 255)" in drawing  # on white paper
    assert browser.complaints() == []
    assert {url.partition(":")[0] for url in browser.requests()} <= {"file", "data", "blob"}


NAME = "<b>bold</b><a href='javascript:alert(1)'>x</a>"


def test_a_hostile_name_is_drawn_as_it_is_written(browser: Browser, tmp_path: Path) -> None:
    x, name = (0.0, 1.0), NAME
    series = (Series(name, x, (1.0, 2.0)), Series("other", x, (2.0, 1.0)))
    bars = tuple(Series(name, (one, name), (1.0, 2.0)) for one in ("a",))
    charts = (
        Chart("m-one", name, name, name, series),
        Chart("m-two", name, name, name, bars, kind="dots", finding=name),
    )
    page = tmp_path / "hostile.html"
    article = Article("t", "?", {"": (Section("curves", "Figures", charts),)})
    page.write_text(document("t", [article], arms={name: 0, "other": 1}), encoding="utf-8")
    browser.open(page)
    scroll_through(browser)
    assert browser.evaluate("document.querySelectorAll('.plot :is(a, b), .plot [href]').length") == 0
    assert browser.evaluate("document.querySelector('#m-one .ytitle').textContent") == NAME
    assert browser.complaints() == []
