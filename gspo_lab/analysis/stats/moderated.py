"""The variance of a difference of arms, estimated from all arms of a study.

Three seeds leave two degrees of freedom for the variance of one pair of arms, and the t interval
is then wide. The other arms of the study, trained on the same seeds, say more about that variance.

Scores Y of m arms on n seeds; Y_as has the arm's mean Y_a. and the seed's mean Y_.s around the
grand mean Y_.. . The block's mean square, with (m-1)(n-1) degrees of freedom (Fisher 1925), is

    MS = sum_as (Y_as - Y_a. - Y_.s + Y_..)^2 / ((m-1)(n-1))

**Several arms against a baseline** (Smyth 2004, "Linear models and empirical Bayes methods for
assessing differential expression", section 3, with prior degrees of freedom that are fixed
beforehand, d0 = 2). Let s_k^2 be the variance of arm k's differences to the baseline. Then

    s~_k^2 = (d0 2 MS + (n-1) s_k^2) / (d0 + n - 1),   t with d0 + n - 1 degrees of freedom

Two arms have 2 MS = s^2, which is the plain paired t; there d0 is 0.

**A contrast** sum_a w_a Y_a whose weights are all of one size, such as (+1/2, +1/2, -1/2, -1/2) of
a 2 x 2 design. The mean of the variances of the three orthogonal contrasts (rule, replay,
interaction) is sum_a w_a^2 MS, with 3 (n-1) degrees of freedom (Cochran and Cox 1957, section 5.2).

`simulation_cells.py` measures the error rates of both, where arms are unequally noisy too.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gspo_lab.analysis.stats.array_checks import Floats, finite

PRIOR_DEGREES = 2.0
"""d0: the weight of the block's mean square, in degrees of freedom. With 3 a baseline that is four
times as noisy has an error rate of .10; with 1.5 three arms gain half as much."""

EQUAL_SIZE = 1e-9
"""Weights of a contrast whose sizes differ by less are equal."""


class VarianceRule(NamedTuple):
    """Which scores estimate the variance of a difference: those of two arms (the plain paired t),
    of several arms against a baseline, or of all arms of a contrast.
    """

    arms: int = 2
    """How many arms the block has, the baseline included."""
    contrast: bool = False

    def degrees(self, seeds: int) -> float:
        """Degrees of freedom of the t distribution that the interval is built from."""
        if self.contrast:
            return (self.arms - 1.0) * (seeds - 1)
        prior = PRIOR_DEGREES if self.arms > 2 else 0.0
        return prior + seeds - 1

    def sampled_degrees(self, seeds: int) -> float:
        """Degrees of freedom of the chi-square that the variance estimate follows if all arms are
        equally noisy.

        Of s~^2 by matching its variance (Satterthwaite 1946). It is the sum of a chi-square with
        n - 1 degrees of freedom, weighted 1 + b, and one with (m-2)(n-1), weighted b, where
        b = d0 / ((m-1)(n-1)).
        """
        if self.contrast or self.arms <= 2:
            return self.degrees(seeds)
        other = PRIOR_DEGREES / ((self.arms - 1) * (seeds - 1))
        squares = (seeds - 1) * (1 + other) ** 2 + (self.arms - 2) * (seeds - 1) * other**2
        return float(self.degrees(seeds) ** 2 / squares)


PLAIN = VarianceRule()


class VarianceEstimate(NamedTuple):
    """The estimated variance of one seed's difference, and the rule that estimated it."""

    variance: float
    rule: VarianceRule

    @property
    def sd(self) -> float:
        """The standard deviation of one seed's difference."""
        return math.sqrt(self.variance)


def block_mean_square(scores_AS: ArrayLike) -> float:
    """MS of scores by arm and seed, what neither the arm nor the seed explains; two of each at
    least.
    """
    y_AS = finite(scores_AS, "scores by arm and seed", axes=2)
    arms, seeds = y_AS.shape
    residual_AS = y_AS - y_AS.mean(axis=1, keepdims=True) - y_AS.mean(axis=0) + y_AS.mean()
    squares = float((residual_AS**2).sum())
    return squares / float((arms - 1) * (seeds - 1))


def moderated_variance(scores_AS: Floats, baseline: int, treatment: int) -> VarianceEstimate | None:
    """s~^2 of the differences of two rows of `scores_AS`; None where the plain variance stands:
    with two arms, or fewer than two seeds.
    """
    arms, seeds = scores_AS.shape
    if arms <= 2 or seeds < 2:
        return None
    rule = VarianceRule(arms)
    pair_variance = float((scores_AS[treatment] - scores_AS[baseline]).var(ddof=1))
    prior = 2 * block_mean_square(scores_AS)
    total = PRIOR_DEGREES * prior + (seeds - 1) * pair_variance
    return VarianceEstimate(total / rule.degrees(seeds), rule)


def contrast_rule(weights: Sequence[float]) -> VarianceRule:
    """The rule of a contrast with these weights of its arms; the plain one where their sizes
    differ, because the arm of the largest weight may be the noisiest.
    """
    sizes = [abs(weight) for weight in weights]
    if len(sizes) <= 2 or max(sizes) - min(sizes) > EQUAL_SIZE:
        return PLAIN
    return VarianceRule(len(sizes), contrast=True)


def contrast_variance(scores_AS: ArrayLike, weights: Sequence[float]) -> VarianceEstimate | None:
    """sum w^2 MS of a contrast over the rows of `scores_AS`; None where the plain one stands."""
    y_AS = np.asarray(scores_AS, dtype=np.float64)
    rule = contrast_rule(weights)
    if rule == PLAIN or y_AS.ndim != 2 or y_AS.shape[1] < 2:
        return None
    squared = sum(weight**2 for weight in weights)
    return VarianceEstimate(squared * block_mean_square(y_AS), rule)
