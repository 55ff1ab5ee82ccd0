"""CodeElo's formula by hand: a score from attempts, a place from scores, a rating from a place."""

import numpy as np
import pytest

from gspo_lab.stats.contests import FEWEST_RATED, Contest, Contestant, contest_rating, rating_at


def test_a_place_in_the_middle_of_equals_is_their_own_rating() -> None:
    # Four of 1500: at 1500 half of them are expected ahead, 1 + 4/2 = 3.
    assert rating_at(3, np.array([1500.0] * 4)) == pytest.approx(1500)
    # At 1500 - 400 each is ahead with 10/11: of eleven ten, place 11.
    assert rating_at(11, np.array([1500.0] * 11)) == pytest.approx(1100)


def test_it_ends_at_nothing_and_a_hundred_above_the_best() -> None:
    ratings = np.array([1200.0, 1800.0])
    assert rating_at(1, ratings) == 1900
    assert rating_at(3, ratings) == 0


def crowd(score: float, penalty: float = 0.0, ahead: int = 0) -> list[Contestant]:
    """As many as are needed, all of 1500; `ahead` of them better."""
    return [Contestant(score + (place < ahead), penalty, 1500.0) for place in range(FEWEST_RATED + 1)]


def test_points_go_down_by_fifty_an_attempt() -> None:
    contest = Contest({"A": 500.0, "B": 1000.0}, crowd(1350.0))
    n = len(contest.contestants)
    # 500 - 50 + 1000 - 100 = 1350: nobody is ahead of whom all are level with.
    assert contest_rating(contest, {"A": 1, "B": 2}) == rating_at(1, np.array([1500.0] * n))
    # One attempt more, 1300: everybody is.
    assert contest_rating(contest, {"A": 2, "B": 2}) == rating_at(1 + n, np.array([1500.0] * n)) == 0
    # No problem is worth less than nothing: 500 at the eighth attempt is 150, 100 would be 0.
    little = Contest({"A": 100.0}, crowd(0.0, ahead=FEWEST_RATED // 2 + 1))
    assert contest_rating(little, {"A": 7}) == pytest.approx(contest_rating(little, {}))


def test_without_points_problems_count_and_attempts_are_penalties() -> None:
    contest = Contest({"A": None, "B": None}, crowd(1.0, penalty=20.0))
    level, behind = contest_rating(contest, {"A": 2}), contest_rating(contest, {"A": 3})
    assert level == 1600  # first, 100 above the best
    assert behind == 0  # last


def test_too_few_rated_contestants_say_nothing() -> None:
    contest = Contest({"A": 500.0}, crowd(0.0)[: FEWEST_RATED - 1])
    assert contest_rating(contest, {"A": 0}) is None
