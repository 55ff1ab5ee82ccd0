import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspo_lab.errors import LabError
from gspo_lab.stats.paired import IDENTICAL, SAME_DIFFERENCE, leave_one_out, paired_t, pairing

scores = st.floats(-1, 1).map(lambda value: round(value, 3))
pairs = st.integers(3, 8).flatmap(lambda n: st.tuples(*(st.lists(scores, min_size=n, max_size=n) for _ in range(2))))


def test_paired_t_by_pencil() -> None:
    # d = 1, 2, 3: mean 2, sd 1, se 1/sqrt 3, t_{2, .975} = 4.30265, t = 2 sqrt 3 = 3.4641, p = .0742 (t table).
    found = paired_t([1.0, 2.0, 3.0])
    assert (found.n, found.estimate, found.sd, found.df) == (3, 2.0, 1.0, 2.0)
    assert found.se == pytest.approx(1 / math.sqrt(3))
    assert found.low == pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-5)
    assert found.high == pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-5)
    assert found.p == pytest.approx(0.0741799, abs=1e-6)


@pytest.mark.parametrize(("n", "t"), [(3, 4.303), (4, 3.182), (5, 2.776), (6, 2.571), (8, 2.365), (10, 2.262)])
def test_half_width_follows_the_t_table(n: int, t: float) -> None:
    d = np.arange(n, dtype=float)
    found = paired_t(d)
    assert (found.high - d.mean()) / (d.std(ddof=1) / math.sqrt(n)) == pytest.approx(t, abs=5e-4)


def test_fewer_than_three_seeds_give_dots_and_no_interval() -> None:
    two = paired_t([0.1, 0.3])
    assert (two.low, two.high, two.p) == (None, None, None)
    assert two.sd == pytest.approx(0.2 / math.sqrt(2))
    assert "needs 3" in two.reason
    one = paired_t([0.1])
    assert (one.estimate, one.sd, one.low) == (0.1, None, None)
    assert paired_t([]).estimate is None


def test_no_spread_gives_no_interval_but_its_reason() -> None:
    assert paired_t([0.0, 0.0, 0.0]).reason == IDENTICAL
    same = paired_t(np.array([0.2, 0.3, 0.4]) - np.array([0.1, 0.2, 0.3]), scale=0.4)
    assert (same.low, same.p, same.reason) == (None, None, SAME_DIFFERENCE)
    assert same.estimate == pytest.approx(0.1)


@pytest.mark.parametrize("bad", [[0.1, math.nan, 0.2], [[0.1, 0.2]], [math.inf, 0.0, 1.0]])
def test_missing_values_and_wrong_shapes_are_refused(bad: list[float]) -> None:
    with pytest.raises(LabError):
        paired_t(bad)


@given(pairs)
def test_swapping_the_arms_turns_every_sign(drawn: tuple[list[float], list[float]]) -> None:
    a, b = np.array(drawn[0]), np.array(drawn[1])
    there, back = paired_t(b - a), paired_t(a - b)
    assert there.estimate == pytest.approx(-back.estimate)
    if there.low is None:
        assert back.low is None
    else:
        assert (there.low, there.p) == (pytest.approx(-back.high), pytest.approx(back.p))


@given(pairs, st.floats(-10, 10))
def test_a_shift_of_both_arms_changes_nothing(drawn: tuple[list[float], list[float]], shift: float) -> None:
    a, b = np.array(drawn[0]), np.array(drawn[1])
    plain, moved = paired_t(b - a, scale=1.0), paired_t((b + shift) - (a + shift), scale=11.0)
    assert moved.low == (None if plain.low is None else pytest.approx(plain.low, abs=1e-9))


def test_leave_one_out() -> None:
    assert leave_one_out([-1.0, -1.0, 5.0]) == (2.0, 2.0, -1.0), "the third seed turns the sign"
    assert leave_one_out([1.0]) is None


def test_the_correlation_of_pairs() -> None:
    # Centred (-1, 0, 1) and (-1, 1, 0): r = 1/2, so pairing halves the seeds needed.
    assert pairing([1.0, 2.0, 3.0], [1.0, 3.0, 2.0]) == pytest.approx(0.5)
    assert pairing([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == pytest.approx(-1.0)
    assert pairing([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
