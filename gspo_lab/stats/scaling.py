"""Compute against performance: a sigmoid through a run's scores, with its asymptote and its efficiency."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gspo_lab.stats.array_checks import Floats, finite, same_length

LEAST_POINTS = 6
"""Scores after the start that a fit of three numbers needs."""
LEAST_GAIN = 0.75
"""The share of its fitted gain that a run must have made: what is extrapolated is at most a third of what was seen."""
SLOPES = (0.5, 1.0, 2.0, 4.0)
"""The exponents from which a fit sets out; the best of its ends counts."""


@dataclass(frozen=True)
class ScalingFit:
    """R(C) = R0 + (A - R0) / (1 + (C_mid / C)^B): ScaleRL, arXiv 2510.13786 eq. 1.

    `asymptote` is A, `exponent` is B, `midpoint` is C_mid.

    The midpoint is the compute at which half of the gain is made: the smaller it is, the more efficient the run.
    `rms` is the root of the mean squared residual, in points of score.
    """

    asymptote: float
    exponent: float
    midpoint: float
    rms: float


def fit_scaling(compute: ArrayLike, score: ArrayLike) -> ScalingFit | None:
    """The least-squares sigmoid through scores at rising compute, the first of which is R0 at 0.

    None where the run is too short for it: fewer than LEAST_POINTS scores after the start, none above it, or less than
    LEAST_GAIN of the fitted gain made at the last; the asymptote then is a guess.
    """
    from scipy.optimize import least_squares

    spent, values = finite(compute, "compute"), finite(score, "score")
    same_length(spent, values, "compute and score")
    if len(spent) <= LEAST_POINTS or not (spent[1:] > 0).all() or not values[1:].max() > values[0]:
        return None
    along, gains = np.log(spent[1:]), values[1:] - values[0]

    def residuals(parameters: Floats, /) -> Floats:
        gain, log_exponent, log_midpoint = parameters
        power = np.clip(np.exp(log_exponent) * (log_midpoint - along), -50, 50)
        return np.asarray(gain / (1 + np.exp(power)) - gains, dtype=np.float64)

    low = [0.0, np.log(0.1), along[0] - 5]
    high = [10 * float(gains.max()), np.log(20.0), along[-1] + 5]
    starts = [[float(gains.max()), np.log(slope), float(np.median(along))] for slope in SLOPES]
    fits = [least_squares(residuals, start, bounds=(low, high)) for start in starts]
    best = min((fit for fit in fits if fit.success), key=lambda fit: float(fit.cost), default=None)
    if best is None:
        return None
    gain, exponent, midpoint = float(best.x[0]), float(np.exp(best.x[1])), float(np.exp(best.x[2]))
    if 1 / (1 + (midpoint / spent[-1]) ** exponent) < LEAST_GAIN:
        return None
    return ScalingFit(float(values[0]) + gain, exponent, midpoint, float(np.sqrt(2 * best.cost / len(gains))))
