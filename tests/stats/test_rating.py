import numpy as np
import pytest

from gspo_lab.errors import LabError
from gspo_lab.stats.elo_rating import SCALE, chance, estimate_rating


def test_half_of_equal_problems_solved_is_their_own_rating() -> None:
    estimate = estimate_rating([1500, 1500], [1, 0])
    assert estimate.rating == pytest.approx(1500)
    # By hand: information 2/4, spread 2/4 * 2/1, t(1) = 12.7062, so 12.7062 * SCALE * 1 / .5 either way.
    assert estimate.low == pytest.approx(1500 - 12.7062 * SCALE / 0.5, abs=0.01)
    assert estimate.high == pytest.approx(1500 + 12.7062 * SCALE / 0.5, abs=0.01)
    assert estimate.problems == 2


def test_ten_to_one_is_four_hundred_points() -> None:
    assert estimate_rating([1000] * 11, [1] * 10 + [0]).rating == pytest.approx(1400)
    assert chance(np.array([1000.0]), 1400.0)[0] == pytest.approx(10 / 11)


def test_it_is_the_likeliest_rating() -> None:
    difficulty, solved = np.array([800.0, 1200, 1600, 2400]), np.array([1.0, 0.75, 0.5, 0.0])

    def log_likelihood(rating: float) -> float:
        p = chance(difficulty, rating)
        return float((solved * np.log(p) + (1 - solved) * np.log1p(-p)).sum())

    best = estimate_rating(difficulty, solved).rating
    assert log_likelihood(best) > max(log_likelihood(best - 1), log_likelihood(best + 1))


def test_all_or_none_solved_bounds_one_side_alone() -> None:
    none, every = estimate_rating([800] * 10, [0] * 10), estimate_rating([800] * 10, [1] * 10)
    assert none.rating is None
    assert none.low is None
    assert every.rating is None
    assert every.high is None
    assert (1 - chance(np.array([800.0]), none.high)[0]) ** 10 == pytest.approx(0.05)
    assert chance(np.array([800.0]), every.low)[0] ** 10 == pytest.approx(0.05)


def test_the_interval_covers_and_answers_to_one_problem_do_not_narrow_it() -> None:
    rng = np.random.default_rng(7)
    covered, tries = 0, 1_000
    for _ in range(tries):
        difficulty = rng.uniform(800, 3000, 200)
        # Answers to one problem are alike: the model either can or cannot, eight times over.
        able = rng.random(200) < chance(difficulty, 1600)
        estimate = estimate_rating(difficulty, able.astype(float))
        covered += estimate.low < 1600 < estimate.high
    assert 0.93 <= covered / tries <= 0.97


@pytest.mark.parametrize("problems", [5, 10])
def test_the_interval_covers_with_few_problems(problems: int) -> None:
    rng = np.random.default_rng(8)
    covered, tries = 0, 1_000
    for _ in range(tries):
        difficulty = rng.uniform(1300, 1900, problems)
        # What the model can is its own for every problem, and eight answers show it.
        able = chance(difficulty + rng.normal(0, 200, problems), 1600)
        estimate = estimate_rating(difficulty, rng.binomial(8, able) / 8)
        covered += estimate.low < 1600 < estimate.high
    assert 0.93 <= covered / tries <= 0.975


@pytest.mark.parametrize(("difficulty", "solved"), [([1500], [0.5]), ([1500, 1500, 1500], [0.25, 0.25, 0.25])])
def test_without_spread_there_is_a_rating_and_no_interval(difficulty: list[float], solved: list[float]) -> None:
    estimate = estimate_rating(difficulty, solved)
    assert estimate.rating == pytest.approx(1500 + SCALE * np.log(solved[0] / (1 - solved[0])))
    assert (estimate.low, estimate.high) == (None, None)


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
    with pytest.raises(LabError, match=message):
        estimate_rating(difficulty, solved)
