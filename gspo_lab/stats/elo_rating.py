"""The rating at which a model's successes on problems of known difficulty are most likely.

P(solved) = 1 / (1 + 10^((d - r) / 400)), d the problem's rating on CodeForces, r the model's. An **estimate, and not
CodeElo**: that one ranks a model among the contestants of whole contests, by the site's own hidden tests.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from gspo_lab.errors import LabError
from gspo_lab.stats.array_checks import Floats, finite, same_length

SCALE = 400 / np.log(10)
"""Rating points per unit of log-odds."""

EXACT = 1e-9
"""Root mean square residual up to which the shares are just what the rating says: rounding, not spread."""


@dataclass(frozen=True)
class RatingEstimate:
    """`rating` and its 95 % interval over problems of the same kind; None where the answers set no bound.

    One problem, or problems without any spread about the rating, give no interval. With no problem solved there is only
    `high`, with all solved only `low`. At that rating the outcome, or one more extreme, has a chance of 5 %.
    """

    rating: float | None
    low: float | None
    high: float | None
    problems: int


def estimate_rating(difficulty_I: ArrayLike, solved_I: ArrayLike) -> RatingEstimate:
    """The estimate from each problem's difficulty (rating points) and the share of answers to it that solve it.

    Each problem counts once, however many answers it has. The interval is a sandwich over the n problems, times
    n / (n - 1) and with the t of n - 1 degrees of freedom, which answers to one and the same problem, alike as they
    are, do not narrow. LabError without a problem, or with shares outside [0, 1].
    """
    from scipy import optimize, stats

    difficulty, solved = finite(difficulty_I, "difficulty"), finite(solved_I, "solved")
    same_length(difficulty, solved, "a rating's difficulties and shares")
    if not len(difficulty) or (solved < 0).any() or (solved > 1).any():
        raise LabError("a rating needs at least one problem, and of each the share of answers that solve it, 0 to 1")
    problems, total = len(difficulty), float(solved.sum())
    reach = (float(difficulty.min()) - 40 * SCALE, float(difficulty.max()) + 40 * SCALE)
    if total == 0:
        high = optimize.brentq(lambda r: _log_none(difficulty, r) - np.log(0.05), *reach)
        return RatingEstimate(None, None, float(high), problems)
    if total == problems:
        low = optimize.brentq(lambda r: _log_none(-difficulty, -r) - np.log(0.05), *reach)
        return RatingEstimate(None, float(low), None, problems)
    rating = float(optimize.brentq(lambda r: float((solved - chance(difficulty, r)).sum()), *reach))
    expected = chance(difficulty, rating)
    information = float((expected * (1 - expected)).sum())
    spread = float(((solved - expected) ** 2).sum())
    if problems == 1 or spread <= problems * EXACT**2:
        return RatingEstimate(rating, None, None, problems)
    t = float(stats.t.ppf(0.975, problems - 1))
    half = float(t * SCALE * np.sqrt(spread * problems / (problems - 1)) / information)
    return RatingEstimate(rating, rating - half, rating + half, problems)


def chance(difficulty_I: Floats, rating: float) -> Floats:
    """The chance of solving each problem."""
    out: Floats = special.expit((rating - difficulty_I) / SCALE)
    return out


def _log_none(difficulty_I: Floats, rating: float) -> float:
    """Log chance of solving no problem at all."""
    return float(special.log_expit((difficulty_I - rating) / SCALE).sum())
