import numpy as np
import pytest
from calling import lab_error
from case_tables import cases
from hypothesis import given
from hypothesis import strategies as st

from gspo_lab.analysis.stats.curve_summaries import (
    carry_forward,
    carry_last_finite,
    ema,
    fit_scaling,
    normalised_auc,
    tail_mean,
    time_to_threshold,
)
from gspo_lab.common.errors import LabError


def test_area_by_pencil() -> None:
    # Trapezoids on uneven points: 1 x 1/2 + 3 x 1 = 3.5 over a range of 4.
    assert normalised_auc([0, 1, 4], [0, 1, 1]) == pytest.approx(3.5 / 4)
    assert normalised_auc([10, 20], [0.3, 0.3]) == pytest.approx(0.3)


def test_bad_curves_are_refused() -> None:
    for x, y in (([0, 0], [1, 2]), ([0, 1], [1]), ([0], [1])):
        with pytest.raises(LabError):
            normalised_auc(x, y)


def test_tail_is_the_end_not_the_best() -> None:
    assert tail_mean([0.9, 0.1, 0.2, 0.3], 3) == pytest.approx(0.2)
    assert tail_mean([0.9, 0.1], 3) == pytest.approx(0.5)
    with pytest.raises(LabError):
        tail_mean([], 3)


def test_ema_by_pencil() -> None:
    # Weights .5: (1), (1/2 x 1 + 3) / 1.5, (1/4 x 1 + 1/2 x 3 + 5) / 1.75.
    assert ema([1, 3, 5], 0.5) == pytest.approx([1, 3.5 / 1.5, 6.75 / 1.75])
    assert ema([0.4] * 50) == pytest.approx([0.4] * 50)


def test_the_last_finite_value_is_carried_and_flagged() -> None:
    values, carried = carry_last_finite([0.5, 0.6, np.nan, np.inf, 0.1, np.nan])
    assert values.tolist() == [0.5, 0.6, 0.6, 0.6, 0.1, 0.1]
    assert carried.tolist() == [False, False, True, True, False, True]
    with lab_error("first value"):
        carry_last_finite([np.nan, 1.0])


@pytest.mark.parametrize(
    ("steps", "scores", "end", "met"),
    cases(__file__, "the_first_evaluation_above_a_threshold"),
)
def test_the_first_evaluation_above_a_threshold(
    steps: list[int], scores: list[float], end: int, met: int
) -> None:
    assert time_to_threshold(steps, scores, 0.5, end) == met


def test_a_curve_with_gaps_holds_the_last_value_before() -> None:
    steps, height = carry_forward([2, 3, 6], [1.0, 4.0, 2.0], 8)
    assert steps.tolist() == [2, 3, 4, 5, 6, 7, 8]
    assert height.tolist() == [1, 4, 4, 4, 2, 2, 2], "nothing before the first measurement"
    assert [part.tolist() for part in carry_forward([0, 1], [np.nan, 3.0], 2)] == [
        [1, 2],
        [3, 3],
    ], "what is not finite is a gap"
    assert [len(part) for part in carry_forward([], [], 5)] == [0, 0]


def curve(
    compute: np.ndarray, asymptote: float, exponent: float, midpoint: float, start: float = 0.2
) -> np.ndarray:
    later = start + (asymptote - start) / (1 + (midpoint / np.maximum(compute, 1.0)) ** exponent)
    return np.where(compute > 0, later, start)


COMPUTE = np.concatenate([[0.0], 1e9 * np.arange(1, 17)])


@pytest.mark.parametrize(
    ("asymptote", "exponent", "midpoint"), [(0.8, 1.0, 2e9), (0.6, 2.0, 5e9), (1.0, 4.0, 8e9)]
)
def test_a_curve_is_found_again(asymptote: float, exponent: float, midpoint: float) -> None:
    fit = fit_scaling(COMPUTE, curve(COMPUTE, asymptote, exponent, midpoint))
    assert fit is not None
    assert (fit.asymptote, fit.exponent, fit.midpoint) == pytest.approx(
        (asymptote, exponent, midpoint), rel=1e-3
    )
    assert fit.rms < 1e-5


def test_noise_moves_it_little() -> None:
    rng = np.random.default_rng(0)
    fits = [
        fit_scaling(COMPUTE, curve(COMPUTE, 0.8, 2.0, 3e9) + rng.normal(0, 0.01, 17))
        for _ in range(20)
    ]
    assert all(fit is not None and abs(fit.asymptote - 0.8) < 0.05 for fit in fits)


def test_short_runs_are_refused() -> None:
    whole = curve(COMPUTE, 0.8, 2.0, 6e9)
    assert fit_scaling(COMPUTE, whole) is not None
    assert fit_scaling(COMPUTE[:7], whole[:7]) is None, "half of the gain: its asymptote is a guess"
    assert fit_scaling(COMPUTE[:6], curve(COMPUTE, 0.8, 2.0, 1e9)[:6]) is None, (
        "five scores after the start"
    )
    assert fit_scaling(COMPUTE, np.full(17, 0.3)) is None, "nothing is gained"


@given(st.floats(0.1, 100), st.floats(-50, 50))
def test_area_does_not_depend_on_the_unit_of_x(scale: float, shift: float) -> None:
    x = np.array([0.0, 1.0, 4.0, 6.0])
    y = [0.1, 0.5, 0.2, 0.9]
    assert normalised_auc(x * scale + shift, y) == pytest.approx(normalised_auc(x, y))
