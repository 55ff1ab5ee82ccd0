"""Figures as data: axes, sentences, tables, headings and Plotly JSON.

The JSON is checked against Plotly's own schema.
"""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from assertions import assert_fields
from synthetic_lab import FOUR_ARMS, TWO_ARMS, each, make_lab, right

from gspo_lab.analysis.claims.library import LIBRARY
from gspo_lab.analysis.readings import Source
from gspo_lab.common.plain_data import JsonObject, OptionalText
from gspo_lab.recording.records import StepRecord, UpdateRecord
from gspo_lab.recording.store import Evidence
from gspo_lab.report import Report, page
from gspo_lab.report.chart import (
    Axis,
    Chart,
    Kind,
    Reference,
    Series,
    linear_axis,
    log_axis,
    numbers,
    sentence,
)
from gspo_lab.report.page import Figures, document
from gspo_lab.report.plotly_json import (
    COLOURS,
    DARK,
    LIGHT,
    arm_colours,
    colour_name,
    dash,
    plot,
    template,
)
from gspo_lab.report.views.curves import CLIPPED, EXPERT_CHANGE, curves_view
from gspo_lab.study import Run

HOSTILE = "<b onclick=alert(1)>&amp;</b>\u202e%{x}"
X = (0.0, 1.0)


def lines(*series: Series, unit: str = "value", **look: Any) -> Chart:
    return Chart("m-x", "X", "step", unit, series, **look)


def traces(chart: Chart, role: OptionalText = None) -> list[JsonObject]:
    return [one for one in plot(chart, {"a": 0, "b": 1})["data"] if one["meta"].get("role") == role]


def valid(found: JsonObject, look: JsonObject) -> go.Figure:
    """Plotly's own validation: ValueError for anything that is no part of its schema."""
    return go.Figure({"data": found["data"], "layout": {**found["layout"], "template": look}})


@pytest.mark.parametrize("values", [[], [0.5], [0.0], [3.0, 3.0], [-2.0, -1.0], [1e-9, 2e-9]])
def test_every_value_lies_on_the_axis(values: list[float]) -> None:
    axis = linear_axis(values, from_zero=False)
    assert axis.low < axis.high
    assert all(axis.low <= value <= axis.high for value in values)


def test_on_a_log_axis_zero_has_a_row_of_its_own() -> None:
    axis = log_axis([0.0, 1e-3, 0.1])
    assert (axis.ticks, axis.high) == ((0.0, 1e-3, 1e-2, 0.1), -1)
    # The gap is a part of the whole axis, from the row of zero to the highest decade.
    assert (-3 - axis.low) / (axis.high - axis.low) == pytest.approx(Axis.GAP)
    assert log_axis([1e-3, 0.1]) == Axis(-3, -1, None, (1e-3, 1e-2, 0.1))
    found = plot(
        lines(Series("a", X, (0.0, 0.1)), Series("grey", X, (0.01, None)), log=True), {"a": 0}
    )
    first, second = found["data"]
    assert found["layout"]["yaxis"]["ticktext"] == ["0", "0.01", "0.1"]
    assert (
        first["y"][0]
        == found["layout"]["yaxis"]["tickvals"][0]
        == found["layout"]["meta"]["zero"]
        < 0.01
    )
    assert [row[0] for row in first["customdata"]] == [0.0, 0.1]
    assert second["line"]["color"] == LIGHT["n2"], "no arm of the page"


def test_the_sentence_tells_the_ends_of_each_mean() -> None:
    series = (
        Series("grpo", (0.0, 9.0), (0.25, 0.5)),
        Series("grpo", (0.0, 9.0), (0.2, 0.4), seed=0),
        Series("gspo", (0.0, 9.0), (None, None)),
    )
    assert sentence(lines(*series)) == (
        "Line chart, X: grpo from 0.250 at step 0 to 0.500 at 9; gspo not measured."
    )
    shares = lines(Series("a", X, (0.0, 0.125)), unit="share")
    assert "a from 0 % at step 0 to 12.5 % at 1" in sentence(shares)


def test_long_tables_hold_some_of_the_points_as_they_are_and_say_so() -> None:
    """119 of 120 points are in 59 rows: one in three, and the last.

    A mean of means would be another number.
    """
    x = tuple(float(i) for i in range(120))
    head, rows, caption = numbers(lines(Series("a", x, x)))
    assert head == ["step", "a"]
    assert rows[:2] == [[0.0, 0.0], [3.0, 3.0]]
    assert rows[-1] == [119.0, 119.0]
    assert len(rows) == 41
    assert caption.endswith("one point in 3, and the last")


def test_tables_of_dots_have_a_row_per_mean_and_its_seeds_beside_it() -> None:
    series = (
        Series("a", ("0",), (0.5,)),
        Series("a", ("0",), (0.4,), seed=3),
        Series("b", ("0",), (None,)),
    )
    head, rows, _ = numbers(Chart("m-b", "B", "layer", "share", series, kind="dots"))
    assert head == ["layer", "of", "mean", "seed 3"]
    assert rows == [["0", "a", 0.5, 0.4], ["0", "b", None, None]]
    own = (Series("a", ("a",), (0.5,)), Series("b", ("b",), (0.6,)))
    assert numbers(Chart("m-d", "D", "arm", "score", own, kind="dots"))[:2] == (
        ["arm", "mean"],
        [["a", 0.5], ["b", 0.6]],
    )


def test_every_figure_of_a_page_is_valid_plotly_in_both_schemes(report: Report) -> None:
    block = re.search(r'<script type="application/json" id="figures">(.*?)</script>', report.html)
    held = json.loads(block[1])

    def unpacked(part: Any) -> Any:
        if isinstance(part, list):
            return [unpacked(one) for one in part]
        if isinstance(part, dict):
            return (
                held["lists"][part["$"]]
                if "$" in part
                else {key: unpacked(one) for key, one in part.items()}
            )
        return part

    assert len(held["figures"]) > 20
    for found in unpacked(held["figures"]).values():
        for look in held["templates"].values():
            valid(found, look)
    assert held["templates"] == {"light": template(LIGHT), "dark": template(DARK)}


KINDS: tuple[Kind, ...] = ("lines", "dots")


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_names_are_valid_and_inert_in_every_kind(kind: Kind) -> None:
    x: tuple[Any, ...] = X if kind == "lines" else (HOSTILE, "b")
    mean = Series(HOSTILE, x, (0.5, None), low=(0.4, None), high=(0.6, None))
    seed = Series(HOSTILE, x, (0.5, 0.2), seed=1)
    refs = (Reference(0.3, HOSTILE),) if kind == "lines" else ()
    chart = Chart(
        "m-x", "X", HOSTILE, HOSTILE, (mean, seed), kind=kind, reach=(0.0, 9.0), references=refs
    )
    found = plot(chart, {HOSTILE: 0})
    valid(found, template(LIGHT))
    read = {
        key: one for key, one in found["layout"].items() if key != "meta"
    }  # `meta` is never drawn
    shown = json.dumps(
        [read, [{key: one for key, one in each.items() if key != "meta"} for each in found["data"]]]
    )
    assert "&lt;b onclick" in shown
    assert "<b onclick" not in shown
    assert "\\u202e" not in shown
    assert not [each for each in found["data"] if "onclick" in each.get("hovertemplate", "")]


def test_a_missing_value_breaks_a_seeds_line_and_not_the_means() -> None:
    """A mean over seeds lacks values where one seed does: broken there it would be fragments."""
    ys = (1.0, None, 2.0, 3.0, None)
    x = tuple(map(float, range(5)))
    seed, mean = traces(lines(Series("a", x, ys, seed=0), Series("a", x, ys), reach=(0.0, 4.0)))
    assert seed["y"] == mean["y"] == list(ys)
    assert (seed.get("connectgaps"), mean["connectgaps"]) == (None, True)
    assert (seed["mode"], mean["marker"]["size"]) == ("lines+markers", [7, 0, 7, 7, 0]), (
        "few points show where they are"
    )


def test_labels_at_line_ends_do_not_overlap() -> None:
    chart = lines(*(Series(f"arm{i}", X, (0.5, 0.5 + i * 1e-4)) for i in range(4)))
    found = plot(chart, {f"arm{i}": i for i in range(4)})["layout"]
    low, high = found["yaxis"]["range"]
    height = found["height"] - 12 - 46
    ends = sorted(
        (one["y"] - low) / (high - low) * height + one["yshift"] for one in found["annotations"]
    )
    assert len(ends) == 4
    assert min(b - a for a, b in pairwise(ends)) >= 14 - 1e-6
    assert ends[0] >= -1e-6


def test_pointing_at_a_mean_tells_its_band_and_seeds_are_silent() -> None:
    seeds = [Series("a", X, ys, seed=i) for i, ys in enumerate([(1.0, 2.0), (3.0, None)])]
    found = plot(
        lines(*seeds, Series("a", X, (2.0, None), low=(1.0, 2.0), high=(3.0, 2.0))), {"a": 0}
    )
    assert found["layout"]["hovermode"] == "x unified"
    assert found["data"][-1]["customdata"] == [[2.0, 1.0, 3.0], [None, 2.0, 2.0]]
    assert [one.get("hoverinfo") for one in found["data"]] == ["skip", "skip", "skip", None]


def test_dots_stand_at_their_categories_with_seeds_beside_each_other_and_their_value_above() -> (
    None
):
    """Dots in place of bars: on a logarithmic axis the length of a bar means nothing."""
    series = [
        Series("a", ("0", "1"), (0.0, 0.2)),
        *(Series("a", ("0", "1"), (0.0, 0.3), seed=s) for s in (4, 7)),
    ]
    chart = Chart("m-b", "B", "mini-batch", "share", tuple(series), kind="dots")
    found = plot(chart, {"a": 0})
    *seeds, mean = found["data"]
    assert {one["type"] for one in found["data"]} == {"scatter"}
    assert_fields(mean, x=[0, 1], y=[0.0, 0.2])
    first, second = [one["x"] for one in seeds]
    assert first[1] < 1 < second[1]
    assert (first[1] + second[1]) / 2 == pytest.approx(1)
    assert [(one["text"], one["y"]) for one in found["layout"]["annotations"]] == [
        ("0 %", 0.0),
        ("20 %", 0.3),
    ]


def test_a_band_with_a_hole_is_two_shapes() -> None:
    x = (0.0, 1.0, 2.0, 3.0)
    at = {"prompts": (0.0, 10.0, 20.0, 30.0)}
    series = Series(
        "a",
        x,
        (1.0, 1.0, 1.0, 1.0),
        low=(0.0, None, 0.0, 0.0),
        high=(2.0, None, 2.0, 3.0),
        positions=at,
    )
    (band,) = traces(lines(series), "band")
    assert band["x"] == [0.0, 0.0, None, 2.0, 3.0, 3.0, 2.0]
    assert band["y"] == [2.0, 0.0, None, 2.0, 3.0, 0.0, 0.0]
    assert band["meta"]["at"]["prompts"] == [0.0, 0.0, None, 20.0, 30.0, 30.0, 20.0]


def test_a_published_value_is_drawn_and_on_the_axis() -> None:
    chart = lines(
        Series("a", X, (0.001, 0.002)), log=True, references=(Reference(0.15, "paper: 15 %"),)
    )
    layout = plot(chart, {})["layout"]
    (line,) = layout["shapes"]
    assert_fields(line, y0=0.15, y1=0.15, xref="paper")
    assert layout["yaxis"]["range"][1] >= 0
    assert "paper: 15 %" in [one["text"] for one in layout["annotations"]]
    assert ".15 against .0013" in LIBRARY["C04-clip-gap"].published
    assert [one.value for one in CLIPPED] == [0.15, 0.0013]
    assert "about 10 %" in LIBRARY["C09-expert-change"].published
    assert [one.value for one in EXPERT_CHANGE] == [0.1]


def test_only_a_chart_of_other_things_than_arms_has_a_legend_of_its_own() -> None:
    chart = lines(Series("a", X, X), Series("b", X, X))
    assert plot(chart, {"a": 0, "b": 1, "c": 2})["layout"]["showlegend"] is False
    assert plot(chart, {"a": 0})["layout"]["showlegend"] is True


def test_a_figure_about_two_arms_shows_the_others_in_grey_and_without_bands() -> None:
    band = {"low": (0.0, 0.0), "high": (1.0, 1.0)}
    chart = lines(*(Series(arm, X, (0.5, 0.6), **band) for arm in "abc"), focus=("a", "b"))  # type: ignore[arg-type]
    drawn = plot(chart, {"a": 0, "b": 1, "c": 2})
    means = {
        one["name"]: one["line"]["color"] for one in drawn["data"] if not one["meta"].get("role")
    }
    assert means == {"a": LIGHT["a0"], "b": LIGHT["a1"], "c": LIGHT["n2"]}
    assert {one["name"] for one in drawn["data"] if one["meta"].get("role") == "band"} == {"a", "b"}
    labels = {one["text"]: one["font"]["color"] for one in drawn["layout"]["annotations"]}
    assert labels == means


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_the_names_at_the_ends_of_lines_can_be_read(scheme: dict[str, str]) -> None:
    """WCAG's 4.5 : 1 for text: a name has its line's colour."""
    for name in (*(f"a{i}" for i in range(COLOURS)), "n1", "n2", "soft", "ink"):
        dark, light = sorted((luminance(scheme[name]), luminance(scheme["paper"])))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, name


def test_forty_arms_look_different_and_the_legend_has_their_dashes() -> None:
    arms = {f"arm{i}": i for i in range(40)}
    chart = lines(*(Series(arm, X, (float(i), 1.0)) for arm, i in arms.items()))
    looks = [(one["line"]["color"], one["line"]["dash"]) for one in plot(chart, arms)["data"]]
    assert len(set(looks)) == 40
    keys = re.findall(
        r'<line x1="0" x2="30" y1="4" y2="4"(?: stroke-dasharray="([^"]*)")?>',
        document("x", [], arms=arms),
    )
    assert [key.replace(",", "px,") + "px" if key else "solid" for key in keys] == [
        drawn for _, drawn in looks
    ]
    assert dash(0) == "solid"


def test_each_rule_has_one_colour_in_every_study(tmp_path: Path) -> None:
    """GRPO's arm has the first colour and GSPO's the second.

    Neither their order nor their names matter.
    """
    turned = TWO_ARMS.replace("[arm.grpo]", "[arm.x]\nupdate.learning_rate = 3e-5", 1).replace(
        '[arm.gspo]\nobjective = "gspo"', ""
    ) + ('[arm.s]\nobjective = "gspo"\nupdate.learning_rate = 2e-5\n[arm.y]\nobjective = "sapo"\n')
    make_lab(tmp_path, FOUR_ARMS, name="moe", record=False)
    database = make_lab(tmp_path, turned, name="turned", record=False)
    with Evidence.open(database) as evidence:
        moe = Source(evidence, "moe")
        other = Source(evidence, "turned")
        assert arm_colours([moe]) == {"grpo": 0, "grpo-replay": 2, "gspo": 1, "gspo-replay": 3}
        assert arm_colours([other]) == {"x": 0, "s": 1, "y": 2}
        assert arm_colours([moe, other])["s"] == 1


def test_a_sweep_has_one_colour_a_rule_and_one_dash_a_value(tmp_path: Path) -> None:
    rates = [1e-4 * rate for rate in range(1, 33)]
    sweep = TWO_ARMS.replace("[[bench]]", f"[sweep]\nupdate.learning_rate = {rates}\n[[bench]]")
    database = make_lab(tmp_path, sweep, name="sweep", record=False)
    with Evidence.open(database) as evidence:
        colours = arm_colours([Source(evidence, "sweep")])
    both = tuple(Series(name, ("1e-4",), (0.5,)) for name in ("grpo", "gspo"))
    drawn = plot(Chart("m-x", "X", "x", "y", both, kind="dots"), colours)["data"]
    assert [trace["marker"]["color"] for trace in drawn] == [LIGHT["a0"], LIGHT["a1"]]
    assert [colour_name(colour) for colour in colours.values()] == ["a0", "a1"] * 33
    dashes = [dash(colour) for colour in colours.values()][2:]
    assert dashes[:4] == ["solid", "solid", "9px,4px", "9px,4px"]
    assert dashes[::2] == dashes[1::2]
    assert len(set(dashes)) == 32


def test_lists_that_figures_share_are_written_once() -> None:
    x = tuple(float(i) for i in range(30))
    figures = Figures({})
    figures.add("a", lines(Series("a", x, x)), "toy")
    figures.add("b", lines(Series("a", x, x)), "toy")
    assert figures.script().count("[0,1,2,3,") == 1


@pytest.mark.parametrize(("slower", "kept"), [(1.15, True), (1.3, False)])
def test_seconds_are_no_axis_where_equal_work_took_unequal_times(
    tmp_path: Path, slower: float, kept: bool
) -> None:
    def seconds(run: Run, record: StepRecord) -> dict[str, float]:
        factor = slower if (run.arm, run.seed) == ("gspo", 1) else 1.0
        return {"device_seconds_total": factor * record.device_seconds_total}

    change = each(StepRecord, seconds)
    found = charts(make_lab(tmp_path, change=change))
    for name in ("m-reward", "m-score-addition"):
        assert {"device seconds" in one.positions for one in found[name].series} == {kept}
        assert all("FLOPs" in one.positions for one in found[name].series)
    told = (
        "for the same work one run of gspo took 1.3 times as long as another"
        in found["m-reward"].note
    )
    assert told is not kept


def charts(database: Path) -> dict[str, Chart]:
    with Evidence.open(database) as evidence:
        return curves_view(Source(evidence, "toy")).figures


def test_the_axis_holds_the_planned_steps_of_runs_that_ended_early(tmp_path: Path) -> None:
    found = charts(make_lab(tmp_path, until=lambda run: 6, end=lambda run: "failed"))
    assert (found["m-reward"].reach, found["m-score-addition"].reach) == ((0.0, 11.0), (0.0, 12.0))
    assert max(found["m-reward"].series[0].x) == 5.0
    low, high = plot(found["m-reward"], {})["layout"]["xaxis"]["range"]
    assert low < 0 < 11 < high, "though no run came to step 11"


def test_runs_leave_the_stable_ones_when_they_become_unstable(tmp_path: Path) -> None:
    """Of three runs of grpo one is dead from step 5 on: two thirds are left."""

    def dead(run: Run, record: UpdateRecord) -> dict[str, int]:
        return {"nonfinite": int((run.arm, run.seed) == ("grpo", 1) and record.step >= 5)}

    change = each(UpdateRecord, dead)
    chart = charts(make_lab(tmp_path, change=change, steps=20))["m-stable"]
    known = {one.label: (one.x, one.y) for one in chart.series}
    assert known["grpo"] == ((0.0, 5.0, 20.0), (1.0, pytest.approx(2 / 3), pytest.approx(2 / 3)))
    assert known["gspo"] == ((0.0, 20.0), (1.0, 1.0))
    assert chart.finding == "Unstable, of 3: grpo 1, gspo 0"


def test_stability_that_is_judged_at_the_end_is_no_curve_over_time(tmp_path: Path) -> None:
    """grpo ends at .1 of 20 answers after .9: below half of its best, at no known step."""
    change = right(lambda run, step: 0.1 if run.arm == "grpo" and step == 12 else 0.9)
    database = make_lab(tmp_path, TWO_ARMS + "[verdict]\nlast = 1\n", change=change)
    chart = charts(database)["m-stable"]
    assert (chart.kind, chart.x_title) == ("dots", "arm")
    assert [(one.x, one.y) for one in chart.series] == [(("grpo",), (0.0,)), (("gspo",), (1.0,))]


def test_no_verdict_has_the_colour_of_an_arm() -> None:
    style = Path(page.__file__).with_name("page.css").read_text(encoding="utf-8")
    of_verdicts = {LIGHT["ink"], DARK["ink"], LIGHT["soft"], DARK["soft"]}
    of_verdicts |= set(re.findall(r"--(?:good|bad)[a-z-]*: (#\w+)", style))
    of_arms = re.findall(r'a\d+": "(#\w+)', json.dumps([LIGHT, DARK]))
    assert len(of_arms) == 2 * COLOURS
    assert not of_verdicts & set(of_arms)
    rules = re.findall(r"^\.(?:word|said|badge)\b[^{]*\{[^}]*\}", style, re.M)
    colours = set(re.findall(r"var\(--([\w-]+)\)|#\w+", "".join(rules)))
    assert colours == {"good", "good-soft", "bad", "bad-soft", "ink", "soft", "line", "card"}
