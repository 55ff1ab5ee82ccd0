import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gspo_lab.errors import LabError
from gspo_lab.stats.proportions import binomial_band, binomial_p, clopper_pearson


def test_clopper_pearson_of_none_and_all() -> None:
    assert round(clopper_pearson(0, 3).high, 2) == 0.71
    assert round(clopper_pearson(0, 5).high, 2) == 0.52
    assert clopper_pearson(0, 3).low == 0.0
    # The upper limit of 0 of n solves (1 - u)^n = .025.
    assert clopper_pearson(0, 7).high == pytest.approx(1 - 0.025 ** (1 / 7))
    assert clopper_pearson(0, 0) == (0, 0, None, 0.0, 1.0)


@given(st.integers(1, 20).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_clopper_pearson_limits_leave_the_tails(drawn: tuple[int, int]) -> None:
    k, n = drawn
    found = clopper_pearson(k, n)
    if k > 0:
        assert stats.binom.sf(k - 1, n, found.low) == pytest.approx(0.025)
    if k < n:
        assert stats.binom.cdf(k, n, found.high) == pytest.approx(0.025)
    mirrored = clopper_pearson(n - k, n)
    assert (mirrored.low, mirrored.high) == pytest.approx((1 - found.high, 1 - found.low))


def test_binomial_p_and_band() -> None:
    assert binomial_p(3, 3) == 0.25
    assert binomial_p(4, 5) == pytest.approx(12 / 32)
    assert binomial_band(0.05, 2000) == pytest.approx((0.038, 0.063))
    assert binomial_band(0.05, 1000) == pytest.approx((0.033, 0.069))


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(LabError, match="4 of 3"):
        clopper_pearson(4, 3)
