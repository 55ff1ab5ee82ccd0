"""Curves of a score over a swept setting: their peak, its place, and how wide it is.

Functions take the scores of one arm, [S, D]: S seeds, D values of the setting in rising order. All
runs of a seed start from the same model, so arms are compared seed by seed.

**The difference of two peaks.** Each arm is scored at the value that its *other* seeds choose, so
that no score is too high by its own choice. But the choices depend on each other: a seed with a
high score at some value takes that value out of its own choice and puts it into the others'. A
paired t of these heights is too narrow: it calls one of two equal arms better in 10 to 17 % of
studies (`simulated_studies.toml`). So the variance of a seed's difference has two parts,

    s~^2 = (d0 median_j s_j^2 + (n-1) s_*^2) / (d0 + n - 1)  +  n (h - h_all)^2

with t on d0 + n - 1 degrees of freedom, d0 = 2 as in `moderated.py`. s_j^2 is the variance of the
differences at value j. Their median is not moved by a value at which runs fall. s_*^2 is that at
the values which all seeds together choose. h is the mean difference of the heights, h_all that at
the values of all seeds. Their gap is what the choice moves.
"""

import numpy as np
from numpy.typing import NDArray

from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.analysis.stats.moderated import PRIOR_DEGREES, VarianceEstimate, VarianceRule
from gspo_lab.common.plain_data import Interval


def best_without_seed(scores_SD: Floats) -> NDArray[np.intp]:
    """For each seed the value that is best on average over the *other* seeds, as an index, [S].

    A peak that is chosen on the seeds that it is scored on is too high by chance. Choosing on the
    others (leave one out) takes that away. Two seeds are the least.
    """
    seeds = len(scores_SD)
    if seeds < 2:
        raise ValueError("choosing a value without the scored seed needs two seeds")
    others_SD = (scores_SD.sum(axis=0) - scores_SD) / (seeds - 1)
    best_S: NDArray[np.intp] = others_SD.argmax(axis=1)
    return best_S


def peak_heights(scores_SD: Floats) -> Floats:
    """Each seed's score at the value that the other seeds choose, [S]."""
    heights_S: Floats = scores_SD[np.arange(len(scores_SD)), best_without_seed(scores_SD)]
    return heights_S


def peak_rule(values: int) -> VarianceRule:
    """The rule by which two arms, each with runs at so many values, estimate the variance."""
    return VarianceRule(2 * values)


def peak_difference_variance(baseline_SD: Floats, treatment_SD: Floats) -> VarianceEstimate:
    """s~^2 of one seed's difference of `peak_heights`, with what the choice of the values adds."""
    seeds, values = baseline_SD.shape
    rule = peak_rule(values)
    by_value = (treatment_SD - baseline_SD).var(axis=0, ddof=1)
    at_all_seeds_S = _at_best_mean(treatment_SD) - _at_best_mean(baseline_SD)
    heights_S = peak_heights(treatment_SD) - peak_heights(baseline_SD)
    total = PRIOR_DEGREES * np.median(by_value) + (seeds - 1) * at_all_seeds_S.var(ddof=1)
    choice = seeds * (heights_S.mean() - at_all_seeds_S.mean()) ** 2
    return VarianceEstimate(float(total / rule.degrees(seeds) + choice), rule)


def _at_best_mean(scores_SD: Floats) -> Floats:
    """Each seed's score at the value that is best on average over all seeds, [S]."""
    at_best_S: Floats = scores_SD[:, scores_SD.mean(axis=0).argmax()]
    return at_best_S


def peak_places(scores_SD: Floats, values_D: Floats) -> Floats:
    """The logarithm of the value at which each seed's curve is highest, [S].

    Between values it is the vertex of the parabola through the highest point and its two
    neighbours, over the logarithm of the value. A peak at an end of the grid stays at that end.
    """
    log_values_D = np.log(values_D)
    return np.array([_vertex(scores_D, log_values_D) for scores_D in scores_SD])


def _vertex(scores_D: Floats, log_values_D: Floats) -> float:
    top = int(scores_D.argmax())
    if top in (0, len(scores_D) - 1):
        return float(log_values_D[top])
    around = slice(top - 1, top + 2)
    curvature, slope, _ = np.polyfit(log_values_D[around] - log_values_D[top], scores_D[around], 2)
    if curvature >= 0:  # three equal scores
        return float(log_values_D[top])
    return float(log_values_D[top] - slope / (2 * curvature))


def ranges_near_peak(scores_SD: Floats, values_D: Floats, margin: float) -> Floats:
    """The lowest and the highest value within `margin` of each seed's own peak, as logarithms,
    [S, 2].

    The range is the connected one around the peak. Scores between values are interpolated over the
    logarithm of the value. A range that reaches an end of the grid is cut there.
    """
    log_values_D = np.log(values_D)
    ranges = []
    for scores_D in scores_SD:
        top = int(scores_D.argmax())
        floor = scores_D[top] - margin
        above = _edge(scores_D[top:], log_values_D[top:], floor)
        below = _edge(scores_D[top::-1], log_values_D[top::-1], floor)
        ranges.append((below, above))
    return np.array(ranges)


def _edge(scores: Floats, log_values: Floats, floor: float) -> float:
    """Where a curve that starts above `floor` first falls below it; its last place if never."""
    for place in range(1, len(scores)):
        if scores[place] < floor:
            share = (scores[place - 1] - floor) / (scores[place - 1] - scores[place])
            step = log_values[place] - log_values[place - 1]
            return float(log_values[place - 1] + share * step)
    return float(log_values[-1])


def mean_range(ranges_S2: Floats) -> Interval:
    """The geometric means over seeds of both ends of `ranges_near_peak`."""
    low, high = np.exp(ranges_S2.mean(axis=0))
    return float(low), float(high)


def mean_score(scores_S: Floats) -> float:
    """The mean over seeds."""
    return float(scores_S.mean())


def peak_is_inside(scores_SD: Floats) -> bool:
    """Whether the mean curve is highest at neither end of the grid: else the grid may hold no
    peak.
    """
    top = int(scores_SD.mean(axis=0).argmax())
    last = int(scores_SD.shape[1]) - 1
    return 0 < top < last
