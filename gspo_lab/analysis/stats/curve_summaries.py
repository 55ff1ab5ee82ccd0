"""Numbers from a curve, by rules fixed before the run: area, tail, time to a threshold, a sigmoid
of compute.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gspo_lab.analysis.stats.array_checks import Bools, Floats, finite, same_length
from gspo_lab.common.errors import LabError


def normalised_auc(x: ArrayLike, y: ArrayLike) -> float:
    """Area under y(x) by trapezoids over the range of x: the mean height. x increases (prompts,
    seconds).
    """
    along, height = _curve(x, y)
    if len(along) < 2:
        raise LabError("area under a curve: two points are needed; evaluate more often")
    return float(np.trapezoid(height, along) / (along[-1] - along[0]))


def mean_of_runs(values: Floats) -> Floats:
    """The mean at every point, of one row per run; NaN where a run has no value."""
    mean: Floats = values.mean(axis=0)
    return mean


def tail_mean(y: ArrayLike, last: int) -> float:
    """Mean of the last `last` values, of all where there are fewer: the end of the run, never its
    best point.
    """
    values = finite(y, "tail mean")
    if last < 1 or len(values) == 0:
        raise LabError(
            f"tail mean of the last {last} of {len(values)} values: at least one is needed"
        )
    return float(values[-last:].mean())


def last_fifth(y: ArrayLike) -> float:
    """Mean of the last n // 5 of n values, at least of one."""
    return tail_mean(y, max(1, np.size(y) // 5))


def carry_last_finite(y: ArrayLike) -> tuple[Floats, Bools]:
    """`y` with every missing or infinite value replaced by the last finite one before it, and where
    that was done.

    This is how a collapsed run stays in every headline number. LabError when the first is missing.
    """
    values = np.array(y, dtype=np.float64)
    missing = ~np.isfinite(values)
    if len(values) and missing[0]:
        raise LabError(
            "the first value of a series is missing: nothing to carry; evaluate before step 0"
        )
    source = np.maximum.accumulate(np.where(missing, 0, np.arange(len(values))))
    return values[source], missing


def carry_forward(x: ArrayLike, y: ArrayLike, last: int) -> tuple[Floats, Floats]:
    """A curve, known at whole numbers `x`, at each whole number from the first of them to `last`.

    Where it is unknown or not finite, it repeats the last value before."""
    along = np.asarray(x, dtype=np.float64)
    height = np.asarray(y, dtype=np.float64)
    measured = np.isfinite(height)
    along = along[measured]
    height = height[measured]
    if not len(along):
        return along, height
    steps = np.arange(along[0], max(last, along[-1]) + 1, dtype=np.float64)
    return steps, height[np.searchsorted(along, steps, side="right") - 1]


def ema(y: ArrayLike, decay: float = 0.9) -> Floats:
    """Exponential mean of y_0..y_t with weights decay^(t-i), normalised to 1: the start is not
    pulled to 0.
    """
    values = finite(y, "exponential mean")
    if not 0 <= decay < 1:
        raise LabError(f"exponential mean: decay is {decay}; it lies in [0, 1)")
    if not len(values):
        return values
    return _discounted_sums(values, decay) / _discounted_sums(np.ones_like(values), decay)


def _discounted_sums(values: Floats, decay: float) -> Floats:
    """sum_i decay^(t-i) y_i for every t: each pass doubles how far back the sums reach."""
    sums = values.copy()
    reach = 1
    while reach < len(sums) and decay**reach:
        sums[reach:] += decay**reach * sums[:-reach]
        reach *= 2
    return sums


def time_to_threshold(x: ArrayLike, score: ArrayLike, threshold: float, end: float) -> float:
    """min(T, end), T the x (prompts, tokens) of the first evaluation with score >= threshold."""
    along, height = _curve(x, score)
    height = height[along <= end]
    along = along[along <= end]
    if len(along) == 0:
        raise LabError(f"time to threshold: no evaluation up to {end}; evaluate at the start")
    met = np.flatnonzero(height >= threshold)
    return float(along[met[0]]) if len(met) else end


def _curve(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    along = finite(x, "x")
    height = finite(y, "y")
    same_length(along, height, "curve")
    if (np.diff(along) <= 0).any():
        raise LabError(
            "curve: x must increase from point to point; sort it and drop repeated points"
        )
    return along, height


LEAST_POINTS = 6
"""Scores after the start that a fit of three numbers needs."""
LEAST_GAIN = 0.75
"""The share of its fitted gain that a run must have made: what is extrapolated is at most a third
of what was seen.
"""
SLOPES = (0.5, 1.0, 2.0, 4.0)
"""The exponents from which a fit sets out; the best of its ends counts."""


@dataclass(frozen=True)
class ScalingFit:
    """R(C) = R0 + (A - R0) / (1 + (C_mid / C)^B): ScaleRL, arXiv 2510.13786 eq. 1.

    `asymptote` is A, `exponent` is B, `midpoint` is C_mid.

    The midpoint is the compute at which half of the gain is made: the smaller it is, the more
    efficient the run. The paper calls a larger B more efficient too.
    `rms` is the root of the mean squared residual, in points of score.
    """

    asymptote: float
    exponent: float
    midpoint: float
    rms: float


def fit_scaling(compute: ArrayLike, score: ArrayLike) -> ScalingFit | None:
    """The least-squares sigmoid through scores at rising compute, the first of which is R0 at 0.

    A, B and C_mid are free, and compute is in any unit; the lab counts FLOPs. The paper instead
    searches A and C_mid on a grid, counts GPU-hours, and leaves the first 1,500 of them out of its
    fits (section 2.1).

    None where the run is too short for it: fewer than LEAST_POINTS scores after the start, none
    above it, or less than LEAST_GAIN of the fitted gain made at the last; the asymptote then is a
    guess.
    """
    from scipy.optimize import least_squares

    spent = finite(compute, "compute")
    values = finite(score, "score")
    same_length(spent, values, "compute and score")
    if len(spent) <= LEAST_POINTS or not (spent[1:] > 0).all() or not values[1:].max() > values[0]:
        return None
    along = np.log(spent[1:])
    gains = values[1:] - values[0]

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
    gain = float(best.x[0])
    exponent = float(np.exp(best.x[1]))
    midpoint = float(np.exp(best.x[2]))
    if 1 / (1 + (midpoint / spent[-1]) ** exponent) < LEAST_GAIN:
        return None
    return ScalingFit(
        float(values[0]) + gain, exponent, midpoint, float(np.sqrt(2 * best.cost / len(gains)))
    )
