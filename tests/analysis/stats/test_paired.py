import math

import numpy as np
import pytest
from assertions import assert_fields
from calling import lab_error
from hypothesis import given
from hypothesis import strategies as st

from gspo_lab.analysis.stats.paired import (
    IDENTICAL,
    SAME_DIFFERENCE,
    items_variance,
    leave_one_out,
    paired_t,
    pairing,
    two_way,
)
from gspo_lab.common.errors import LabError

scores = st.floats(-1, 1).map(lambda value: round(value, 3))
pairs = st.integers(3, 8).flatmap(
    lambda n: st.tuples(*(st.lists(scores, min_size=n, max_size=n) for _ in range(2)))
)


def test_paired_t_by_pencil() -> None:
    # d = 1, 2, 3: mean 2, sd 1, se 1/sqrt 3, t_{2, .975} = 4.30265, t = 2 sqrt 3 = 3.4641, p =
    # .0742 (t table).
    found = paired_t([1.0, 2.0, 3.0])
    assert_fields(
        found,
        n=3,
        estimate=2.0,
        sd=1.0,
        df=2.0,
        se=pytest.approx(1 / math.sqrt(3)),
        low=pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-5),
        high=pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-5),
        p=pytest.approx(0.0741799, abs=1e-6),
    )


def test_fewer_than_three_seeds_give_dots_and_no_interval() -> None:
    two = paired_t([0.1, 0.3])
    assert_fields(two, low=None, high=None, p=None, sd=pytest.approx(0.2 / math.sqrt(2)))
    assert "needs 3" in two.reason
    one = paired_t([0.1])
    assert_fields(one, estimate=0.1, sd=None, low=None)
    assert paired_t([]).estimate is None


def test_no_spread_gives_no_interval_but_its_reason() -> None:
    assert paired_t([0.0, 0.0, 0.0]).reason == IDENTICAL
    same = paired_t(np.array([0.2, 0.3, 0.4]) - np.array([0.1, 0.2, 0.3]), scale=0.4)
    assert_fields(same, low=None, p=None, reason=SAME_DIFFERENCE, estimate=pytest.approx(0.1))


@pytest.mark.parametrize("bad", [[0.1, math.nan, 0.2], [[0.1, 0.2]], [math.inf, 0.0, 1.0]])
def test_missing_values_and_wrong_shapes_are_refused(bad: list[float]) -> None:
    with pytest.raises(LabError):
        paired_t(bad)


@given(pairs)
def test_swapping_the_arms_turns_every_sign(drawn: tuple[list[float], list[float]]) -> None:
    a = np.array(drawn[0])
    b = np.array(drawn[1])
    there = paired_t(b - a)
    back = paired_t(a - b)
    assert there.estimate == pytest.approx(-back.estimate)
    if there.low is None:
        assert back.low is None
    else:
        assert_fields(there, low=pytest.approx(-back.high), p=pytest.approx(back.p))


def test_leave_one_out() -> None:
    assert leave_one_out([-1.0, -1.0, 5.0]) == (2.0, 2.0, -1.0), "the third seed turns the sign"
    assert leave_one_out([1.0]) is None


def test_the_correlation_of_pairs() -> None:
    # Centred (-1, 0, 1) and (-1, 1, 0): r = 1/2, so pairing halves the seeds needed.
    assert pairing([1.0, 2.0, 3.0], [1.0, 3.0, 2.0]) == pytest.approx(0.5)
    assert pairing([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == pytest.approx(-1.0)
    assert pairing([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None


BY_HAND = [[1.0, 3.0], [2.0, 6.0], [3.0, 9.0]]


def test_variance_parts_by_hand() -> None:
    # Seed means 2, 4, 6: variance 4, Vs = 4/3. Item means 2, 6: variance 8, Vi = 4. Grand mean 4.
    # Residuals 1, -1; 0, 0; -1, 1: sum of squares 4, Vr = 4 / (2 * 1 * 3 * 2) = 1/3. V = 4/3 + 4 -
    # 1/3 = 5. df = 25 / ((16/9)/2 + 16/1 + (1/9)/2) = 25 / (8/9 + 16 + 1/18) = 450/305, below the
    # cap of 2.
    found = two_way(BY_HAND)
    assert_fields(found, seeds=3, items=2, estimate=4.0)
    assert (found.var_seeds, found.var_items, found.var_residual) == pytest.approx(
        (4 / 3, 4.0, 1 / 3)
    )
    assert_fields(found, variance=pytest.approx(5.0), df=pytest.approx(450 / 305))
    assert (found.low + found.high) / 2 == pytest.approx(4.0)


def test_items_alike_leave_the_seed_t() -> None:
    # Every item shows its seed's difference exactly: Vi = Vr = 0, V = Vs, df = n - 1.
    d_S = np.array([0.1, 0.3, 0.2, 0.6])
    found = two_way(np.repeat(d_S[:, None], 7, axis=1))
    seeds = paired_t(d_S)
    assert (found.low, found.high, found.df) == pytest.approx((seeds.low, seeds.high, 3.0))


def test_new_problems_never_narrow_the_interval_of_seeds_alone_by_hand() -> None:
    # Every seed and every problem has mean .3, so Vs = Vi = 0. Residuals 0, .3, -.3 in each row: 6
    # x .09 = .54, Vr = .54 / (2 x 2 x 3 x 3) = .015. The verdict's spread is that of the answers,
    # on 2 degrees of freedom.
    d_SI = np.array([[0.3, 0.6, 0.0], [0.0, 0.3, 0.6], [0.6, 0.0, 0.3]])
    both = two_way(d_SI)
    seeds = paired_t(d_SI.mean(axis=1), items_variance=items_variance(d_SI))
    assert (both.low, both.high, both.df) == pytest.approx(
        (0.3 - 4.3027 * math.sqrt(0.015), 0.827, 2.0), abs=1e-4
    )
    assert (both.low, both.high, both.p) == pytest.approx((seeds.low, seeds.high, seeds.p))


def test_many_problems_raise_no_degrees_of_freedom_above_those_of_the_seeds() -> None:
    """400 problems gave t = 1.97 where three seeds give 4.30.

    The intervals are -.446 to -.182 by seeds, -.378 to -.251 with problems.
    """
    rng = np.random.default_rng(28)
    for seeds, items in ((3, 400), (5, 64), (8, 30)):
        for _ in range(100):
            d_SI = (
                rng.standard_normal((seeds, items)) + 0.05 * rng.standard_normal((seeds, 1)) - 0.314
            )
            both = two_way(d_SI)
            alone = paired_t(d_SI.mean(axis=1), items_variance=items_variance(d_SI))
            assert both.low <= alone.low + 1e-12
            assert both.high >= alone.high - 1e-12


def test_no_spread_and_too_few() -> None:
    assert two_way(np.zeros((3, 4))).reason == IDENTICAL
    assert two_way(np.full((3, 4), 0.5)).reason == SAME_DIFFERENCE
    assert two_way([[0.1, 0.2], [0.3, 0.1]]).low is None
    assert two_way([[0.1], [0.3], [0.2]]).reason == "3 seeds and 1 items; two of each are needed"
    with lab_error("missing"):
        two_way([[0.1, math.nan], [0.3, 0.1]])


def test_what_the_answers_alone_vary_by_hand() -> None:
    # Two seeds, two problems: means .5, seeds .5 and .5, problems 1 and 0 ... residuals all 0:
    # problems explain it.
    assert items_variance([[1.0, 0.0], [1.0, 0.0]]) == 0.0
    # d = [[1, 0], [0, 1]]: every mean .5, residuals +-.5, so 4 x .25 / (1 x 1 x 2) = .5 for one
    # seed's mean.
    assert items_variance([[1.0, 0.0], [0.0, 1.0]]) == pytest.approx(0.5)
    assert items_variance([[1.0, 0.0]]) is None
    # 400 problems of sd 1 around a problem's own effect: 1 / 400 for a seed's mean, whatever the
    # effects are.
    rng = np.random.default_rng(0)
    d_SI = (
        rng.standard_normal((50, 400)) + 3 * rng.standard_normal(400) + rng.standard_normal((50, 1))
    )
    assert items_variance(d_SI) == pytest.approx(1 / 400, rel=0.05)


@given(pairs, st.floats(-10, 10))
def test_a_shift_of_both_arms_changes_nothing(
    drawn: tuple[list[float], list[float]], shift: float
) -> None:
    a = np.array(drawn[0])
    b = np.array(drawn[1])
    plain = paired_t(b - a, scale=1.0)
    moved = paired_t((b + shift) - (a + shift), scale=11.0)
    assert moved.low == (None if plain.low is None else pytest.approx(plain.low, abs=1e-9))


def test_variance_never_falls_below_its_parts_and_df_not_above_the_cap() -> None:
    # Seeds agree on every mean and items too, so the residual alone would make V negative.
    d_SI = np.array([[1.0, -1.0, 0.1], [-1.0, 1.0, 0.0], [0.5, -0.5, 0.0], [0.0, 0.1, -0.2]])
    found = two_way(d_SI)
    assert found.variance == max(found.var_seeds, found.var_items, found.var_residual)
    assert found.df <= 3 * 2
