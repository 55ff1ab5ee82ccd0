"""Peaks of score curves on tables that a pencil can check."""

import math

import numpy as np
import pytest

from gspo_lab.analysis.stats.peaks import (
    best_without_seed,
    peak_difference_variance,
    peak_heights,
    peak_is_inside,
    peak_places,
    ranges_near_peak,
)

VALUES = np.array([1.0, 10.0, 100.0])


def test_a_seed_is_scored_at_the_value_that_the_other_seeds_choose() -> None:
    scores = np.array([[0.2, 0.9, 0.1], [0.6, 0.5, 0.1], [0.7, 0.5, 0.1]])
    # The means without seed 0 are .65, .5, .1; without 1 .45, .7, .1; without 2 .4, .7, .1.
    assert best_without_seed(scores).tolist() == [0, 1, 1]
    assert peak_heights(scores).tolist() == [0.2, 0.5, 0.5]


def test_a_peak_chosen_on_its_own_seeds_would_be_too_high() -> None:
    noise = np.random.default_rng(0).normal(size=(2000, 4, 5))
    assert np.mean([peak_heights(scores) for scores in noise]) == pytest.approx(0.0, abs=0.03)
    assert noise.mean(axis=1).max(axis=1).mean() > 0.5


def test_the_variance_of_a_difference_of_peaks_has_what_the_choice_adds() -> None:
    baseline = np.array([[0.2, 0.9], [0.6, 0.5], [0.7, 0.5]])
    # Both arms are best at the second value, where the differences are .1, .2, .3. Of the variances
    # 0 and .01 the median is .005. The heights are .2, .5, .5 and 1, .7, .8: they differ by .4333.
    estimate = peak_difference_variance(
        baseline, baseline + np.array([[0, 0.1], [0, 0.2], [0, 0.3]])
    )
    # Within, (2 x .005 + 2 x .01) / (2 + 2).
    assert estimate.variance == pytest.approx(0.0075 + 3 * (1.3 / 3 - 0.2) ** 2)
    assert estimate.rule.degrees(3) == 4


def test_one_seed_can_choose_nothing() -> None:
    with pytest.raises(ValueError, match="two seeds"):
        best_without_seed(np.array([[0.1, 0.2]]))


def test_the_place_of_a_peak_is_the_vertex_of_a_parabola() -> None:
    symmetric = np.array([[0.5, 0.9, 0.5]])
    assert peak_places(symmetric, VALUES) == pytest.approx([math.log(10)])
    # f(-1) = 0, f(0) = 3, f(1) = 2 over log10: curvature -2, slope 1, vertex at 1/4.
    leaning = np.array([[0.0, 3.0, 2.0]])
    assert peak_places(leaning, VALUES) == pytest.approx([math.log(10) * 1.25])


@pytest.mark.parametrize(("scores", "place"), [([0.9, 0.5, 0.1], 1), ([0.1, 0.5, 0.9], 100)])
def test_a_peak_at_an_end_of_the_grid_stays_there(scores: list[float], place: float) -> None:
    assert peak_places(np.array([scores]), VALUES) == pytest.approx([math.log(place)])
    assert not peak_is_inside(np.array([scores]))


def test_the_range_near_the_peak_is_interpolated_and_cut_at_the_grid() -> None:
    scores = np.array([[0.79, 0.8, 0.76]])
    # Within .02 of .8: all of the lower side; above, half of the way to .76.
    ((low, high),) = ranges_near_peak(scores, VALUES, 0.02)
    assert low == pytest.approx(0.0)
    assert high == pytest.approx(math.log(10) * 1.5)


def test_a_second_hill_is_no_part_of_the_range() -> None:
    scores = np.array([[0.79, 0.2, 0.8, 0.1, 0.79]])
    values = np.array([1.0, 10.0, 100.0, 1000.0, 10000.0])
    ((low, high),) = ranges_near_peak(scores, values, 0.02)
    assert math.log(10) < low < math.log(100) < high < math.log(1000)


def test_of_equal_scores_the_lower_value_counts_as_the_top() -> None:
    scores = np.array([[0.1, 0.5, 0.5, 0.5]])
    values = np.array([1.0, 2.0, 4.0, 8.0])
    # f(-1) = .1, f(0) = f(1) = .5: curvature -.2, slope .2, vertex half a step above the value 2.
    assert peak_places(scores, values) == pytest.approx([math.log(2) * 1.5])
