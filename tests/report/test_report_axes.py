"""Axes that do not mislead: seconds, shares, counts, and where a study's steps end."""

from dataclasses import replace
from pathlib import Path

import pytest
from browser import Browser
from laboratory import rendered
from synthetic_lab import make_lab
from test_report_series import charts

from gspo_lab.readings import Source
from gspo_lab.records import Record, StepRecord, UpdateRecord
from gspo_lab.report import write
from gspo_lab.report.chart import Chart, Series, sentence
from gspo_lab.report.markup import percent
from gspo_lab.report.plots import plot
from gspo_lab.report.sections.curves import curves
from gspo_lab.store import Evidence
from gspo_lab.study import Run


@pytest.mark.parametrize(("slower", "kept"), [(1.15, True), (1.3, False)])
def test_seconds_are_no_axis_where_equal_work_took_unequal_times(tmp_path: Path, slower: float, kept: bool) -> None:
    def change(run: Run, record: Record) -> Record:
        if isinstance(record, StepRecord) and record.device_seconds_total and (run.arm, run.seed) == ("gspo", 1):
            slow: Record = replace(record, device_seconds_total=slower * record.device_seconds_total)
            return slow
        return record

    with Evidence.open(make_lab(tmp_path, change=change)) as evidence:
        found = charts(curves(Source(evidence, "toy")))
    for name in ("m-reward", "m-score-addition"):
        assert {"device seconds" in one.at for one in found[name].series} == {kept}
        assert all("FLOPs" in one.at for one in found[name].series)
    said = "for the same work one run of gspo took 1.3 times as long as another" in found["m-reward"].note
    assert said is not kept


def test_the_axis_holds_the_planned_steps_of_runs_that_ended_early(tmp_path: Path) -> None:
    database = make_lab(tmp_path, until=lambda run: 6, end=lambda run: "failed")
    with Evidence.open(database) as evidence:
        found = charts(curves(Source(evidence, "toy")))
    assert (found["m-reward"].reach, found["m-score-addition"].reach) == ((0.0, 11.0), (0.0, 12.0))
    assert max(found["m-reward"].series[0].x) == 5.0
    low, high = plot(found["m-reward"])["layout"]["xaxis"]["range"]
    assert low < 0 < 11 < high  # though no run came to step 11


def test_shares_are_told_in_per_cent() -> None:
    chart = Chart("c", "C", "step", "share of tokens", (Series("a", 0, (0.0, 1.0), (0.0, 0.125)),), log=True)
    assert [label for _, label in chart.axis.ticks] == ["0 %", "10 %", "100 %"]
    assert "a from 0 % at step 0 to 12.5 % at 1" in sentence(chart)
    assert [percent(v) for v in (None, 0.0, 0.00042, 0.465)] == ["not measured", "0 %", "0.0420 %", "46.5 %"]
    other = replace(chart, y_title="mean reward")
    assert [label for _, label in other.axis.ticks] == ["0", "0.1", "1"]


def test_only_counts_have_letters_for_powers_of_ten(browser: Browser, tmp_path: Path) -> None:
    def change(run: Run, record: Record) -> Record:
        if isinstance(record, UpdateRecord):
            tiny: Record = replace(record, log_ratio_std_tokens=2e-7 * (1 + run.seed))
            return tiny
        return record

    page = write(rendered(make_lab(tmp_path, change=change)), tmp_path)[0]
    browser.open(page, "#m-reward;x=FLOPs")
    browser.wait_for("document.querySelector('#m-reward .main-svg')")
    ticks = "[...document.querySelectorAll('#m-reward .{}tick text')].map((one) => one.textContent)"
    assert any(one.endswith("G") for one in browser.evaluate(ticks.format("x")))
    browser.evaluate("location.hash = 'm-log-ratio-std-tokens'")
    browser.wait_for("document.querySelector('#m-log-ratio-std-tokens .main-svg .ytick')")
    shown = browser.evaluate(ticks.replace("m-reward", "m-log-ratio-std-tokens").format("y"))
    assert shown
    assert not [one for one in shown if any(letter in one for letter in "µμmnpf")]
