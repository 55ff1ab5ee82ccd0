"""The first screen of each study says what its study found, as the terminal does.

It fits its window and breaks no rule of axe-core.
"""

import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from assertions import assert_fields
from browser import Browser
from first_screens import CASES, page_of
from laboratory import json_of
from rich.console import Console

from gspo_lab.report import Report
from gspo_lab.report.terminal import print_answer

BEGUN = """Math.max(document.querySelector('.said').getBoundingClientRect().bottom,
  document.querySelector('.forest')?.getBoundingClientRect().top ?? 0)"""
"""Where the headline has ended and the table has begun."""
BROKEN = """[...document.querySelectorAll('.said .unbroken')].filter((one) => {
  const words = document.createRange();
  words.selectNodeContents(one);
  return words.getClientRects().length > 1;
}).map((one) => one.textContent)"""
AXE = "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations.map((one) => one.id + ': ' + one.nodes[0].html.slice(0, 200)))"  # noqa: E501


@pytest.fixture(scope="session")
def rendered_cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Report]]:
    folder = tmp_path_factory.mktemp("first")
    return {name: page_of(name, folder) for name in CASES}


@pytest.fixture(scope="module")
def pages(rendered_cases: dict[str, tuple[Path, Report]]) -> dict[str, Path]:
    return {name: page for name, (page, _) in rendered_cases.items()}


@pytest.mark.parametrize("name", [name for name in CASES if name != "import"])
def test_the_terminal_says_what_the_page_says(
    rendered_cases: dict[str, tuple[Path, Report]], name: str
) -> None:
    """The same sentences on the same evidence; of the arms the same words and values."""
    page, report = rendered_cases[name]
    (answer,) = report.answers.values()
    terminal = Console(file=io.StringIO(), width=10_000)
    print_answer(answer, terminal)
    seen = terminal.file.getvalue()  # type: ignore[attr-defined]
    written = page.read_text(encoding="utf-8").replace("\u00a0", " ")
    for row in answer.tables[0].rows if answer.tables else ():
        if row.numbers is not None:
            assert row.numbers.unstable_text in seen
            assert f">{row.numbers.unstable_text}</td>" in written
            assert row.numbers.clipped_text in seen
            assert f">{row.numbers.clipped_text}</td>" in written
    if CASES[name].sentence:  # in other cases numbers stand between a verdict's sentences
        compared = json.loads(report.json)["studies"][name]["answer"].get("comparisons")
        sentences = (
            [one["sentence"] for one in compared.values()] if compared else [answer.lines[0]]
        )
        assert CASES[name].sentence in " ".join(sentences)
        assert [
            one for one in sentences if one.rstrip(".") not in " ".join(seen.splitlines())
        ] == []


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """axe-core's source, of the npm package, if one can be had."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on PATH to fetch axe-core with")
    folder = tmp_path_factory.mktemp("axe")
    done = subprocess.run(
        [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "axe-core@4"],
        capture_output=True,
        timeout=300,
        check=False,
    )
    source = folder / "node_modules" / "axe-core" / "axe.min.js"
    if done.returncode or not source.is_file():
        pytest.skip("axe-core could not be installed")
    return source.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_the_first_screen_answers_the_title(pages: dict[str, Path], name: str) -> None:
    case = CASES[name]
    written = json_of(pages[name].with_suffix(".json"))
    said = written["studies"][name]["answer"]["answer"]
    assert_fields(said, word=case.word, colour=case.colour)
    page = pages[name].read_text(encoding="utf-8")
    assert f'<div class="said {case.colour}">\n<p class="headline">' in page
    assert ('class="word against"' in page) is (name in ("not-matched", "one-failed")), (
        "red is what must be mended"
    )
    runs = '<li class="badge good"><b aria-hidden="true">✓</b><a href="#provenance">Runs</a>'
    assert (runs in page) is (name not in ("all-collapsed", "running", "sweep", "one-failed"))
    headline = page.partition('<p class="headline">')[2].partition("</p>")[0]
    badges = re.findall(r'<li class="badge.*?<span>(.*?)</span>', page)
    assert len(badges) >= 5
    assert not [badge for badge in badges if badge in headline and len(badge.split()) > 3]
    rows = page.partition('class="variant table"')[2].partition("</table>")[0]
    assert ('class="word open">collapsed' in rows) is (name == "all-collapsed")
    assert pages[name].with_suffix(".md").read_text(encoding="utf-8").count("Next: ") == 1


def test_an_import_of_scores_has_an_axis_and_its_rules_have_their_colours(
    pages: dict[str, Path],
) -> None:
    page = pages["import"].read_text(encoding="utf-8")
    assert '"range":[0,0]' not in page
    assert (
        '[data-arm="grpo"]{--c:var(--a0)}' in page,
        '[data-arm="gspo"]{--c:var(--a1)}' in page,
    ) == (True, True)


def test_a_sweep_first_says_how_its_rules_compare(pages: dict[str, Path]) -> None:
    headline = pages["sweep"].read_text(encoding="utf-8").partition('<p class="headline">')[2]
    comparison, rules = headline.partition("</p>")[0].split("<small>")
    assert (comparison.count("tolerates"), rules.count("collapse point")) == (1, 2)
    assert "collapse point" not in comparison


def test_a_sweep_over_a_key_shows_its_curve_and_every_value_below_the_headline(
    rendered_cases: dict[str, tuple[Path, Report]],
) -> None:
    """At 0.01 gspo ends 0.1 above grpo on every seed; no run collapsed."""
    page, report = rendered_cases["over"]
    answer = page.read_text(encoding="utf-8").partition('<div class="about">')[0]
    marks = ('"headline"', '"meaning', 'id="m-score-by-value"', '"forest"')
    places = [answer.index(mark) for mark in marks]
    assert places == sorted(places)
    (view,) = report.answers.values()
    *rows, last = view.tables[0].rows
    assert (len(rows), last.subject) == (5, "gspo@0.01")
    assert last.difference_text.startswith("+0.100")
    assert "stability" not in json.loads(report.json)["studies"]["over"]
    assert "dose" not in report.markdown


def test_a_running_study_tells_its_time_with_units(pages: dict[str, Path]) -> None:
    """Four runs have 7 of 12 steps of 1.1 s left, side by side."""
    assert "About 8\u00a0s of training are left" in pages["running"].read_text(encoding="utf-8")


def test_no_arm_that_a_verdict_calls_worse_may_be_the_best(pages: dict[str, Path]) -> None:
    """gspo is better than grpo.

    The 66 tests among twelve arms are weaker. They must not call grpo the best.
    """
    answer = json_of(pages["twelve-arms"].with_suffix(".json"))["studies"]["twelve-arms"]["answer"]
    assert answer["verdicts"]["gspo"]["direction"] == 1
    assert "gspo" in answer["ranking"]["may_be_best"]
    assert "grpo" not in answer["ranking"]["may_be_best"]


def test_the_digest_of_twelve_arms_fits_a_pull_request_too(pages: dict[str, Path]) -> None:
    shown, fold, _ = (
        pages["twelve-arms"].with_suffix(".md").read_text(encoding="utf-8").partition("<details>")
    )
    assert fold
    assert len(shown.splitlines()) <= 15


@pytest.mark.slow
def test_it_fits_phone_and_desktop_and_any_arm_is_the_baseline(
    browser: Browser, pages: dict[str, Path]
) -> None:
    for name, page in pages.items():
        for width in (390, 1280):
            browser.open(page, width=width, height=900)
            assert browser.evaluate("document.documentElement.scrollWidth") <= width, name
            assert browser.evaluate(BEGUN) < 900, name
            assert browser.evaluate(BROKEN) == [], name
    browser.open(pages["not-resolved"])
    shown = (
        "[...document.querySelectorAll('.variant')].filter((one) => one.checkVisibility()).length"
    )
    assert browser.evaluate(shown) == 1
    browser.click("document.querySelectorAll('.arms > label')[2]")
    browser.wait_for("document.querySelectorAll('.variant')[2].checkVisibility()")
    assert browser.evaluate(shown) == 1


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_violation_of_axe(
    browser: Browser, pages: dict[str, Path], axe: str, dark: bool
) -> None:
    for name in CASES:
        browser.open(pages[name], dark=dark)
        browser.evaluate(
            "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
        )
        browser.evaluate(axe)
        assert browser.evaluate(AXE) == [], name
