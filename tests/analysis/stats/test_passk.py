import itertools
import math

import numpy as np
import pytest
from assertions import assert_fields
from calling import lab_error
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gspo_lab.analysis.stats.passk import (
    SCALE,
    chance,
    checkpoint_score,
    estimate_rating,
    pass_at_k,
)
from gspo_lab.analysis.stats.proportions import binomial_band, binomial_p, clopper_pearson
from gspo_lab.common.errors import LabError


def test_against_every_subset() -> None:
    for n in range(1, 7):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            answers = [True] * c + [False] * (n - c)
            subsets = list(itertools.combinations(answers, k))
            expected = sum(any(subset) for subset in subsets) / len(subsets)
            assert pass_at_k([c], [n], k)[0] == pytest.approx(expected), (n, c, k)


def test_large_counts_and_one_number_of_samples_for_all() -> None:
    assert pass_at_k([10], 2000, 100)[0] == pytest.approx(
        1 - math.comb(1990, 100) / math.comb(2000, 100)
    )
    assert pass_at_k([0, 1, 4], 4, 1).tolist() == [0.0, 0.25, 1.0]


def test_counts_that_no_answers_can_have_are_refused() -> None:
    for correct, samples, k in (([1], [4], 5), ([1], [4], 0), ([5], [4], 1), ([1.5], [4], 1)):
        with pytest.raises(LabError):
            pass_at_k(correct, samples, k)


def test_one_answer_per_problem_is_the_jeffreys_interval() -> None:
    # 3 of 10, one answer each: var_i / I = p (1 - p) / 9, 9 effective answers, Beta(3.2, 6.8).
    found = checkpoint_score([1, 1, 1] + [0] * 7, 1)
    assert_fields(
        found,
        mean=pytest.approx(0.3),
        problems=10,
        answers=10,
        se=pytest.approx(math.sqrt(0.3 * 0.7 / 9)),
        sampling_se=None,
        item_se=None,
    )
    assert checkpoint_score([1], 1).se is None
    assert stats.beta.cdf([found.item_low, found.item_high], 3.2, 6.8) == pytest.approx(
        [0.025, 0.975]
    )


def test_split_of_the_variance() -> None:
    # Two answers each: p = 0, 1/2, 1. Sampling (1/4) / 1 / 9 = 1/36; problems too: variance 1/4
    # over 3 = 1/12.
    found = checkpoint_score([0, 1, 2], 2)
    assert_fields(
        found,
        se=pytest.approx(math.sqrt(1 / 12)),
        sampling_se=pytest.approx(math.sqrt(1 / 36)),
        item_se=pytest.approx(math.sqrt(1 / 12 - 1 / 36)),
    )


def test_everything_right_is_not_certain() -> None:
    found = checkpoint_score([16] * 30, 16)
    assert_fields(found, mean=1.0, item_high=1.0)
    assert 0.9 < found.item_low < 1.0


@pytest.mark.parametrize("samples", [2, 8])
def test_the_interval_covers(samples: int) -> None:
    rng = np.random.default_rng(samples)
    studies = 600
    problems = 40
    rate = 1 / (1 + np.exp(-rng.normal(-0.5, 2.0, (studies, problems))))
    population = float((1 / (1 + np.exp(-rng.normal(-0.5, 2.0, 400_000)))).mean())
    scores = [checkpoint_score(rng.binomial(samples, rates), samples) for rates in rate]
    covered = sum(found.item_low <= population <= found.item_high for found in scores)
    assert covered / studies == pytest.approx(0.95, abs=0.03)


def test_a_problem_without_an_answer_is_refused() -> None:
    with lab_error("never asked"):
        checkpoint_score([0, 1], [0, 2])


def test_half_of_equal_problems_solved_is_their_own_rating() -> None:
    estimate = estimate_rating([1500, 1500], [1, 0])
    assert_fields(
        estimate,
        rating=pytest.approx(1500),
        # By hand: information 2/4, spread 2/4 * 2/1, t(1) = 12.7062, so 12.7062 * SCALE * 1 / .5
        # either way.
        low=pytest.approx(1500 - 12.7062 * SCALE / 0.5, abs=0.01),
        high=pytest.approx(1500 + 12.7062 * SCALE / 0.5, abs=0.01),
        problems=2,
    )


def test_ten_to_one_is_four_hundred_points() -> None:
    assert estimate_rating([1000] * 11, [1] * 10 + [0]).rating == pytest.approx(1400)
    assert chance(np.array([1000.0]), 1400.0)[0] == pytest.approx(10 / 11)


def test_it_is_the_likeliest_rating() -> None:
    difficulty = np.array([800.0, 1200, 1600, 2400])
    solved = np.array([1.0, 0.75, 0.5, 0.0])

    def log_likelihood(rating: float) -> float:
        p = chance(difficulty, rating)
        return float((solved * np.log(p) + (1 - solved) * np.log1p(-p)).sum())

    best = estimate_rating(difficulty, solved).rating
    assert log_likelihood(best) > max(log_likelihood(best - 1), log_likelihood(best + 1))


def test_all_or_none_solved_bounds_one_side_alone() -> None:
    none = estimate_rating([800] * 10, [0] * 10)
    every = estimate_rating([800] * 10, [1] * 10)
    assert_fields(none, rating=None, low=None)
    assert_fields(every, rating=None, high=None)
    assert (1 - chance(np.array([800.0]), none.high)[0]) ** 10 == pytest.approx(0.05)
    assert chance(np.array([800.0]), every.low)[0] ** 10 == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("problems", "alike"),
    [(5, False), (10, False), (200, False), (200, True)],
    ids=["5", "10", "200", "answers alike"],
)
def test_a_rating_s_interval_covers(problems: int, alike: bool) -> None:
    """The model's rate differs by problem, and eight answers measure it.

    If a problem is either always or never answered correctly, eight answers do not narrow the
    interval.
    """
    rng = np.random.default_rng(7 if alike else 8)
    covered = 0
    tries = 1_000
    for _ in range(tries):
        if alike:
            difficulty = rng.uniform(800, 3000, problems)
            solved = (rng.random(problems) < chance(difficulty, 1600)).astype(float)
        else:
            difficulty = rng.uniform(1300, 1900, problems)
            solved = rng.binomial(8, chance(difficulty + rng.normal(0, 200, problems), 1600)) / 8
        estimate = estimate_rating(difficulty, solved)
        covered += estimate.low < 1600 < estimate.high
    assert 0.93 <= covered / tries <= (0.97 if alike else 0.975)


@pytest.mark.parametrize(
    ("difficulty", "solved"), [([1500], [0.5]), ([1500, 1500, 1500], [0.25, 0.25, 0.25])]
)
def test_without_spread_there_is_a_rating_and_no_interval(
    difficulty: list[float], solved: list[float]
) -> None:
    estimate = estimate_rating(difficulty, solved)
    assert_fields(
        estimate,
        rating=pytest.approx(1500 + SCALE * np.log(solved[0] / (1 - solved[0]))),
        low=None,
        high=None,
    )


@pytest.mark.parametrize(
    ("difficulty", "solved", "message"),
    [
        ([], [], "at least one problem"),
        ([1500], [1, 0], "1 and 2 values"),
        ([1500], [1.5], "share of answers"),
        ([np.nan], [1], "missing or infinite"),
    ],
)
def test_what_is_no_evidence(difficulty: list[float], solved: list[float], message: str) -> None:
    with lab_error(message):
        estimate_rating(difficulty, solved)


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
    with lab_error("4 of 3"):
        clopper_pearson(4, 3)
