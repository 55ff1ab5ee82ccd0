"""What only a laid-out page shows: where it stands, what is printed, what is as wide as a phone. In a real Chromium."""

from pathlib import Path

from browser import Browser, scroll_through

FOREIGN = """
(() => {
  const inside = [...document.querySelectorAll(".plot .main-svg, .plot .main-svg *")];
  const rules = [...document.querySelector("head > style").sheet.cssRules].flatMap((rule) => (rule.selectorText ? [rule] : [...rule.cssRules]));
  return rules.map((rule) => rule.selectorText).filter((one) => one !== "*" && one !== ":root" && inside.some((e) => e.matches(one)));
})()
"""
"""The rules of the page's own style that reach into a Plotly chart."""


def test_the_style_of_the_drawings_stays_out_of_the_live_charts(browser: Browser, page: Path) -> None:
    browser.open(page)
    scroll_through(browser)
    assert browser.evaluate(FOREIGN) == []
    percentages = "[...document.querySelectorAll('.of-stack .plot .bartext')]"
    assert browser.evaluate(f"{percentages}.length") > 0
    assert browser.evaluate(f"{percentages}.map((text) => getComputedStyle(text).stroke)[0]") == "none"
