import numpy as np
import pytest
from calling import lab_error
from scipy import special, stats

from gspo_lab.analysis.stats.power import (
    detectable_factor,
    detection_chance,
    equivalence_factor,
    sd_range,
    seeds_for_equivalence,
    seeds_needed,
)

FACTORS = {3: 3.26, 4: 2.13, 5: 1.68, 6: 1.44, 8: 1.16, 10: 1.00, 16: 0.75, 20: 0.66}


@pytest.mark.parametrize(("n", "factor"), FACTORS.items())
def test_detectable_effect(n: int, factor: float) -> None:
    assert detectable_factor(n) == pytest.approx(factor, abs=0.006)
    assert detection_chance(n, factor, 0.05) == pytest.approx(0.8, abs=0.006)


def _intervals(
    rng: np.random.Generator, n: int, effect: float, t: float
) -> tuple[np.ndarray, np.ndarray]:
    d = rng.standard_normal((40_000, n)) + effect
    half = t * d.std(axis=1, ddof=1) / np.sqrt(n)
    return d.mean(axis=1) - half, d.mean(axis=1) + half


def test_both_factors_reach_the_power_they_promise() -> None:
    rng = np.random.default_rng(0)
    low, high = _intervals(rng, 3, detectable_factor(3), 4.302653)
    assert ((low > 0) | (high < 0)).mean() == pytest.approx(0.8, abs=0.008)
    margin = equivalence_factor(5)
    low, high = _intervals(rng, 5, 0.0, 2.776445)
    assert ((low > -margin) & (high < margin)).mean() == pytest.approx(0.8, abs=0.008)


def test_seeds_needed_is_the_smallest_that_suffices() -> None:
    assert seeds_needed(1.0, 1.0) == 10
    assert seeds_needed(1.0, 100.0) == 3
    # The textbook's normal formula, (1.96 + .84)^2 sd^2 / effect^2 = 31.4, plus about 2 for the t.
    assert seeds_needed(1.0, 0.5) == 34
    assert seeds_for_equivalence(1.0, 100.0) == 5
    for find, factor in (
        (seeds_needed, detectable_factor),
        (seeds_for_equivalence, equivalence_factor),
    ):
        n = find(1.0, 0.4)
        assert factor(n) <= 0.4 < factor(n - 1)
    assert seeds_needed(1.0, 1e-9) is None
    with lab_error("above 0"):
        seeds_needed(1.0, 0.0)


@pytest.mark.parametrize("n", [3, 5, 20, 1000])
@pytest.mark.parametrize("alpha", [0.05, 0.05 / 20, 0.001])
def test_factors_stay_finite_for_many_declared_looks(n: int, alpha: float) -> None:
    shift = detectable_factor(n, alpha, 0.9) * np.sqrt(n)
    critical = stats.t.ppf(1 - alpha / 2, n - 1)
    # The far tail is negligible here, and scipy's noncentral t gives NaN there.
    assert special.nctdtr(n - 1, shift, critical) == pytest.approx(0.1, abs=1e-4)
    assert np.isfinite(equivalence_factor(n, alpha, 0.9))


def test_too_few_seeds_have_no_power() -> None:
    with lab_error("shows no spread"):
        sd_range(1.0, 0)
    with lab_error("fewer than 3"):
        detectable_factor(2)


def test_the_true_sd_may_be_far_from_the_observed_one() -> None:
    # chi2_2 quantiles are -2 log(1 - q): .0506 and 7.378, so sqrt(2 / 7.378) and sqrt(2 / .0506).
    assert sd_range(1.0, 2) == pytest.approx((0.5207, 6.2848), abs=1e-3)
    assert sd_range(2.0, 4) == pytest.approx((2 * 0.5991, 2 * 2.8736), abs=1e-3)
