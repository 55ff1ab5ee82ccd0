"""The dose (learning rate, mini-batches) at which half of the runs collapse, and its ratio between
two arms.

Logistic regression of collapsed (0 or 1) on log10(dose) with Firth's penalty, and intervals by the
profile of the penalised likelihood (Heinze and Schemper 2002). If all runs of an arm ended alike,
its only limit follows from counts. More dose is assumed never to mean fewer collapses. The
likelihood counts runs as independent. But runs of one seed share their starting model. So a ratio's
interval is at least as wide as that of a paired t over seeds.

Shapes: N runs, P coefficients, Q free directions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from gspo_lab.analysis.stats.array_checks import Floats, finite, same_length, share
from gspo_lab.analysis.stats.levels import step_down
from gspo_lab.analysis.stats.paired import LEAST_SEEDS, PairedT, paired_t
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import OptionalFloat, OptionalText

_ANGLES = 25
"""The number of points between the estimate and infinity at which the profile is evaluated."""

FARTHEST = 6
"""Decades. An estimate or a limit farther from the centre of the tried doses is not reported, nor a
ratio farther from 1.
"""

SweptRuns = tuple[Sequence[float], Sequence[int], Sequence[int]]
"""Dose, collapsed (0 or 1) and seed, run by run."""


@dataclass(frozen=True)
class NeededDoses:
    """Doses to try for a two-sided interval: some below `below`, above `above`, or both."""

    below: OptionalFloat
    above: OptionalFloat


@dataclass(frozen=True)
class DoseLimits:
    """An ED50, or a ratio of two arms' ED50, with its interval.

    A ratio above 1 says that the second arm tolerates more. `low` or `high` is None if the data set
    no such limit. `estimate` is None if all runs of an arm ended alike, or if no limit is known;
    one limit may still be known. `slope` is the log odds per decade; a ratio has the common slope.
    `p` of a ratio is two-sided against 1: p < 1 - level says that the interval excludes 1.
    """

    estimate: OptionalFloat
    low: OptionalFloat
    high: OptionalFloat
    slope: OptionalFloat = None
    reason: OptionalText = None
    needed: NeededDoses | None = None
    p: OptionalFloat = None
    alpha: OptionalFloat = None
    """1 - the confidence of a ratio's limits, where both are known."""

    @property
    def resolved(self) -> bool:
        """Whether both limits are known."""
        return self.reason is None

    @property
    def excludes_one(self) -> bool:
        """Whether both limits are known and lie on one side of 1."""
        if self.low is None or self.high is None:
            return False
        return self.resolved and not self.low <= 1 <= self.high


def half_collapse(dose: ArrayLike, collapsed: ArrayLike, level: float = 0.95) -> DoseLimits:
    """The dose at which half of the runs collapse: 10^m, logit P = b (log10 dose - m), b >= 0.

    The interval holds every m whose profile penalised likelihood is within chi2_{1, level} / 2 of
    the best. The profile extends to m = +-infinity, so that perfectly separated doses have an
    interval and vague ones an open one. Runs that all ended alike have the exact limit of
    `_counted_limit` on one side, because their profile reflects the penalty.
    """
    x_N, y_N = _runs(dose, collapsed)
    share(level, "level")
    design_NP = np.column_stack([np.ones_like(x_N), x_N - x_N.mean()])
    fit = best_fit(design_NP, y_N)

    def loss(angle: float) -> float:
        """The profile's fall at m = tan(angle). An angle also reaches m = +-infinity."""
        directions_PQ = np.array([[-math.sin(angle)], [math.cos(angle)]])
        return (
            fit.penalised_likelihood - best_fit(design_NP, y_N, directions_PQ).penalised_likelihood
        )

    slope: OptionalFloat = None
    if _has_both_outcomes(y_N):
        slope = float(fit.coefficients[1])
        best = math.atan2(-float(fit.coefficients[0]), slope)
        low, high = _profile_limits(loss, best, level)
        middle = None if low is None and high is None else math.tan(best)
    else:
        limit = _counted_limit(x_N - x_N.mean(), bool(y_N.any()), level)
        low, high, middle = (None, limit, None) if y_N.any() else (limit, None, None)
    centre = x_N.mean()
    low_dose = _dose_at(low, centre)
    high_dose = _dose_at(high, centre)
    reason, needed = _reason_and_doses(x_N, y_N, low_dose, high_dose)
    return DoseLimits(_dose_at(middle, centre), low_dose, high_dose, slope, reason, needed)


def dose_ratio(
    dose_a: ArrayLike,
    collapsed_a: ArrayLike,
    dose_b: ArrayLike,
    collapsed_b: ArrayLike,
    level: float = 0.95,
    *,
    seeds: tuple[Sequence[int], Sequence[int]] | None = None,
) -> DoseLimits:
    """ED50_b / ED50_a = 10^r, logit P = b (log10 dose - m - r [arm b]), b >= 0 (a parallel-line
    bioassay, Finney 1952).

    The profile runs over r and assumes a common slope. An arm without a collapse has no upper limit
    of its dose, one with only collapses no lower limit, and so has the ratio. With `seeds`, one per
    run, the interval is at least as wide as that of `seed_shifts`; fewer than three complete seeds
    give none.
    """
    x_a, y_a = _runs(dose_a, collapsed_a)
    x_b, y_b = _runs(dose_b, collapsed_b)
    share(level, "level")
    x_N = np.concatenate([x_a, x_b])
    y_N = np.concatenate([y_a, y_b])
    arm_N = np.concatenate([np.zeros_like(x_a), np.ones_like(x_b)])
    design_NP = np.column_stack([np.ones_like(x_N), arm_N, x_N - x_N.mean()])
    fit = best_fit(design_NP, y_N)
    slope = float(fit.coefficients[2])

    def loss(angle: float) -> float:
        directions_PQ = np.array([[1.0, 0.0], [0.0, -math.sin(angle)], [0.0, math.cos(angle)]])
        fit_here = best_fit(design_NP, y_N, directions_PQ, np.array([fit.coefficients[0], slope]))
        return fit.penalised_likelihood - fit_here.penalised_likelihood

    best = math.atan2(-float(fit.coefficients[1]), slope)
    low, high = _profile_limits(loss, best, level)
    bounded = _has_both_outcomes(y_a) and _has_both_outcomes(y_b) and (low, high) != (None, None)
    shift = math.tan(best) if bounded else None
    if y_a.all() or not y_b.any():
        high = None
    if y_b.all() or not y_a.any():
        low = None
    p = float(special.chdtrc(1, 2 * max(0.0, loss(0.0))))
    if seeds is not None and low is not None and high is not None:
        shifts = seed_shifts((x_a, y_a, seeds[0]), (x_b, y_b, seeds[1]), 1 - level)
        if shifts.low is None or shifts.high is None or shifts.p is None:
            reason = (
                f"an interval over starting models needs {LEAST_SEEDS} seeds with every value, not"
                f" {shifts.n}"
            )
            return DoseLimits(_dose_at(shift), None, None, slope, reason)
        low = min(low, shifts.low)
        high = max(high, shifts.high)
        p = max(p, shifts.p)
    estimate = _dose_at(shift)
    low_ratio = _dose_at(low)
    high_ratio = _dose_at(high)
    if low_ratio is not None and high_ratio is not None:
        return DoseLimits(estimate, low_ratio, high_ratio, slope, p=p, alpha=1 - level)
    arms = [("first", x_a, y_a), ("second", x_b, y_b)]
    at_fault = [arm for arm in arms if not _has_both_outcomes(arm[2])] or arms
    lacks = [(name, *_reason_and_doses(x, y, None, None)) for name, x, y in at_fault]
    reason = "; ".join(f"{name} arm: {why}" for name, why, _ in lacks)
    belows = [needed.below for _, _, needed in lacks if needed and needed.below is not None]
    aboves = [needed.above for _, _, needed in lacks if needed and needed.above is not None]
    doses = NeededDoses(min(belows, default=None), max(aboves, default=None))
    return DoseLimits(estimate, low_ratio, high_ratio, slope, reason, doses)


def dose_ratios(
    baseline: SweptRuns, treatments: Mapping[str, SweptRuns], alpha: float = 0.05
) -> dict[str, DoseLimits]:
    """Each treatment's `dose_ratio` to the baseline, over starting models.

    Holm's rule gives the level of each ratio.
    """

    def ratio(name: str, level: float) -> DoseLimits:
        treatment = treatments[name]
        return dose_ratio(
            *baseline[:2], *treatment[:2], 1 - level, seeds=(baseline[2], treatment[2])
        )

    plain = {name: ratio(name, alpha) for name in treatments}
    steps = step_down([limits.p for limits in plain.values()], alpha)
    return {
        name: plain[name] if step.level == alpha else ratio(name, step.level)
        for name, step in zip(plain, steps, strict=True)
    }


def seed_shifts(
    baseline: tuple[Floats, Floats, Sequence[int]],
    treatment: tuple[Floats, Floats, Sequence[int]],
    alpha: float = 0.05,
) -> PairedT:
    """How far the treatment's collapse point lies above the baseline's, in decades.

    Seeds are pairs, because runs of one seed share their starting model. Each arm is (log10 dose,
    collapsed, seed) by run. A seed's collapse point is Spearman and Kaerber's: from below the
    lowest dose up by the width of each dose that was survived. Only seeds with all doses of both
    arms count. The dose grid hides where a point lies within its step h: each has variance h^2 /
    12, so a difference has at least h^2 / 6.
    """
    grid = sorted({*baseline[0].tolist(), *treatment[0].tolist()})
    width = dict(zip(grid, np.gradient(np.array(grid)).tolist(), strict=True))
    by_arm: list[dict[int, dict[float, float]]] = [{}, {}]
    for by_seed, arm in zip(by_arm, (baseline, treatment), strict=True):
        for dose, collapsed, seed in zip(arm[0].tolist(), arm[1].tolist(), arm[2], strict=True):
            by_seed.setdefault(seed, {})[dose] = collapsed
    complete = [
        seed
        for seed in by_arm[0]
        if all(len(by_seed.get(seed, {})) == len(grid) for by_seed in by_arm)
    ]

    def point(survived: dict[float, float]) -> float:
        return float(sum(width[dose] * (1 - survived[dose]) for dose in grid))

    points = [[point(by_seed[seed]) for seed in complete] for by_seed in by_arm]
    hidden = float(np.mean(list(width.values()))) ** 2 / 6
    return paired_t(np.subtract(points[1], points[0]), alpha, scale=1.0, items_variance=hidden)


def _dose_at(decades: OptionalFloat, centre: float = 0.0) -> OptionalFloat:
    """10^(centre + decades); None if `decades` is None or larger than `FARTHEST`.

    A slope near 0 moves limits beyond the range of a float.
    """
    if decades is None or abs(decades) > FARTHEST:
        return None
    return float(10 ** (centre + decades))


def _runs(dose: ArrayLike, collapsed: ArrayLike) -> tuple[Floats, Floats]:
    """log10(dose) and 0/1 of every run."""
    doses = finite(dose, "swept value")
    outcome = finite(collapsed, "collapsed")
    same_length(doses, outcome, "swept values and collapses")
    if (doses <= 0).any():
        raise LabError(f"swept value {float(doses.min())}: it must be above 0, for its logarithm")
    if not np.isin(outcome, (0, 1)).all():
        raise LabError("collapsed: give 1 for a run that collapsed and 0 for one that did not")
    if len(np.unique(doses)) < 2:
        raise LabError("a value at which half collapse needs runs at two values or more; vary it")
    return np.log10(doses), outcome


def _profile_limits(
    loss: Callable[[float], float], best: float, level: float
) -> tuple[OptionalFloat, OptionalFloat]:
    """The outermost m = tan(angle) on both sides at which the profile has fallen by chi2_{1, level}
    / 2; None if it has not fallen so far even at infinity.
    """
    from scipy.optimize import brentq  # imported where it is used: only sweeps need it

    allowed = float(special.chdtri(1, 1 - level)) / 2
    limits: list[OptionalFloat] = []
    for end in (-math.pi / 2, math.pi / 2):
        if loss(end) <= allowed:
            limits.append(None)
            continue
        # Denser towards the estimate, where doses differ by fractions of a decade.
        angles = best + (end - best) * np.linspace(1.0, 0.0, _ANGLES) ** 2
        outer = end
        for angle in angles[1:]:
            if loss(float(angle)) <= allowed:
                break
            outer = float(angle)
        root = brentq(lambda candidate: loss(candidate) - allowed, outer, float(angle), xtol=1e-9)
        limits.append(math.tan(float(root)))
    return limits[0], limits[1]


def _counted_limit(x_N: Floats, all_collapsed: bool, level: float) -> OptionalFloat:
    """The exact limit of m from runs that all ended alike, by order alone.

    If m <= x, each run at or above x collapses with a chance of at least 1/2. Then k such runs are
    all stable with a chance of at most 2^-k. So m is above the highest x with 2^-k <= (1 - level) /
    2: k = 6 runs at 95 %. None: too few runs.
    """
    beyond = math.ceil(math.log2(2 / (1 - level)))
    if len(x_N) < beyond:
        return None
    ordered = np.sort(x_N)
    return float(ordered[beyond - 1] if all_collapsed else ordered[-beyond])


def _has_both_outcomes(y_N: Floats) -> bool:
    return bool(y_N.any() and not y_N.all())


def _reason_and_doses(
    x_N: Floats, y_N: Floats, low: OptionalFloat, high: OptionalFloat
) -> tuple[OptionalText, NeededDoses | None]:
    """Why an ED50 has no two-sided interval, and the doses that would give it one."""
    if low is not None and high is not None:
        return None, None
    smallest = float(10 ** x_N.min())
    largest = float(10 ** x_N.max())
    if not y_N.any():
        return f"no run collapsed up to {largest:.3g}", NeededDoses(None, largest)
    if y_N.all():
        return f"every run collapsed from {smallest:.3g} on", NeededDoses(smallest, None)
    return (
        (
            f"between {smallest:.3g} and {largest:.3g} collapse does not follow the value"
            " clearly enough"
        ),
        NeededDoses(smallest, largest),
    )


STEPS = 500
HALVINGS = 60
LEAST_GAIN = 1e-15
"""A step that promises a smaller gain of the likelihood ends the search."""
ROUNDING = 1e-13
"""How far a step may lower the likelihood, in which rounding errors are of this size."""


class Fit(NamedTuple):
    """Coefficients [P] and l + log|I| / 2 there."""

    coefficients: Floats
    penalised_likelihood: float


class Likelihood(NamedTuple):
    """l(b) + log|X'WX| / 2, its gradient [P] and X'WX [P, P]."""

    value: float
    gradient: Floats
    information: Floats


def penalised_likelihood(
    design_NP: Floats, outcome_N: Floats, coefficients_P: Floats
) -> Likelihood:
    """The likelihood with Jeffreys' prior (Firth 1993); its value is -inf where X'WX is singular.

    The gradient is Firth's modified score X'(y - p + h (1/2 - p)), h the leverages, W = diag(p (1 -
    p)).
    """
    linear_N = design_NP @ coefficients_P
    p_N = special.expit(linear_N)
    root_NP = design_NP * np.sqrt(p_N * (1 - p_N))[:, None]
    q_NP, r_PP = np.linalg.qr(root_NP)
    diagonal = np.abs(np.diag(r_PP))
    if (diagonal < 1e-150).any():
        return Likelihood(-np.inf, np.zeros(len(coefficients_P)), np.eye(len(coefficients_P)))
    likelihood = -float(np.logaddexp(0.0, np.where(outcome_N == 1, -linear_N, linear_N)).sum())
    leverage_N = (q_NP**2).sum(axis=1)
    gradient_P = design_NP.T @ (outcome_N - p_N + leverage_N * (0.5 - p_N))
    return Likelihood(likelihood + float(np.log(diagonal).sum()), gradient_P, r_PP.T @ r_PP)


def best_fit(
    design_NP: Floats,
    outcome_N: Floats,
    directions_PQ: Floats | None = None,
    start_Q: Floats | None = None,
) -> Fit:
    """The maximum of the penalised likelihood over `directions_PQ @ free_Q`, the last free number
    >= 0. Without directions all coefficients are free.

    The penalty keeps the whole model's information (Heinze and Schemper 2002). Fisher scoring
    starts from zero, and from `start_Q` if given. scipy's L-BFGS-B finds the same maximum, but its
    threaded BLAS took 40 times as long on steps of three numbers.
    """
    directions = np.eye(design_NP.shape[1]) if directions_PQ is None else directions_PQ
    starts = (
        [np.zeros(directions.shape[1])]
        if start_Q is None
        else [np.zeros(directions.shape[1]), start_Q]
    )
    fits = [_climb(design_NP, outcome_N, directions, start) for start in starts]
    return max(fits, key=lambda fit: fit.penalised_likelihood)


def _climb(design_NP: Floats, outcome_N: Floats, directions_PQ: Floats, free_Q: Floats) -> Fit:
    """The maximum that Fisher scoring with halved steps reaches from `free_Q`."""
    best = penalised_likelihood(design_NP, outcome_N, directions_PQ @ free_Q)
    for _ in range(STEPS):
        gradient_Q = directions_PQ.T @ best.gradient
        information_QQ = directions_PQ.T @ best.information @ directions_PQ
        step_Q = np.linalg.solve(information_QQ, gradient_Q)
        if free_Q[-1] == 0 and step_Q[-1] < 0:  # the last one stays at its bound
            step_Q = np.append(np.linalg.solve(information_QQ[:-1, :-1], gradient_Q[:-1]), 0.0)
        if float(step_Q @ gradient_Q) < LEAST_GAIN:
            break
        for _ in range(HALVINGS):
            next_Q = free_Q + step_Q
            next_Q[-1] = max(0.0, next_Q[-1])
            moved = penalised_likelihood(design_NP, outcome_N, directions_PQ @ next_Q)
            if moved.value >= best.value - ROUNDING:
                break
            step_Q = step_Q / 2
        else:
            break
        free_Q = next_Q
        best = moved
    return Fit(directions_PQ @ free_Q, best.value)
