"""What only a laid-out page shows: where it stands, what is printed, what is as wide as a phone.

In a real Chromium.
"""

import re
from pathlib import Path

import pytest
from browser import SETTLED, Browser, axis_title
from laboratory import rendered
from synthetic_lab import TWO_ARMS, make_lab

from gspo_lab.report import write


@pytest.mark.parametrize("target", ["m-grad-norm", "limits"])
def test_a_link_lands_on_its_target_though_charts_above_grow(
    browser: Browser, page: Path, target: str
) -> None:
    browser.open(page, width=390)
    browser.evaluate(f"location.hash = '{target}'")
    near = ".filter((f) => f.checkVisibility() && Math.abs(f.getBoundingClientRect().top) < 500)"
    alive = ".every((f) => f.querySelector('.main-svg'))"
    browser.wait_for(f"[...document.querySelectorAll('figure:not(.empty)')]{near}{alive}")
    browser.evaluate(SETTLED)
    box = "document.{}.getBoundingClientRect()"
    under = box.format(f"getElementById('{target}')")
    bar = box.format("querySelector('header')")
    below = browser.evaluate(f"{under}.top - {bar}.bottom")
    assert 0 <= below < 40


def test_the_open_part_is_three_screens_and_the_keyboard_first_skips_to_the_answer(
    browser: Browser, page: Path
) -> None:
    browser.open(page, width=1280, height=900)
    assert (
        browser.evaluate("scrollY + document.getElementById('believe').getBoundingClientRect().top")
        <= 3 * 900
    )
    folded = "[...document.querySelectorAll('.group details')].every((one) => !one.open)"
    assert browser.evaluate(folded)
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.textContent") == "Skip to the answer"
    assert browser.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    browser.press("Enter", "\r")
    browser.wait_for("document.activeElement === document.querySelector('main')")
    assert browser.evaluate("document.querySelectorAll('summary :is(a, button)').length") == 0


def test_the_baseline_is_part_of_the_link(browser: Browser, page: Path) -> None:
    browser.open(page)
    chosen = "document.querySelector('.arms input:checked').value"
    assert browser.evaluate(chosen) == "grpo"
    browser.click("document.querySelectorAll('.arms > label')[2]")
    browser.wait_for(f"{chosen} === 'gspo'")
    link = browser.evaluate("location.hash")
    assert "against-moe=gspo" in link
    browser.open(page, f"{link};x=prompts;hide=seeds")
    assert browser.evaluate(chosen) == "gspo"
    assert browser.evaluate("document.querySelectorAll('.variant')[2].checkVisibility()")
    assert browser.evaluate("document.querySelector('.axis :checked').value") == "prompts"
    browser.evaluate("document.querySelector('a[href=\\'#m-entropy\\']').click()")
    browser.wait_for(
        "location.hash.startsWith('#m-entropy;') && location.hash.includes('x=prompts')"
    )
    browser.wait_for("document.getElementById('m-entropy').classList.contains('aimed')")
    browser.evaluate(
        "document.getElementById('m-score-addition').scrollIntoView({behavior: 'instant'})"
    )
    for figure, axis in (("m-entropy", "step"), ("m-score-addition", "prompts")):
        browser.wait_for(f"document.querySelector('#{figure} .main-svg')")
        assert axis_title(browser, figure) == axis, (
            "what comes alive later follows, if it has such positions"
        )


PAPER = 718
"""Pixels between the margins of a sheet of A4."""


def test_two_sheets_are_printed_with_every_figure_and_all_of_it_on_request(
    browser: Browser, page: Path
) -> None:
    browser.open(page, width=PAPER)
    browser.call("Emulation.setEmulatedMedia", media="print")
    outside = (
        "[...document.querySelectorAll('.said, .said *, table, .answer, .badge')].filter((one) =>"
        f" {{  const box = one.getBoundingClientRect(); return box.right > {PAPER} + 1 || box.left"
        " < -1; }).map((one) => one.outerHTML.slice(0, 120))"
    )
    clipped = (
        "[...document.querySelectorAll('.scroll, .item pre')].filter((one) => one.checkVisibility()"
        " && (one.scrollHeight > one.clientHeight + 1 || one.scrollWidth > one.clientWidth +"
        " 1)).length"
    )
    hidden = (
        "[...document.querySelectorAll('section, .plot, table')].filter((s) =>"
        " !s.checkVisibility()).length"
    )
    controls = (
        "[...document.querySelectorAll('.top, .filters, .save')].some((s) => s.checkVisibility())"
    )
    seen = f"{{outside: {outside}, clipped: {clipped}, hidden: {hidden}, controls: {controls}}}"
    browser.evaluate(f"window.print = () => {{ window.seen = {seen}; }}")
    browser.evaluate("document.querySelector('button[data-print]').click()")
    assert browser.evaluate("window.seen") == {
        "outside": [],
        "clipped": 0,
        "hidden": 0,
        "controls": False,
    }
    assert browser.evaluate("document.querySelectorAll('details[open]').length") == 0
    browser.wait_for("window.Plotly")
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    shown = (
        "[...document.querySelectorAll('section')].filter((s) => s.checkVisibility()).map((s) =>"
        " s.id)"
    )
    assert browser.evaluate(shown) == ["answer", "curves"]
    drawn = "'.printed > .figures .plot'"
    wide = (
        "(b => b.width > 330 && b.right <="
        " 719)(one.querySelector('.main-svg').getBoundingClientRect())"
    )
    assert browser.evaluate(
        f"[...document.querySelectorAll({drawn})].every((one) => one.checkVisibility() && {wide})"
    )
    assert not browser.evaluate(
        "[...document.querySelectorAll('details, .top')].some((s) => s.checkVisibility())"
    )
    assert browser.evaluate("document.querySelector('.paper').checkVisibility()")
    assert len(re.findall(rb"/Type\s*/Page\b(?!s)", browser.pdf())) == 2


def test_a_phone_reads_the_claims_without_scrolling_sideways(browser: Browser, small: Path) -> None:
    browser.open(small, "#claims", width=390)
    browser.evaluate("document.querySelector('#claims details').open = true")
    boxes = "[...document.querySelectorAll('#claims .scroll')]"
    assert browser.evaluate(f"{boxes}.length") == 2
    assert (
        browser.evaluate(f"{boxes}.filter((one) => one.scrollWidth > one.clientWidth).length") == 0
    )
    said = "getComputedStyle(document.querySelector('#claims td'), '::before').content"
    assert browser.evaluate(said) == '"its source says: "'


def test_on_a_phone_names_are_whole_and_a_caption_stays_while_its_table_scrolls(
    browser: Browser, page: Path
) -> None:
    browser.open(page, "#scores", width=390)
    names = (
        "[...document.querySelectorAll('.who button')].map((one) => one.scrollWidth <="
        " one.clientWidth)"
    )
    assert browser.evaluate(names) == [True] * 5
    wide = (
        "[...document.querySelectorAll('#scores .scroll')].find((one) => one.scrollWidth >"
        " one.clientWidth + 100)"
    )
    left = f"{wide}.closest('.table').querySelector('.caption').getBoundingClientRect().left"
    before = browser.evaluate(left)
    browser.evaluate(f"{wide}.scrollTo({{left: 100, behavior: 'instant'}})")
    assert browser.evaluate(f"{wide}.scrollLeft") == 100
    assert browser.evaluate(left) == before >= 0


LONG = "a-variant-with-a-long-name-whose-learning-rate-is-" + "very-" * 9
"""With its last four digits a name of a hundred characters."""


def test_long_arm_names_leave_charts_their_room_and_differ(
    browser: Browser, tmp_path: Path
) -> None:
    toml = TWO_ARMS.replace("[arm.grpo]", f"[arm.{LONG}-0001]").replace(
        "[arm.gspo]", f"[arm.{LONG}-0003]"
    )
    named = write(rendered(make_lab(tmp_path, toml)), tmp_path)[0]
    figure = "document.getElementById('m-would-clip')"
    for width in (390, 1200):
        browser.open(named, "#m-would-clip", width=width)
        assert browser.evaluate("document.documentElement.scrollWidth") == width
        browser.wait_for(f"{figure}.querySelector('.main-svg .nsewdrag')")
        assert (
            browser.evaluate(f"{figure}.querySelector('.nsewdrag').getBoundingClientRect().height")
            > 150
        )
        names = f"[...{figure}.querySelectorAll('.xtick text')].map((text) => text.textContent)"
        shown = browser.evaluate(names)
        assert len(set(shown)) == 2, "two arms look like one"
        assert [name[-4:] for name in shown] == ["0001", "0003"]
