"""The page in a real Chromium: figures that come alive, links, tables, downloads, hostile text."""

import csv
import json
import struct
from pathlib import Path

import pytest
from browser import SETTLED, Browser, Y, axis_title, saved, scroll_through
from laboratory import source, study_json
from synthetic_lab import FOUR_ARMS, HOSTILE, each, make_lab

from gspo_lab.recording.records import AnswerRecord
from gspo_lab.report import Report, render, write
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.page import Article, document
from gspo_lab.report.views.curves import CurvesView
from gspo_lab.report.views.view import by_id

TOUCHING = """
[...document.querySelectorAll(SELECTOR)].flatMap((drawing) => {
  const texts = [...drawing.querySelectorAll("text")].filter((text) => text.textContent && text.checkVisibility());
  const boxes = texts.map((text) => text.getBoundingClientRect());
  const touch = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  return texts.flatMap((text, i) => texts.slice(i + 1).filter((_, j) => touch(boxes[i], boxes[i + 1 + j]))
    .map((other) => `${drawing.closest("[id]").id}: ${text.textContent} on ${other.textContent}`));
})
"""  # noqa: E501
"""Words of a drawing that stand in each other."""


HEIGHTS = "[...document.querySelectorAll('.plot')].map((one) => one.getBoundingClientRect().height)"


def comes_alive(browser: Browser, page: Path, width: int, dark: bool = False) -> None:
    """Every figure is in its place, without a complaint or a request.

    No words overlap, and no page scrolls sideways.
    """
    browser.open(page, width=width, dark=dark)
    before = browser.evaluate(HEIGHTS)
    assert min(before) >= 100, "every place has its height before anything is drawn"
    scroll_through(browser)
    assert browser.evaluate(HEIGHTS) == before
    assert browser.evaluate("document.querySelectorAll('figure.live').length") >= 18
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate(TOUCHING.replace("SELECTOR", "'.plot .svg-container'")) == []


def test_every_figure_of_a_dark_phone_comes_alive_and_a_dark_page_is_printed_in_light_colours(
    browser: Browser, page: Path
) -> None:
    comes_alive(browser, page, 390, dark=True)
    plot = "document.querySelector('#m-reward .plot')"
    colours = f"[{plot}._fullLayout.paper_bgcolor, {plot}.data.at(-1).line.color]"
    assert browser.evaluate(colours) == ["#14171a", "#f0803c"]
    for event, shown in (
        ("beforeprint", ["#ffffff", "#c24e00"]),
        ("afterprint", ["#14171a", "#f0803c"]),
    ):
        browser.evaluate(f"dispatchEvent(new Event('{event}'))")
        assert browser.evaluate(colours) == shown


def test_every_figure_comes_alive_and_one_switch_changes_their_x_axes_in_place(
    browser: Browser, page: Path
) -> None:
    comes_alive(browser, page, 1200)
    assert axis_title(browser, "m-reward") == "step"
    before = plotted(browser, "m-reward")
    browser.evaluate("document.querySelector('.axis input[value=\\'\\']').focus()")
    browser.press("ArrowRight")
    browser.wait_for("location.hash.includes('x=prompts')")
    assert axis_title(browser, "m-reward") == axis_title(browser, "m-score-addition") == "prompts"
    assert plotted(browser, "m-reward")[0] == [32 * (step + 1) for step in before[0]]
    assert axis_title(browser, "m-grad-norm") == "step", "it has no such positions"
    browser.evaluate(
        "document.getElementById('m-entropy').scrollIntoView({block: 'center', behavior:"
        " 'instant'})"
    )
    browser.frame()
    place = browser.evaluate(Y)
    assert place > 2000
    for axis in ("FLOPs", "prompts", ""):
        browser.click(f"document.querySelector('.axis input[value=\"{axis}\"]').parentElement")
        browser.wait_for(f"document.querySelector('.axis :checked').value === '{axis}'")
        browser.evaluate(SETTLED)
        assert browser.evaluate(Y) == place
    assert browser.complaints() == []


def test_without_scripts_the_page_reads_and_no_dead_control_shows(
    browser: Browser, page: Path
) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
        answer = "[...document.querySelectorAll('.variant tbody tr, .said .headline')]"
        assert browser.evaluate(f"{answer}.filter((one) => one.checkVisibility()).length") == 1 + 4
        said = browser.evaluate("[...document.querySelectorAll('.plot')].map((s) => s.textContent)")
        assert len(said) >= 18
        assert all(" from " in one or ": " in one for one in said)
        numbers = "document.querySelector('#m-reward table')"
        browser.evaluate("document.querySelector('#m-reward summary').click()")
        assert browser.evaluate(f"{numbers}.checkVisibility() && {numbers}.rows.length") == 13
        shown = "[...document.querySelectorAll('.variant')].map((one) => one.checkVisibility())"
        assert browser.evaluate(shown) == [True, False, False, False]
        browser.click("document.querySelectorAll('.arms > label')[1]")
        browser.wait_for(f"({shown})[1]")
        browser.evaluate(
            "document.querySelectorAll('.folded').forEach((one) => { one.open = true; })"
        )
        for read in ("#scores > .scroll table", ".item > summary"):
            assert browser.evaluate(
                f"[...document.querySelectorAll('{read}')].every((s) => s.checkVisibility())"
            )
        dead = (
            "[...document.querySelectorAll('.axis, .filters, [data-save]')].some((s) =>"
            " s.checkVisibility())"
        )
        assert not browser.evaluate(dead)
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def plotted(browser: Browser, figure: str) -> list[list[float]]:
    """The x values of every visible line of a chart."""
    found: list[list[float]] = browser.evaluate(
        f"document.querySelector('#{figure} .plot').data.filter((one) => one.visible).map((trace)"
        " => [...trace.x])"
    )
    return found


SCORES = "[...document.querySelectorAll('#scores table')][0]"


def first_cells(browser: Browser) -> list[str]:
    return browser.evaluate(f"[...{SCORES}.tBodies[0].rows].map((row) => row.cells[0].textContent)")


def test_tables_sort_by_keyboard_and_transcripts_are_filtered_and_linked(
    browser: Browser, page: Path
) -> None:
    browser.open(page, "#scores")
    declared = first_cells(browser)
    values = browser.evaluate(
        f"[...{SCORES}.tBodies[0].rows].map((row) => Number(row.cells[1].textContent))"
    )
    rising = [arm for _, arm in sorted(zip(values, declared, strict=True))]
    head = f"{SCORES}.tHead.rows[0].cells[1]"
    browser.evaluate(f"{head}.querySelector('button').focus()")
    for state, order in (("ascending", rising), ("descending", rising[::-1]), ("none", declared)):
        browser.press("Enter", "\r")
        assert browser.evaluate(f"{head}.getAttribute('aria-sort')") == state
        assert first_cells(browser) == order
    assert rising != declared
    browser.evaluate("location.hash = 'transcripts'")
    shown = (
        "[...document.querySelectorAll('.item')].filter((item) => item.checkVisibility()).length"
    )
    browser.wait_for(shown)
    every = browser.evaluate(shown)
    browser.evaluate("document.querySelector('.filters [data-show=longest]').click()")
    longest = browser.evaluate("document.querySelectorAll('.item[data-tags~=longest]').length")
    assert 0 < longest < every
    assert browser.evaluate(shown) == longest
    assert (
        browser.evaluate("document.querySelector('.filters [aria-pressed=true]').dataset.show")
        == "longest"
    )
    browser.open(page, browser.evaluate("location.hash"))
    assert browser.evaluate(shown) == longest
    target = browser.evaluate("[...document.querySelectorAll('.item')].at(-1).id")
    browser.open(page, f"#{target}")
    browser.wait_for(f"document.getElementById('{target}').open")
    top = f"document.getElementById('{target}').getBoundingClientRect().top"
    browser.wait_for(f"{top} >= 0 && {top} < innerHeight")
    assert browser.evaluate(f"document.querySelectorAll('#{target} .answer').length") == 4


def test_the_numbers_can_be_taken_along(
    browser: Browser, page: Path, report: Report, tmp_path: Path
) -> None:
    browser.open(page)
    browser.downloads_to(tmp_path)
    browser.evaluate("document.querySelector('#m-clip-minibatch .save').click()")
    rows = list(csv.reader(saved(tmp_path, "moe-m-clip-minibatch.csv").decode().splitlines()))
    assert rows[0][:2] == ["series", "seed"]
    figure = study_json(report, "moe")["clipping"]["figures"]["m-clip-minibatch"]
    means = {(row[0], row[1]): row[2] for row in figure["rows"]}
    found = {(row[2], row[0]): float(row[3]) for row in rows[1:] if row[1] == "mean"}
    assert found == pytest.approx(means, rel=1e-5)
    browser.evaluate("document.querySelector('[data-save=json]').click()")
    everything = json.loads(saved(tmp_path, "moe-data.json"))
    assert set(everything["figures"]) >= {"m-reward", "m-reward-difference", "m-entropy"}
    assert len(everything["tables"]) > 8
    browser.evaluate("document.querySelector('[data-save=csv]').click()")
    assert saved(tmp_path, "moe-figures.csv").splitlines()[0] == b"figure,series,seed,at,what,value"
    assert browser.complaints() == []


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study whose answers attack the page."""
    folder = tmp_path_factory.mktemp("hostile")

    change = each(AnswerRecord, lambda *_: {"text": HOSTILE + "x" * 100_000, "extracted": HOSTILE})
    toml = FOUR_ARMS.replace("problems = 20", "problems = 2")
    database = make_lab(folder, toml, name="moe", seeds=1, steps=4, change=change)
    with source(database, "moe") as studied:
        return write(render([studied]), folder)[0]


def test_a_hostile_transcript_does_nothing_and_breaks_nothing(
    browser: Browser, hostile: Path
) -> None:
    browser.open(hostile, width=390)
    browser.evaluate("window.alert = () => console.error('the page was broken into')")
    browser.evaluate("for (const one of document.querySelectorAll('.item')) one.open = true")
    assert browser.evaluate("document.querySelectorAll('.item .answer').length") > 4
    for width in (390, 1200):
        browser.resize(width)
        assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate("[...document.querySelectorAll('.item img, .item script')].length") == 0
    said = browser.evaluate("document.querySelector('.answer pre').textContent")
    assert said.startswith("</script><script>alert(1)</script>U+0000U+001B[31mU+202Ereversed")
    assert "characters left out" in said
    assert browser.complaints() == []


def test_a_watched_page_comes_back_to_its_place_with_what_is_new(
    browser: Browser, finished: Path, tmp_path: Path
) -> None:
    with source(finished, "moe") as studied:
        watched = write(render([studied], watch_seconds=3), tmp_path)[0]
    browser.open(watched, "#transcripts;x=prompts")
    # The page may be loading itself anew at any of these moments: then nothing is there yet, and
    # what is opened in the page that is leaving is lost. So it is opened until a page has it open
    # by itself.
    browser.wait_for(
        "(item => item && document.readyState === 'complete' && (item.open ? !window.opened :"
        " (item.open = window.opened = true, false)))(document.querySelector('.item'))"
    )
    place = "Math.abs(document.getElementById('transcripts')?.getBoundingClientRect().top) < 250"
    browser.wait_for(place)
    written = watched.read_text(encoding="utf-8")
    watched.write_text(written.replace("<h1>moe</h1>", "<h1>moe, newer</h1>"), encoding="utf-8")
    kept = (
        "document.querySelector('.item')?.open && document.querySelector('.axis :checked')?.value"
        " === 'prompts'"
    )
    newer = (
        "document.querySelector('h1')?.textContent === 'moe, newer' && document.readyState ==="
        " 'complete'"
    )
    browser.wait_for(f"{newer} && {kept} && {place}")


def shown(browser: Browser, figure: str) -> list[tuple[str, int | None]]:
    """(arm, seed) of everything that a figure draws, bands and marks aside."""
    plot = f"document.querySelector('#{figure} .plot')"
    found = browser.evaluate(
        f"{plot}.data.filter((one) => one.visible && !one.meta.role).map((one) => [one.meta.series,"
        " one.meta.seed])"
    )
    return [(arm, seed) for arm, seed in found]


def drawn(browser: Browser, figure: str) -> None:
    browser.wait_for(f"document.querySelector('#{figure} .main-svg')")


def press(browser: Browser, text: str) -> None:
    buttons = "[...document.querySelectorAll('.who button')]"
    browser.evaluate(f"{buttons}.find((one) => one.textContent === '{text}').click()")


def test_one_legend_hides_an_arm_and_all_seeds_in_every_figure(
    browser: Browser, small: Path
) -> None:
    browser.open(small, "#m-reward")
    drawn(browser, "m-reward")
    assert {arm for arm, _ in shown(browser, "m-reward")} == {"grpo", "gspo"}
    press(browser, "grpo")
    assert {arm for arm, _ in shown(browser, "m-reward")} == {"gspo"}
    press(browser, "seeds")
    assert shown(browser, "m-reward") == [("gspo", None)]
    browser.evaluate(
        "document.querySelectorAll('.folded, .fold').forEach((one) => { one.open = true; })"
    )
    for later in ("m-clip", "m-clip-minibatch"):  # what is drawn later follows
        # Figures above it that are drawn meanwhile move it, so it is scrolled to until it is drawn.
        browser.wait_for(
            f"document.getElementById('{later}').scrollIntoView({{behavior: 'instant'}}),"
            f" document.querySelector('#{later} .main-svg')"
        )
    assert shown(browser, "m-clip") == shown(browser, "m-clip-minibatch") == [("gspo", None)]
    labels = (
        "[...document.querySelectorAll('#m-clip .annotation-text')].map((one) => one.textContent)"
    )
    assert "gspo" in browser.evaluate(labels)
    assert "grpo" not in browser.evaluate(labels)
    pressed = (
        "[...document.querySelectorAll('.who button')].map((one) =>"
        " one.getAttribute('aria-pressed'))"
    )
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


def test_pointing_at_a_step_tells_all_arms_dragging_zooms_and_figures_are_saved(
    browser: Browser, small: Path, tmp_path: Path
) -> None:
    browser.open(small, "#m-reward", dark=True)
    drawn(browser, "m-reward")
    area = middle(browser, "m-reward")
    x = area["x"] + area["w"] / 2
    y = area["y"] + area["h"] / 2
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
    for kind, at, held in (
        ("mousePressed", x, 1),
        ("mouseMoved", x + 40, 1),
        ("mouseMoved", x + 80, 1),
        ("mouseReleased", x + 80, 0),
    ):
        browser.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=at,
            y=y,
            button="left",
            buttons=held,
            clickCount=1,
        )
    browser.wait_for(f"({span})[1] - ({span})[0] < {(high - low) / 2}")
    browser.evaluate("location.hash = 'm-clip'")
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


def test_a_hostile_name_is_drawn_as_it_is_written(browser: Browser, tmp_path: Path) -> None:
    x = (0.0, 1.0)
    name = "<b>bold</b><a href='javascript:alert(1)'>x</a>"
    series = (Series(name, x, (1.0, 2.0)), Series("other", x, (2.0, 1.0)))
    bars = tuple(Series(name, (one, name), (1.0, 2.0)) for one in ("a",))
    charts = (
        Chart("m-one", name, name, name, series),
        Chart("m-two", name, name, name, bars, kind="dots", finding=name),
    )
    page = tmp_path / "hostile.html"
    article = Article(
        "t", "?", {"": (CurvesView(by_id(*charts), tuple(chart.id for chart in charts)),)}
    )
    page.write_text(document("t", [article], arms={name: 0, "other": 1}), encoding="utf-8")
    browser.open(page)
    scroll_through(browser)
    assert (
        browser.evaluate("document.querySelectorAll('.plot :is(a, b), .plot [href]').length") == 0
    )
    assert browser.evaluate("document.querySelector('#m-one .ytitle').textContent") == name
    assert browser.complaints() == []
