import pytest

from gspo_lab.report.chart import Chart, Series, numbers, sentence, value_axis


def lines(*series: Series, log: bool = False) -> Chart:
    return Chart("m-x", "X", "step", "share", series, log=log)


def test_a_linear_axis_has_round_ticks_that_hold_all_values() -> None:
    axis = value_axis([0.13, 0.58], log=False)
    assert [label for _, label in axis.ticks] == ["0.0", "0.2", "0.4", "0.6"]
    assert (axis.low, axis.high) == pytest.approx((0.0, 0.6))


@pytest.mark.parametrize("values", [[], [0.5], [0.0], [3.0, 3.0], [-2.0, -1.0], [1e-9, 2e-9]])
def test_every_value_lies_on_the_axis(values: list[float]) -> None:
    axis = value_axis(values, log=False)
    assert len(axis.ticks) >= 2
    assert axis.low < axis.high
    assert all(axis.low <= value <= axis.high for value in values)


def test_on_a_log_axis_zero_has_a_row_of_its_own() -> None:
    axis = value_axis([0.0, 1e-3, 0.1], log=True)
    assert [label for _, label in axis.ticks] == ["0", "0.001", "0.01", "0.1"]
    assert (axis.low, axis.high) == pytest.approx((1e-3, 0.1))
    # Plotly knows no gap: its place for zero is the value that a plain log scale would put at the bottom.
    assert axis.low / axis.zero_value == pytest.approx((axis.high / axis.low) ** (axis.GAP / (1 - axis.GAP)))


def test_a_log_axis_without_zero_has_no_such_row() -> None:
    axis = value_axis([1e-3, 0.1], log=True)
    assert axis.low == pytest.approx(1e-3)
    assert axis.ticks[0][1] == "0.001"


def test_the_sentence_tells_the_ends_of_each_mean() -> None:
    chart = lines(
        Series("grpo", 0, (0.0, 9.0), (0.25, 0.5)),
        Series("grpo", 0, (0.0, 9.0), (0.2, 0.4), seed=0),
        Series("gspo", 1, (0.0, 9.0), (None, None)),
    )
    assert sentence(chart) == ("Line chart, X: grpo from 0.250 at step 0 to 0.500 at 9; gspo not measured.")


def test_long_tables_hold_some_of_the_points_as_they_are_and_say_so() -> None:
    """119 of 120 points in 59 rows: one in three, and the last; a mean of means would be another number."""
    x = tuple(float(i) for i in range(120))
    head, rows, caption = numbers(lines(Series("a", 0, x, x)))
    assert head == ["step", "a"]
    assert rows[:2] == [[0.0, 0.0], [3.0, 3.0]]
    assert rows[-1] == [119.0, 119.0]
    assert len(rows) == 41
    assert caption.endswith("one point in 3, and the last")


def test_tables_of_bars_have_a_row_per_bar_and_its_seeds_beside_it() -> None:
    series = (Series("a", 0, ("0",), (0.5,)), Series("a", 0, ("0",), (0.4,), seed=3), Series("b", 1, ("0",), (None,)))
    head, rows, _ = numbers(Chart("m-b", "B", "layer", "share", series, kind="bars"))
    assert head == ["layer", "of", "mean", "seed 3"]
    assert rows == [["0", "a", 0.5, 0.4], ["0", "b", None, None]]
    own = (Series("a", 0, ("a",), (0.5,)), Series("b", 1, ("b",), (0.6,)))
    assert numbers(Chart("m-d", "D", "arm", "score", own, kind="bars"))[:2] == (
        ["arm", "mean"],
        [["a", 0.5], ["b", 0.6]],
    )
