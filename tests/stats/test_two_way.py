import math

import numpy as np
import pytest

from gspo_lab.errors import LabError
from gspo_lab.stats.crossed_random_effects import items_variance, two_way
from gspo_lab.stats.paired import IDENTICAL, SAME_DIFFERENCE, paired_t

BY_HAND = [[1.0, 3.0], [2.0, 6.0], [3.0, 9.0]]


def test_variance_parts_by_hand() -> None:
    # Seed means 2, 4, 6: variance 4, Vs = 4/3. Item means 2, 6: variance 8, Vi = 4. Grand mean 4.
    # Residuals 1, -1; 0, 0; -1, 1: sum of squares 4, Vr = 4 / (2 * 1 * 3 * 2) = 1/3. V = 4/3 + 4 - 1/3 = 5.
    # df = 25 / ((16/9)/2 + 16/1 + (1/9)/2) = 25 / (8/9 + 16 + 1/18) = 450/305, below the cap of 2.
    found = two_way(BY_HAND)
    assert (found.seeds, found.items, found.estimate) == (3, 2, 4.0)
    assert (found.var_seeds, found.var_items, found.var_residual) == pytest.approx((4 / 3, 4.0, 1 / 3))
    assert found.variance == pytest.approx(5.0)
    assert found.df == pytest.approx(450 / 305)
    assert (found.low + found.high) / 2 == pytest.approx(4.0)


def test_variance_never_falls_below_its_parts_and_df_not_above_the_cap() -> None:
    # Seeds agree on every mean and items too, so the residual alone would make V negative.
    d_SI = np.array([[1.0, -1.0, 0.1], [-1.0, 1.0, 0.0], [0.5, -0.5, 0.0], [0.0, 0.1, -0.2]])
    found = two_way(d_SI)
    assert found.variance == max(found.var_seeds, found.var_items, found.var_residual)
    assert found.df <= 3 * 2


def test_items_alike_leave_the_seed_t() -> None:
    # Every item shows its seed's difference exactly: Vi = Vr = 0, V = Vs, df = n - 1.
    d_S = np.array([0.1, 0.3, 0.2, 0.6])
    found, seeds = two_way(np.repeat(d_S[:, None], 7, axis=1)), paired_t(d_S)
    assert (found.low, found.high, found.df) == pytest.approx((seeds.low, seeds.high, 3.0))


def test_new_problems_never_narrow_the_interval_of_seeds_alone_by_hand() -> None:
    # Every seed and every problem has mean .3, so Vs = Vi = 0. Residuals 0, .3, -.3 in each row: 6 x .09 = .54,
    # Vr = .54 / (2 x 2 x 3 x 3) = .015. The verdict's spread is that of the answers, on 2 degrees of freedom.
    d_SI = np.array([[0.3, 0.6, 0.0], [0.0, 0.3, 0.6], [0.6, 0.0, 0.3]])
    both, seeds = two_way(d_SI), paired_t(d_SI.mean(axis=1), items_variance=items_variance(d_SI))
    assert (both.low, both.high, both.df) == pytest.approx((0.3 - 4.3027 * math.sqrt(0.015), 0.827, 2.0), abs=1e-4)
    assert (both.low, both.high, both.p) == pytest.approx((seeds.low, seeds.high, seeds.p))


def test_many_problems_raise_no_degrees_of_freedom_above_those_of_the_seeds() -> None:
    """400 problems gave t = 1.97 where three seeds give 4.30: -.446 to -.182 by seeds, -.378 to -.251 with problems."""
    rng = np.random.default_rng(28)
    for seeds, items in ((3, 400), (5, 64), (8, 30)):
        for _ in range(100):
            d_SI = rng.standard_normal((seeds, items)) + 0.05 * rng.standard_normal((seeds, 1)) - 0.314
            both, alone = two_way(d_SI), paired_t(d_SI.mean(axis=1), items_variance=items_variance(d_SI))
            assert both.low <= alone.low + 1e-12
            assert both.high >= alone.high - 1e-12


def test_no_spread_and_too_few() -> None:
    assert two_way(np.zeros((3, 4))).reason == IDENTICAL
    assert two_way(np.full((3, 4), 0.5)).reason == SAME_DIFFERENCE
    assert two_way([[0.1, 0.2], [0.3, 0.1]]).low is None
    assert two_way([[0.1], [0.3], [0.2]]).reason == "3 seeds and 1 items; two of each are needed"
    with pytest.raises(LabError, match="missing"):
        two_way([[0.1, math.nan], [0.3, 0.1]])


def test_what_the_answers_alone_vary_by_hand() -> None:
    # Two seeds, two problems: means .5, seeds .5 and .5, problems 1 and 0 ... residuals all 0: problems explain it.
    assert items_variance([[1.0, 0.0], [1.0, 0.0]]) == 0.0
    # d = [[1, 0], [0, 1]]: every mean .5, residuals +-.5, so 4 x .25 / (1 x 1 x 2) = .5 for one seed's mean.
    assert items_variance([[1.0, 0.0], [0.0, 1.0]]) == pytest.approx(0.5)
    assert items_variance([[1.0, 0.0]]) is None
    # 400 problems of sd 1 around a problem's own effect: 1 / 400 for a seed's mean, whatever the effects are.
    rng = np.random.default_rng(0)
    d_SI = rng.standard_normal((50, 400)) + 3 * rng.standard_normal(400) + rng.standard_normal((50, 1))
    assert items_variance(d_SI) == pytest.approx(1 / 400, rel=0.05)
