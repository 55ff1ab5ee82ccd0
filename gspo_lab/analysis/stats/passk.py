"""One model on one benchmark: pass@k, avg@k, and a rating by problems of known difficulty.

P(solved) = 1 / (1 + 10^((d - r) / 400)), d the problem's rating on CodeForces, r the model's. An
**estimate, and not CodeElo**: that one ranks a model among the contestants of whole contests, by
the site's own hidden tests.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from gspo_lab.analysis.stats.array_checks import (
    Floats,
    Integers,
    finite,
    same_length,
    share,
    whole_numbers,
)
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import Interval, OptionalFloat


def pass_at_k(correct_I: ArrayLike, samples_I: ArrayLike, k: int) -> Floats:
    """Per item, the chance that k of its answers drawn without replacement hold a right one: 1 -
    C(n-c, k) / C(n, k).

    Product form 1 - prod_{i=n-c+1}^{n} (1 - k/i), unbiased and without large binomials (arXiv
    2107.03374). `correct_I` right ones among `samples_I` answers (or one number for all). LabError
    where an item has fewer than k answers.
    """
    correct, samples = _counts(correct_I, samples_I)
    if k < 1 or (samples < k).any():
        raise LabError(
            f"pass@{k}: k is at least 1 and every item needs k answers; the fewest here are"
            f" {samples.min()}"
        )
    return np.array(
        [
            1.0 if n - c < k else 1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1))
            for c, n in zip(correct, samples, strict=True)
        ]
    )


@dataclass(frozen=True)
class CheckpointScore:
    """avg@k of one checkpoint. Its interval says nothing about other training seeds.

    `item_low/high` and `se`, the standard error, are for new problems of the same kind and new
    answers. They need two problems.
    `sampling_se`, `item_se` split the square of `se`: item_se is what remains with any number of
    answers per problem. Both are None with a single answer per problem, which tells no variance of
    answers.
    """

    mean: float
    problems: int
    answers: int
    se: OptionalFloat
    sampling_se: OptionalFloat
    item_se: OptionalFloat
    item_low: OptionalFloat
    item_high: OptionalFloat


def checkpoint_score(
    correct_I: ArrayLike, samples_I: ArrayLike, level: float = 0.95
) -> CheckpointScore:
    """Mean over problems of the share of right answers, with Jeffreys' Beta interval on the
    effective sample size.

    m (1 - m) / se^2 is the number of independent answers of the same precision. The interval is
    that of Beta(m N + 1/2, (1 - m) N + 1/2), closed at 0 or 1 when everything is wrong or right. No
    normal approximation (arXiv 2503.01747); effective sizes as in survey sampling (Franco and
    others 2019). Sampling: se^2 = sum_i p_i (1 - p_i) / (K_i - 1) / I^2. Problems too: se^2 =
    var_i(p_i) / I.
    """
    share(level, "level")
    correct, samples = _counts(correct_I, samples_I)
    if len(samples) == 0 or (samples < 1).any():
        raise LabError(
            "avg@k: every problem needs an answer; leave out the problems that were never asked"
        )
    rate_I = correct / samples
    problems = len(samples)
    answers = int(samples.sum())
    mean = float(rate_I.mean())

    total_var = sampling_var = item_var = None
    items: Interval | tuple[None, None] = (None, None)
    if (samples > 1).all():
        sampling_var = float((rate_I * (1 - rate_I) / (samples - 1)).sum()) / problems**2
    if problems > 1:
        total_var = float(rate_I.var(ddof=1)) / problems
        items = jeffreys(mean, total_var, problems, level)
        item_var = None if sampling_var is None else max(0.0, total_var - sampling_var)
    errors = (
        None if variance is None else math.sqrt(variance)
        for variance in (total_var, sampling_var, item_var)
    )
    return CheckpointScore(mean, problems, answers, *errors, *items)


def jeffreys(mean: float, variance: float, fallback: int, level: float) -> Interval:
    """Jeffreys' interval of a share; `fallback`: its number of answers where `variance` is 0."""
    size = mean * (1 - mean) / variance if variance > 0 and 0 < mean < 1 else float(fallback)
    tail = (1 - level) / 2
    right = mean * size + 0.5
    failures = (1 - mean) * size + 0.5
    low = 0.0 if mean == 0 else float(special.betaincinv(right, failures, tail))
    high = 1.0 if mean == 1 else float(special.betaincinv(right, failures, 1 - tail))
    return low, high


def _counts(correct_I: ArrayLike, samples_I: ArrayLike) -> tuple[Integers, Integers]:
    correct = whole_numbers(correct_I, "right answers")
    samples = whole_numbers(samples_I, "answers")
    if len(samples) == 1:
        samples = np.repeat(samples, len(correct))
    same_length(correct, samples, "right answers and answers")
    if (correct > samples).any():
        raise LabError(
            "pass@k: a problem has more right answers than answers; count both from the same rows"
        )
    return correct, samples


SCALE = 400 / np.log(10)
"""Rating points per unit of log-odds."""

EXACT = 1e-9
"""Root mean square residual up to which the shares are just what the rating says: rounding, not
spread.
"""


@dataclass(frozen=True)
class RatingEstimate:
    """`rating` and its 95 % interval over problems of the same kind; None where the answers set no
    bound.

    One problem, or problems without any spread about the rating, give no interval. With no problem
    solved there is only `high`, with all solved only `low`. At that rating the outcome, or one more
    extreme, has a chance of 5 %.
    """

    rating: OptionalFloat
    low: OptionalFloat
    high: OptionalFloat
    problems: int


def estimate_rating(difficulty_I: ArrayLike, solved_I: ArrayLike) -> RatingEstimate:
    """The estimate from each problem's difficulty (rating points) and the share of answers to it
    that solve it.

    Each problem counts once, however many answers it has. The interval is a sandwich over the n
    problems, times n / (n - 1) and with the t of n - 1 degrees of freedom, which answers to one and
    the same problem, alike as they are, do not narrow. LabError without a problem, or with shares
    outside [0, 1].
    """
    from scipy import optimize, stats

    difficulty = finite(difficulty_I, "difficulty")
    solved = finite(solved_I, "solved")
    same_length(difficulty, solved, "a rating's difficulties and shares")
    if not len(difficulty) or (solved < 0).any() or (solved > 1).any():
        raise LabError(
            "a rating needs at least one problem, and of each the share of answers that solve it, 0"
            " to 1"
        )
    problems = len(difficulty)
    total = float(solved.sum())
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
