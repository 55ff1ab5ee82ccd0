"""Figures as plain Plotly JSON, held against Plotly's own schema."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from synthetic_lab import make_lab

from gspo_lab.readings import Source
from gspo_lab.report import Report
from gspo_lab.report.chart import Chart, Kind, Reference, Series
from gspo_lab.report.figures import Figures, figure
from gspo_lab.report.palette import DARK, LIGHT, NEUTRAL_LIGHT
from gspo_lab.report.plots import plot
from gspo_lab.report.sections.curves import curves
from gspo_lab.report.template import template
from gspo_lab.store import Evidence

"""SHA-256 of plotly-basic.min.js in the npm package plotly.js-basic-dist-min 4.1.1."""

HOSTILE = "<b onclick=alert(1)>&amp;</b>\u202e%{x}"


def lines(*series: Series, log: bool = False, reach: tuple[float, float] | None = None) -> Chart:
    return Chart("m-x", "X", "step", "share", series, log=log, reach=reach)


def traces(chart: Chart, role: str | None = None) -> list[dict[str, Any]]:
    return [one for one in plot(chart)["data"] if one["meta"].get("role") == role]


def written(report: Report) -> dict[str, Any]:
    """The page's figures with their shared lists in place."""
    block = re.search(r'<script type="application/json" id="figures">(.*?)</script>', report.html)
    assert block is not None
    held: dict[str, Any] = json.loads(block[1])

    def unpacked(part: Any) -> Any:
        if isinstance(part, list):
            return [unpacked(one) for one in part]
        if isinstance(part, dict):
            return held["lists"][part["$"]] if "$" in part else {key: unpacked(one) for key, one in part.items()}
        return part

    return {**held, "figures": unpacked(held["figures"])}


def valid(found: dict[str, Any], look: dict[str, Any]) -> go.Figure:
    """Plotly's own validation: ValueError for anything that is no part of its schema."""
    return go.Figure({"data": found["data"], "layout": {**found["layout"], "template": look}})


def test_every_figure_of_a_page_is_valid_plotly_in_both_schemes(report: Report) -> None:
    held = written(report)
    assert len(held["figures"]) > 20
    for found in held["figures"].values():
        for look in held["templates"].values():
            valid(found, look)
    assert held["templates"] == {"light": template(LIGHT), "dark": template(DARK)}


KINDS: tuple[Kind, ...] = ("lines", "bars", "stack")


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_names_are_valid_and_inert_in_every_kind(kind: Kind) -> None:
    x: tuple[Any, ...] = (0.0, 1.0) if kind == "lines" else (HOSTILE, "b")
    one = Series(HOSTILE, 0, x, (0.5, None), low=(0.4, None), high=(0.6, None))
    seed = Series(HOSTILE, 0, x, (0.5, 0.2), seed=1)
    refs = (Reference(0.3, HOSTILE),) if kind == "lines" else ()
    found = plot(Chart("m-x", "X", HOSTILE, HOSTILE, (one, seed), kind=kind, reach=(0.0, 9.0), references=refs))
    valid(found, template(LIGHT))
    read = {key: one for key, one in found["layout"].items() if key != "meta"}  # `meta` is never drawn
    shown = json.dumps([read, [{key: one for key, one in each.items() if key != "meta"} for each in found["data"]]])
    assert "&lt;b onclick" in shown
    assert "<b onclick" not in shown
    assert "\\u202e" not in shown
    assert not [each for each in found["data"] if "onclick" in each.get("hovertemplate", "")]


def test_a_missing_value_breaks_the_line_and_its_end_is_marked() -> None:
    series = Series("a", 0, (0.0, 1.0, 2.0, 3.0, 4.0), (1.0, None, 2.0, 3.0, None))
    chart = lines(series, reach=(0.0, 4.0))
    (line,) = traces(chart)
    assert line["y"] == [1.0, None, 2.0, 3.0, None]
    assert "connectgaps" not in line
    (marks,) = traces(chart, "gap")
    assert (marks["x"], marks["y"]) == ([0.0, 3.0], [1.0, 3.0])
    assert marks["customdata"] == ["no value between step 0 and 2", "no value after step 3"]


@pytest.mark.parametrize(("last", "marked"), [(11.0, False), (10.0, False), (7.0, True)])
def test_a_run_that_ends_before_its_study_is_marked(last: float, marked: bool) -> None:
    x = tuple(float(i) for i in range(int(last) + 1))
    run, other = Series("a", 0, x, x, seed=0), Series("a", 0, x, x, seed=1)
    chart = lines(run, other, Series("a", 0, x, x), reach=(0.0, 11.0))
    assert [one["customdata"] for one in traces(chart, "gap")] == ([[f"no value after step {last:g}"]] * 2) * marked
    shown = figure(chart, Figures({}))
    assert ("×: here a line ends before its study does" in shown) is marked


def test_a_spike_is_no_run_that_ended() -> None:
    x = (0.0, 1.0, 2.0)
    chart = lines(Series("a", 0, x, x), Series("a", 0, (1.0,), (9.0,), seed=0), reach=(0.0, 2.0))
    assert traces(chart, "gap") == []


def test_a_runs_end_is_marked_where_it_failed(tmp_path: Path) -> None:
    database = make_lab(tmp_path, until=lambda run: 6 if run.arm == "gspo" else 12, end=lambda run: "failed")
    with Evidence.open(database) as evidence:
        section = curves(Source(evidence, "toy"))
    assert section is not None
    reward = next(part for part in section.body if isinstance(part, Chart) and part.id == "m-reward")
    assert {one["meta"]["series"] for one in traces(reward, "gap")} == {"gspo"}
    assert {tuple(one["x"]) for one in traces(reward, "gap")} == {(5.0,)}


def test_labels_at_line_ends_do_not_overlap() -> None:
    chart = lines(*(Series(f"arm{i}", i, (0.0, 1.0), (0.5, 0.5 + i * 1e-4)) for i in range(4)))
    found = plot(chart)["layout"]
    low, high = found["yaxis"]["range"]
    height = found["height"] - 12 - 46
    ends = sorted((one["y"] - low) / (high - low) * height + one["yshift"] for one in found["annotations"])
    assert len(ends) == 4
    assert min(b - a for a, b in pairwise(ends)) >= 14 - 1e-6
    assert ends[0] >= -1e-6


def test_zero_has_a_row_of_its_own_on_a_log_axis_and_is_told_as_zero() -> None:
    x = (0.0, 1.0)
    light = Series("b", NEUTRAL_LIGHT, x, (0.01, None))
    found = plot(lines(Series("a", 0, x, (0.0, 0.1)), light, log=True))
    first, second = found["data"]
    assert found["layout"]["yaxis"]["ticktext"] == ["0", "0.01", "0.1"]
    assert first["y"][0] == found["layout"]["yaxis"]["tickvals"][0] == found["layout"]["meta"]["zero"] < 0.01
    assert [row[0] for row in first["customdata"]] == [0.0, 0.1]
    assert second["line"]["color"] == LIGHT["n2"]


def test_pointing_at_a_mean_tells_its_seeds_range_and_seeds_are_silent() -> None:
    x = (0.0, 1.0)
    seeds = [Series("a", 0, x, ys, seed=i) for i, ys in enumerate([(1.0, 2.0), (3.0, None)])]
    found = plot(lines(*seeds, Series("a", 0, x, (2.0, None))))
    assert found["layout"]["hovermode"] == "x unified"
    mean = found["data"][-1]
    assert mean["customdata"] == [[2.0, 1.0, 3.0], [None, 2.0, 2.0]]
    assert [one.get("hoverinfo") for one in found["data"]] == ["skip", "skip", None]


def test_bars_stand_at_their_categories_with_seeds_beside_each_other_and_their_value_above() -> None:
    means = (0.0, 0.2)
    series = [Series("a", 0, ("0", "1"), means), *(Series("a", 0, ("0", "1"), (0.0, 0.3), seed=s) for s in (4, 7))]
    found = plot(Chart("m-b", "B", "mini-batch", "share of tokens", tuple(series), kind="bars", whole=True))
    bar, *seeds = found["data"]
    assert (bar["type"], bar["x"], bar["y"]) == ("bar", [0, 1], [0.0, 0.2])
    assert bar["offset"] == pytest.approx(-0.42)
    first, second = (one["x"] for one in seeds)
    assert first[1] < 1 < second[1]
    assert (first[1] + second[1]) / 2 == pytest.approx(1)
    assert [(one["text"], one["y"]) for one in found["layout"]["annotations"]] == [("0 %", 0.0), ("20 %", 0.3)]
    assert found["layout"]["yaxis"]["range"][0] == 0


def test_an_envelope_with_a_hole_is_two_shapes() -> None:
    x = (0.0, 1.0, 2.0, 3.0)
    at = {"prompts": (0.0, 10.0, 20.0, 30.0)}
    series = Series("a", 0, x, (1.0,) * 4, low=(0.0, None, 0.0, 0.0), high=(2.0, None, 2.0, 3.0), at=at)
    (band,) = traces(lines(series), "band")
    assert band["x"] == [0.0, 0.0, None, 2.0, 3.0, 3.0, 2.0]
    assert band["y"] == [2.0, 0.0, None, 2.0, 3.0, 0.0, 0.0]
    assert band["meta"]["at"]["prompts"] == [0.0, 0.0, None, 20.0, 30.0, 30.0, 20.0]


def test_a_published_value_is_drawn_and_on_the_axis() -> None:
    x = (0.0, 1.0)
    chart = Chart("m", "M", "step", "share of tokens", (Series("a", 0, x, (0.001, 0.002)),), log=True,
                  references=(Reference(0.15, "paper: 15 %"),))  # fmt: skip
    layout = plot(chart)["layout"]
    (line,) = layout["shapes"]
    assert (line["y0"], line["y1"], line["xref"]) == (0.15, 0.15, "paper")
    assert layout["yaxis"]["range"][1] >= 0
    assert "paper: 15 %" in [one["text"] for one in layout["annotations"]]


def test_only_a_chart_of_other_things_than_arms_has_a_legend_of_its_own() -> None:
    x = (0.0, 1.0)
    chart = lines(Series("a", 0, x, x), Series("b", 1, x, x))
    assert plot(chart, ["a", "b", "c"])["layout"]["showlegend"] is False
    assert plot(chart, ["a"])["layout"]["showlegend"] is True


def test_forty_arms_look_different_and_none_is_grey() -> None:
    chart = lines(*(Series(f"arm{i}", i, (0.0, 1.0), (float(i), 1.0)) for i in range(40)))
    looks = {(one["line"]["color"], one["line"]["dash"]) for one in plot(chart)["data"]}
    assert len(looks) == 40
    for scheme in (LIGHT, DARK):
        for i in range(12):
            channels = [int(scheme[f"a{i}"][k : k + 2], 16) for k in (1, 3, 5)]
            assert max(channels) - min(channels) > 40, f"colour {i} is grey"


def test_a_chart_without_values_says_so_in_place_of_a_drawing() -> None:
    figures = Figures({})
    shown = figure(lines(), figures)
    assert 'id="m-x"' in shown
    assert "not measured" in shown
    assert 'class="plot"' not in shown
    assert '"figures":{}' in figures.script()


def test_lists_that_figures_share_are_written_once() -> None:
    x = tuple(float(i) for i in range(30))
    figures = Figures({})
    figures.add("a", lines(Series("a", 0, x, x)))
    figures.add("b", lines(Series("a", 0, x, x)))
    assert figures.script().count("[0,1,2,3,") == 1
