"""The rating that a place among a contest's people gives: the formula of CodeElo (arXiv 2501.01257, `calc_rating.py`).

    score   max(0, points - 50 i) of a problem solved at attempt i (from 0), or, without points, 1 and a penalty of 10 i
    place   1 + the contestants with a higher score, or as high a one and a lower penalty
    rating  the r of 1 + sum over contestants of 1 / (1 + 10^((r - R_j) / 400)) = place, within 0 and max R + 100

No time counts. It is CodeElo only where the site itself judged; on tests at hand it is an estimate by its formula.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gspo_lab.stats.arrays import Floats
from gspo_lab.stats.rating import chance

ATTEMPTS = 8
"""How many answers to a problem count, in their order."""
POINTS_PER_ATTEMPT, PENALTY_PER_ATTEMPT = 50.0, 10.0
FEWEST_RATED = 201
"""Contests with fewer rated contestants say too little."""
ABOVE_THE_BEST = 100.0
"""A rating ends so far above the best contestant's: nobody there says where above."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A rated person's result, and the rating that they came with."""

    score: float
    penalty: float
    rating: float


@dataclass(frozen=True, slots=True)
class Contest:
    """`points` of every problem by its index ("A"), None where solved problems are counted; and who took part."""

    points: Mapping[str, float | None]
    contestants: Sequence[Contestant]


def contest_rating(contest: Contest, solved_at: Mapping[str, int]) -> float | None:
    """The rating of who solved problems, by index, at an attempt (from 0); None where too few contestants are rated."""
    if len(contest.contestants) < FEWEST_RATED:
        return None
    score, penalty = _result(contest.points, solved_at)
    ahead = sum((-one.score, one.penalty) < (-score, penalty) for one in contest.contestants)
    return rating_at(1 + ahead, np.array([one.rating for one in contest.contestants]))


def rating_at(place: int, rating_J: Floats) -> float:
    """The rating whose expected place among people of these ratings is `place`, within 0 and 100 above the best."""
    from scipy import optimize

    def beyond(rating: float) -> float:
        return 1.0 + float((1 - chance(rating_J, rating)).sum()) - place

    best = float(rating_J.max()) + ABOVE_THE_BEST
    if beyond(best) >= 0:
        return best
    return 0.0 if beyond(0.0) <= 0 else float(optimize.brentq(beyond, 0.0, best))


def _result(points: Mapping[str, float | None], solved_at: Mapping[str, int]) -> tuple[float, float]:
    score = penalty = 0.0
    for index, attempt in solved_at.items():
        worth = points[index]
        score += 1.0 if worth is None else max(0.0, worth - POINTS_PER_ATTEMPT * attempt)
        penalty += PENALTY_PER_ATTEMPT * attempt if worth is None else 0.0
    return score, penalty
