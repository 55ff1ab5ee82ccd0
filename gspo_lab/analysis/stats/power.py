"""What a number of seeds can show, before compute is spent and beside every "inconclusive".

All factors are in units of sd, the standard deviation of the per-seed difference between two arms.
`rule` says which arms estimate that sd from the scores; by default the two of the pair.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.polynomial.legendre import legder, legval
from scipy import special

from gspo_lab.analysis.stats.array_checks import Floats, share
from gspo_lab.analysis.stats.moderated import PLAIN, VarianceRule
from gspo_lab.analysis.stats.paired import LEAST_SEEDS, t_quantile
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import Interval, OptionalFloat, OptionalInt

LEAST_FOR_EQUIVALENCE = 5
"""Fewer pairs are never called equivalent: the true spread is .52 to 6.3 times the one that three
of them show.
"""

MOST_SEEDS = 98_304
"""Beyond this, "how many seeds" has no useful answer and is None."""


def pooled_sd(groups: Iterable[Sequence[float]]) -> tuple[OptionalFloat, int]:
    """The standard deviation around each group's own mean, and its degrees of freedom; None without
    any.
    """
    several = [np.asarray(group, dtype=np.float64) for group in groups if len(group) > 1]
    degrees = sum(len(group) - 1 for group in several)
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in several)
    return (math.sqrt(squares / degrees) if degrees else None), degrees


_DEGREE = 256
_POLYNOMIAL = np.eye(_DEGREE + 1)[_DEGREE]
_SLOPE = legder(_POLYNOMIAL)
_NODES = np.cos(np.pi * (np.arange(_DEGREE, 0, -1) - 0.25) / (_DEGREE + 0.5))
# numpy's rule finds eigenvalues: the threads of its BLAS took half a second of a busy processor.
for _ in range(5):
    _NODES = _NODES - legval(_NODES, _POLYNOMIAL) / legval(_NODES, _SLOPE)
_SHARES = (_NODES + 1) / 2
_WEIGHTS = 1 / ((1 - _NODES**2) * legval(_NODES, _SLOPE) ** 2)
"""The Gauss-Legendre rule on 0 to 1, by Newton's method."""


def detection_chance(
    n: int, effect: float, alpha: float = 0.05, rule: VarianceRule = PLAIN
) -> float:
    """The chance that the t test on `n` seeds finds a true difference of `effect` sd of a pair's
    difference.

    Of the paired t it is P(|T| > t_{n-1, 1-alpha/2}) for T ~ t(n-1, effect sqrt(n)): that of a
    normal mean beyond t s, averaged over s; scipy's own nctdtr gives NaN in the far tail.
    """
    return _power(effect * math.sqrt(n), _reach(n, alpha, rule))


def _reach(n: int, alpha: float, rule: VarianceRule) -> Floats:
    _check(n, alpha)
    critical = t_quantile(rule.degrees(n), 1 - alpha / 2)
    return critical * _sd_quantiles(rule.sampled_degrees(n), _SHARES)


def _power(shift: float, reach: Floats) -> float:
    return float((_WEIGHTS * (special.ndtr(shift - reach) + special.ndtr(-shift - reach))).sum())


@lru_cache(maxsize=4096)
def detectable_factor(
    n: int, alpha: float = 0.05, power: float = 0.8, rule: VarianceRule = PLAIN
) -> float:
    """Smallest effect, in sd, that the t test on `n` seeds detects with chance `power`; from the
    noncentral t.

    Solves detection_chance = power: 3.26, 2.13, 1.68 at n = 3, 4, 5 for a pair of arms.
    """
    reach = _reach(n, alpha, rule)
    _check(n, alpha, power)
    return _root(lambda shift: power - _power(shift, reach), tolerance=1e-10) / math.sqrt(n)


@lru_cache(maxsize=4096)
def equivalence_factor(
    n: int, alpha: float = 0.05, power: float = 0.8, rule: VarianceRule = PLAIN
) -> float:
    """Smallest margin, in sd, inside which the whole 1 - alpha interval falls with chance `power`
    when nothing differs.

    Mean and sd of normal differences are independent, so the chance is E over s of
    2 Phi((m - t s / sqrt(n)) sqrt(n)) - 1 where that is positive, s^2 ~ chi2_f / f with the rule's
    f degrees of freedom; integrated by Gauss-Legendre over the quantiles of s.
    """
    _check(n, alpha, power)
    critical = t_quantile(rule.degrees(n), 1 - alpha / 2)
    degrees = rule.sampled_degrees(n)
    return _root(
        lambda margin: power - _equivalence_chance(n, degrees, margin, critical), tolerance=1e-8
    )


def seeds_needed(
    sd: float,
    effect: float,
    alpha: float = 0.05,
    power: float = 0.8,
    rule: VarianceRule = PLAIN,
) -> OptionalInt:
    """Fewest seeds, 3 at least, that detect a true difference of `effect` with chance `power`; None
    past MOST_SEEDS.
    """
    return _fewest_seeds(lambda n: detectable_factor(n, alpha, power, rule), sd, effect)


def seeds_for_equivalence(
    sd: float,
    margin: float,
    alpha: float = 0.05,
    power: float = 0.8,
    rule: VarianceRule = PLAIN,
) -> OptionalInt:
    """Fewest seeds, 5 at least, that show equivalence within `margin` with chance `power` when
    nothing differs.
    """
    enough = _fewest_seeds(lambda n: equivalence_factor(n, alpha, power, rule), sd, margin)
    return None if enough is None else max(enough, LEAST_FOR_EQUIVALENCE)


def sd_range(sd: float, degrees: float, level: float = 0.95) -> Interval:
    """Where the true sd lies, by chi-square with these degrees of freedom: sd sqrt(f / q) at both
    quantiles; .52 to 6.3 times sd with 2 degrees, those of 3 seeds.
    """
    low, high = _middle_of_sd(degrees, level)
    return sd / low, sd / high


@lru_cache(maxsize=1024)
def _middle_of_sd(degrees: float, level: float) -> Interval:
    if degrees <= 0:
        raise LabError("one seed shows no spread; use 2 or more")
    tail = (1 - share(level, "level")) / 2
    high, low = _sd_quantiles(degrees, np.array([tail, 1 - tail])).tolist()
    return low, high


def _fewest_seeds(factor: Callable[[int], float], sd: float, goal: float) -> OptionalInt:
    """The fewest seeds that reach the goal, by bisection: the factor falls with n."""
    if sd < 0 or goal <= 0:
        raise LabError(
            f"seeds needed for a difference of {goal} at sd {sd}: sd >= 0 and a difference above 0"
            " are needed"
        )
    tried = range(LEAST_SEEDS, MOST_SEEDS + 1)
    place = bisect_left(tried, True, key=lambda n: factor(n) * sd <= goal)
    return tried[place] if place < len(tried) else None


def _equivalence_chance(n: int, degrees: float, margin: float, critical: float) -> float:
    widest = margin * math.sqrt(n) / critical
    reach = float(special.gammainc(degrees / 2, degrees * widest**2 / 2))
    if reach == 0:
        return 0.0
    s = _sd_quantiles(degrees, reach * _SHARES)
    inside = 2 * special.ndtr(margin * math.sqrt(n) - critical * s) - 1
    return float((_WEIGHTS * inside).sum()) * reach


def _sd_quantiles(degrees: float, levels: Floats) -> Floats:
    """Quantiles of an observed sd when the true one is 1: sqrt(chi2_f / f) with f degrees of
    freedom.
    """
    return np.asarray(
        np.sqrt(2 * special.gammaincinv(degrees / 2, levels) / degrees), dtype=np.float64
    )


def _root(falling: Callable[[float], float], tolerance: float) -> float:
    """Where a falling function, positive at 0, crosses 0: the Illinois rule, chords whose stuck end
    is halved.

    Written here because scipy's root finders take a quarter of a second to import, more than a
    verdict takes.
    """
    low = 0.0
    high = 1.0
    above = falling(low)
    below = falling(high)
    while below > 0:
        low = high
        above = below
        high = 2 * high
        below = falling(high)
    moved = None
    while below < 0 and high - low > tolerance:
        middle = (low * below - high * above) / (below - above)
        value = falling(middle)
        if value > 0:
            low = middle
            above = value
            below = below / 2 if moved == "low" else below
            moved = "low"
        else:
            high = middle
            below = value
            above = above / 2 if moved == "high" else above
            moved = "high"
    return high


def _check(n: int, alpha: float, power: float = 0.999) -> None:
    if n < LEAST_SEEDS:
        raise LabError(
            f"{n} seeds: fewer than {LEAST_SEEDS} give no interval, so nothing can be detected; use"
            " more"
        )
    share(alpha, "alpha")
    if not alpha < power < 1:
        raise LabError(f"power is {power}; it lies between alpha = {alpha} and 1")
