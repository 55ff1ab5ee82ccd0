import re
from itertools import pairwise
from pathlib import Path

import pytest

from gspo_lab.report import document
from gspo_lab.report.chart import Chart, Series, numbers, sentence, value_axis
from gspo_lab.report.figures import Positions, figure, for_plotly
from gspo_lab.report.palette import NEUTRAL_LIGHT, look
from gspo_lab.report.svg import draw


def lines(*series: Series, log: bool = False) -> Chart:
    return Chart("m-x", "X", "step", "share", series, log=log)


def test_a_linear_axis_has_round_ticks_that_hold_all_values() -> None:
    axis = value_axis([0.13, 0.58], log=False)
    assert [label for _, label in axis.ticks] == ["0.0", "0.2", "0.4", "0.6"]
    assert axis.place(0.0) == 0
    assert axis.place(0.3) == pytest.approx(0.5)


@pytest.mark.parametrize("values", [[], [0.5], [0.0], [3.0, 3.0], [-2.0, -1.0], [1e-9, 2e-9]])
def test_every_value_lies_on_the_axis(values: list[float]) -> None:
    axis = value_axis(values, log=False)
    assert len(axis.ticks) >= 2
    assert all(0 <= axis.place(value) <= 1 for value in values)


def forest(*values: float, margin: float | None = 0.02) -> Chart:
    return Chart("f", "F", "", "difference", (Series("a", 0, ("x",) * len(values), values),), "forest", margin=margin)


@pytest.mark.parametrize(
    ("values", "edge"), [((-0.007, -0.027), 0.04), ((0.001,), 0.04), ((0.5, 0.1), 0.5), ((-0.3,), 0.4), ((), 0.04)]
)
def test_around_a_margin_the_axis_is_symmetric_and_wider(values: tuple[float, ...], edge: float) -> None:
    chart = forest(*values)
    axis = chart.axis()
    assert (axis.low, axis.high) == (pytest.approx(-edge), pytest.approx(edge))
    assert axis.place(0.0) == pytest.approx(0.5)
    assert for_plotly(chart, Positions())["range"] == pytest.approx([-edge, edge])


def test_a_forest_without_a_margin_holds_zero() -> None:
    axis = forest(-0.027, -0.012, margin=None).axis()
    assert (axis.low, axis.high) == (pytest.approx(-0.03), 0.0)


def test_on_a_log_axis_zero_has_a_row_of_its_own() -> None:
    axis = value_axis([0.0, 1e-3, 0.1], log=True)
    assert [label for _, label in axis.ticks] == ["0", "0.001", "0.01", "0.1"]
    assert axis.place(0.0) == 0
    assert axis.place(1e-3) == pytest.approx(axis.GAP)
    assert axis.place(0.1) == pytest.approx(1)
    # Plotly knows no gap: its place for zero is the value that a plain log scale would put at the bottom.
    assert axis.low / axis.zero_value == pytest.approx((axis.high / axis.low) ** (axis.GAP / (1 - axis.GAP)))


def test_a_log_axis_without_zero_has_no_such_row() -> None:
    axis = value_axis([1e-3, 0.1], log=True)
    assert axis.place(1e-3) == 0
    assert axis.ticks[0][1] == "0.001"


def test_a_missing_value_breaks_the_line() -> None:
    chart = lines(Series("a", 0, (0.0, 1.0, 2.0, 3.0), (1.0, None, 2.0, 3.0)))
    path = re.search(r'<path d="([^"]+)" class="mean a0 d0">', draw(chart))
    assert path is not None
    assert [re.sub(r"[\d. ]", "", part) for part in path[1].split()] == ["M", "M", "L", ""]


def test_a_line_of_one_point_is_a_dot() -> None:
    drawn = draw(lines(Series("a", 0, (0.0, 1.0), (1.0, None))))
    assert drawn.count("<circle") == 1
    assert 'class="mean' not in drawn


def test_labels_at_line_ends_do_not_overlap() -> None:
    chart = lines(*(Series(f"arm{i}", i, (0.0, 1.0), (0.5, 0.5 + i * 1e-4)) for i in range(4)))
    heights = [float(y) for y in re.findall(r'y="([\d.]+)" dy=".32em" class="label', draw(chart))]
    assert len(heights) == 4
    assert min(b - a for a, b in pairwise(heights)) >= 15


def test_the_sentence_tells_the_ends_of_each_mean() -> None:
    chart = lines(
        Series("grpo", 0, (0.0, 9.0), (0.25, 0.5)),
        Series("grpo", 0, (0.0, 9.0), (0.2, 0.4), seed=0),
        Series("gspo", 1, (0.0, 9.0), (None, None)),
    )
    assert sentence(chart) == ("Line chart, X: grpo from 0.250 at step 0 to 0.500 at 9; gspo not measured.")


def test_long_tables_hold_means_of_equal_groups_and_say_so() -> None:
    x = tuple(float(i) for i in range(120))
    head, rows, caption = numbers(lines(Series("a", 0, x, x)))
    assert head == ["step", "a"]
    assert rows[:2] == [[0.0, 0.5], [2.0, 2.5]]
    assert len(rows) == 60
    assert "mean of up to 2 points" in caption


def test_tables_of_bars_have_a_row_per_bar_and_its_seeds_beside_it() -> None:
    series = (Series("a", 0, ("0",), (0.5,)), Series("a", 0, ("0",), (0.4,), seed=3), Series("b", 1, ("0",), (None,)))
    head, rows, _ = numbers(Chart("m-b", "B", "layer", "share", series, kind="bars"))
    assert head == ["layer", "of", "mean", "seed 3"]
    assert rows == [["0", "a", 0.5, 0.4], ["0", "b", None, None]]
    own = (Series("a", 0, ("a",), (0.5,)), Series("b", 1, ("b",), (0.6,)))
    assert numbers(Chart("m-d", "D", "arm", "score", own, kind="dots"))[:2] == (
        ["arm", "mean"],
        [["a", 0.5], ["b", 0.6]],
    )


def test_plotly_gets_the_same_numbers_and_a_place_for_zero() -> None:
    x = (0.0, 1.0)
    positions = Positions()
    light = Series("b", NEUTRAL_LIGHT, x, (0.01, None))
    data = for_plotly(lines(Series("a", 0, x, (0.0, 0.1)), light, log=True), positions)
    assert [one["x"] for one in data["series"]] == [0, 0]
    assert ">[[0,1]]<" in positions.script()
    assert [one["y"] for one in data["series"]] == [[0, 0.1], [0.01, None]]
    assert [one["c"] for one in data["series"]] == ["a0", "n2"]
    assert data["ticks"][1] == ["0", "0.01", "0.1"]
    assert data["log"][0] == data["ticks"][0][0] < 0.01


def test_a_chart_without_values_says_so_in_place_of_a_drawing() -> None:
    shown = figure(lines(), Positions())
    assert 'id="m-x"' in shown
    assert "not measured" in shown
    assert "<svg" not in shown


def test_bars_stand_on_zero_and_carry_their_seeds_as_dots() -> None:
    series = [Series("a", 0, ("0", "1"), (0.0, 0.2)), Series("a", 0, ("0", "1"), (0.0, 0.3), seed=4)]
    chart = Chart("m-b", "B", "mini-batch", "share", tuple(series), kind="bars", whole=True)
    drawn = draw(chart)
    assert drawn.count("<rect") == 2
    assert drawn.count("<circle") == 2
    assert "a, seed 4, 1: 0.300" in drawn


def test_forty_arms_look_different_and_none_is_grey() -> None:
    looks = [look(colour) for colour in range(40)]
    assert len(set(looks)) == 40
    assert looks[:2] == ["a0 d0", "a1 d1"]
    style = (Path(document.__file__).parent / "page.css").read_text(encoding="utf-8")
    for name in {part for one in looks for part in one.split()}:
        assert f".{name} {{" in style, name
    for colour in range(12):
        light, dark = re.findall(rf"--a{colour}: #(\w{{6}});", style)  # each scheme has its own
        for shown in (light, dark):
            channels = [int(shown[i : i + 2], 16) for i in (0, 2, 4)]
            assert max(channels) - min(channels) > 40, f"colour {colour} is grey"
