import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from assertions import assert_fields
from calling import lab_error
from case_tables import cases
from scipy import optimize

from gspo_lab.analysis.stats.ed50 import (
    best_fit,
    dose_ratio,
    dose_ratios,
    half_collapse,
    penalised_likelihood,
    seed_shifts,
)
from gspo_lab.common.plain_data import OptionalFloat

minimize: Any = optimize.minimize
"""Its stubs know no plain function of plain lists."""

DOSES = np.repeat([1e-4, 3e-4, 1e-3, 3e-3, 1e-2], 3)
SEPARATED = (DOSES > 5e-4).astype(float)
MIXED = np.array([0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 0, 1, 1, 1, 1], dtype=float)
DROP = 3.841459 / 2
FLAT = ("10000110100101111101", "01101101000010111111")


def _penalised(a: float, b: float, x: np.ndarray, y: np.ndarray) -> float:
    """l + log det / 2 written out: the definition, sharing nothing with the code under test."""
    linear = a + b * x
    p = 1 / (1 + np.exp(-linear))
    w = p * (1 - p)
    information = np.array([[w.sum(), (w * x).sum()], [(w * x).sum(), (w * x * x).sum()]])
    log_chance = -np.logaddexp(0, np.where(y == 1, -linear, linear))
    return float(log_chance.sum() + 0.5 * np.log(np.linalg.det(information)))


def _brute_profile(m: float, x: np.ndarray, y: np.ndarray) -> float:
    return max(_penalised(-b * m, b, x, y) for b in np.linspace(0.01, 25, 2500))


def test_gradient_is_that_of_the_definition() -> None:
    x = np.log10(DOSES) + 3
    design = np.column_stack([np.ones_like(x), x])
    at = np.array([0.3, 1.7])
    value, gradient, _ = penalised_likelihood(design, MIXED, at)
    assert value == pytest.approx(_penalised(0.3, 1.7, x, MIXED))
    numeric = optimize.approx_fprime(at, lambda c: _penalised(c[0], c[1], x, MIXED), 1e-7)  # type: ignore[misc]
    assert gradient == pytest.approx(numeric, abs=1e-4)


@pytest.mark.parametrize("collapsed", [SEPARATED, MIXED], ids=["separated", "mixed"])
def test_interval_against_a_brute_force_profile(collapsed: np.ndarray) -> None:
    x = np.log10(DOSES) + 3
    found = half_collapse(DOSES, collapsed)
    best = minimize(
        lambda c: -_penalised(c[0], c[1], x, collapsed), [0.0, 1.0], method="Nelder-Mead"
    )
    assert found.slope == pytest.approx(best.x[1], rel=1e-3)
    assert math.log10(found.estimate) + 3 == pytest.approx(-best.x[0] / best.x[1], abs=1e-3)
    for limit in (found.low, found.high):
        assert -best.fun - _brute_profile(math.log10(limit) + 3, x, collapsed) == pytest.approx(
            DROP, abs=2e-3
        )
    assert found.resolved


@pytest.mark.parametrize(
    ("collapsed", "low", "high", "reason", "needed"),
    [
        # Six runs stood at 3e-3 and above: 2^-6 < .025. Three at 1e-2 alone say nothing: 2^-3 =
        # .125.
        ([0] * 15, 3e-3, None, "no run collapsed up to 0.01", (None, 1e-2)),
        ([1] * 15, None, 3e-4, "every run collapsed from 0.0001 on", (1e-4, None)),
        (
            [0, 1, 0] * 5,
            None,
            None,
            "between 0.0001 and 0.01 collapse does not follow",
            (1e-4, 1e-2),
        ),
    ],
)
def test_runs_that_ended_alike_or_without_a_trend_say_which_doses_to_try(
    collapsed: list[int],
    low: OptionalFloat,
    high: OptionalFloat,
    reason: str,
    needed: tuple[OptionalFloat, OptionalFloat],
) -> None:
    found = half_collapse(DOSES, collapsed)
    assert half_collapse([1.0, 2.0], [0, 0]).low is None, "too few runs to say anything"
    assert_fields(
        found, estimate=None, low=low and pytest.approx(low), high=high and pytest.approx(high)
    )
    assert not found.resolved
    assert found.reason.startswith(reason)
    assert (found.needed.below, found.needed.above) == pytest.approx(needed)


def test_ratio_of_shifted_arms() -> None:
    # The second arm does at three times the dose what the first did.
    found = dose_ratio(DOSES, MIXED, 3 * DOSES, MIXED)
    assert found.estimate == pytest.approx(3.0, rel=1e-3)
    assert found.low < 3 < found.high
    back = dose_ratio(3 * DOSES, MIXED, DOSES, MIXED)
    assert (back.low, back.high) == pytest.approx((1 / found.high, 1 / found.low), rel=1e-3)


def test_ratio_limit_is_where_the_profile_has_fallen() -> None:
    later = (DOSES > 2e-3).astype(float)
    found = dose_ratio(DOSES, SEPARATED, DOSES, later)
    assert found.low > 1
    x = np.concatenate([np.log10(DOSES), np.log10(DOSES)]) + 3
    arm = np.repeat([0.0, 1.0], 15)
    y = np.concatenate([SEPARATED, later])

    def definition(a: float, g: float, b: float) -> float:
        design = np.column_stack([np.ones(30), arm, x])
        p = 1 / (1 + np.exp(-design @ [a, g, b]))
        information = (design * (p * (1 - p))[:, None]).T @ design
        return float(
            np.log(np.where(y == 1, p, 1 - p)).sum() + 0.5 * np.log(np.linalg.det(information))
        )

    settings = {"xatol": 1e-8, "fatol": 1e-10, "maxiter": 4000}
    best = minimize(lambda c: -definition(*c), [0, 0, 2], method="Nelder-Mead", options=settings)
    r = math.log10(found.low)
    held = minimize(
        lambda c: -definition(c[0], -c[1] * r, c[1]), [0, 2], method="Nelder-Mead", options=settings
    )
    assert held.fun - best.fun == pytest.approx(DROP, abs=1e-4)


def test_an_arm_that_never_collapsed_leaves_the_ratio_open_above() -> None:
    found = dose_ratio(DOSES, SEPARATED, DOSES, np.zeros(15))
    assert_fields(found, estimate=None, high=None, resolved=False)
    assert found.low > 1
    assert found.reason == "second arm: no run collapsed up to 0.01"
    silent = dose_ratio(DOSES, np.zeros(15), DOSES, np.zeros(15))
    assert_fields(silent, low=None, high=None)


@pytest.mark.parametrize(
    ("dose", "collapsed", "said"),
    cases(__file__, "bad_data"),
)
def test_bad_data_is_refused(dose: list[float], collapsed: list[float], said: str) -> None:
    with lab_error(said):
        half_collapse(dose, collapsed)


def test_a_slope_near_0_bounds_nothing_and_breaks_nothing() -> None:
    doses = np.repeat(10.0 ** np.linspace(-5, -3, 5), 4)
    flat = [np.array([int(one) for one in outcome], dtype=float) for outcome in FLAT]
    far = dose_ratio(doses, flat[0], doses, flat[1])  # its profile's low end lies at 10^-30
    assert_fields(far, low=None, resolved=False, high=pytest.approx(5825.3, rel=1e-3))
    for seed in range(40):  # some of these have ends beyond 10^308
        falling = np.random.default_rng(seed).permutation(flat[0])
        for found in (half_collapse(doses, falling), dose_ratio(doses, falling, doses, flat[1])):
            ends = [end for end in (found.low, found.estimate, found.high) if end is not None]
            assert all(1e-12 < end < 1e12 for end in ends)
            assert found.resolved == (found.low is not None and found.high is not None)


def by_seed(
    stood: Sequence[int], doses: Sequence[float]
) -> tuple[list[float], list[int], list[int]]:
    """Runs of seeds of which each survives so many of the doses, the lowest first."""
    runs = [
        (dose, int(place >= count), seed)
        for seed, count in enumerate(stood)
        for place, dose in enumerate(doses)
    ]
    return [run[0] for run in runs], [run[1] for run in runs], [run[2] for run in runs]


def test_a_seed_s_collapse_point_by_hand() -> None:
    # Doses 1, 10, 100: each survived dose is worth a decade. Seeds survive 1, 1, 2 of them, in the
    # other arm 2, 1, 3.
    a = by_seed((1, 1, 2), (1, 10, 100))
    b = by_seed((2, 1, 3), (1, 10, 100))
    first = (np.log10(a[0]), np.array(a[1], dtype=float), a[2])
    second = (np.log10(b[0]), np.array(b[1], dtype=float), b[2])
    shifts = seed_shifts(first, second)
    assert_fields(
        shifts,
        differences=pytest.approx((1.0, 0.0, 1.0)),
        # The grid hides where in its decade a point lies: variance 1 / 12 each.
        items_sd=pytest.approx(math.sqrt(1 / 6)),
        df=2.0,
    )


def test_an_interval_over_starting_models_is_never_narrower_than_that_of_independent_runs() -> None:
    doses = (1e-3, 2e-3, 4e-3, 8e-3)
    a = by_seed((1, 2, 1, 2), doses)
    b = by_seed((3, 2, 3, 2), doses)
    plain = dose_ratio(*a[:2], *b[:2])
    clustered = dose_ratio(*a[:2], *b[:2], seeds=(a[2], b[2]))
    assert clustered.low <= plain.low
    assert clustered.high >= plain.high
    # Two seeds of four show a shift of two doses, and two none: 1.73 on 3 degrees of freedom.
    assert plain.p < 0.05
    assert clustered.p == pytest.approx(0.182, abs=1e-3)
    assert clustered.low < 1 < clustered.high
    few = dose_ratio(*a[:2], *b[:2], seeds=([0] * 16, [0] * 16))
    assert few.reason == "an interval over starting models needs 3 seeds with every value, not 1"


def test_ratios_share_alpha_by_holm() -> None:
    """p of .03 alone is below .05, and two of them are not below .025."""
    doses = (1e-3, 2e-3, 4e-3, 8e-3)
    a = by_seed((2, 2, 1, 2, 2), doses)
    b = by_seed((3, 3, 3, 3, 2), doses)
    alone = dose_ratios(a, {"b": b})["b"]
    assert 0.025 < alone.p < 0.05
    assert alone.low > 1
    both = dose_ratios(a, {"b": b, "c": b})
    assert both["b"].low < 1


def test_firth_of_a_constant_adds_half_a_run_to_each_side() -> None:
    # With an intercept alone, Jeffreys' prior gives p = (k + 1/2) / (n + 1): 0 of 4 becomes .1.
    fit = best_fit(np.ones((4, 1)), np.zeros(4), directions_PQ=-np.eye(1))
    assert 1 / (1 + math.exp(-fit.coefficients[0])) == pytest.approx(0.1, abs=1e-6)


def test_unit_of_the_dose_does_not_matter() -> None:
    one = half_collapse(DOSES, MIXED)
    other = half_collapse(DOSES * 1e6, MIXED)
    assert (other.low, other.estimate) == pytest.approx(
        (one.low * 1e6, one.estimate * 1e6), rel=1e-4
    )


def test_intervals_cover() -> None:
    rng = np.random.default_rng(0)
    x = np.log10(DOSES)
    held = ratio_held = 0
    studies = 30
    for _ in range(studies):
        a = (rng.random(15) < 1 / (1 + np.exp(-5 * (x + 3)))).astype(float)
        b = (rng.random(15) < 1 / (1 + np.exp(-5 * (x + 2.7)))).astype(float)
        one = half_collapse(DOSES, a)
        ratio = dose_ratio(DOSES, a, DOSES, b)
        held += (one.low or 0) <= 1e-3 <= (one.high or math.inf)
        ratio_held += (ratio.low or 0) <= 10**0.3 <= (ratio.high or math.inf)
    # At 95 % each, fewer than 26 of 30 has a chance of 1.6 %; the intervals are conservative and
    # the generator fixed.
    assert held >= 26
    assert ratio_held >= 26


def test_a_ratio_is_quick_with_as_many_threads_as_blas_takes() -> None:
    """scipy's L-BFGS-B took 7 s of it with threaded BLAS, and .5 s with one thread."""
    began = time.process_time()
    dose_ratio(DOSES, MIXED, 3 * DOSES, MIXED)
    assert time.process_time() - began < 0.4
