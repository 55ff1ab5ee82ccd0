"""Several executions of one declaration: their combined estimate, their agreement, and which
verdicts are confirmed.

The unit is a set of seeds with its starting models. A single set does not show what varies between
sets. Executions that share seeds, for example on another machine, form one cluster: they repeat the
result of the same seeds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
from scipy import special

from gspo_lab.analysis.stats.array_checks import Floats, finite, same_length, share
from gspo_lab.analysis.stats.paired import PairedT, paired_t, t_interval
from gspo_lab.analysis.stats.verdict import BEYOND, Verdict
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import Interval, OptionalFloat

ReplicationOutcome = Literal["contradicted", "not confirmed", "confirmed"]
"""What a later execution says of an earlier verdict, the worst first."""


@dataclass(frozen=True)
class CombinedEstimate:
    """The mean over all possible executions, by random effects, with its two-sided t interval on
    `df`.

    It is over `k` clusters that share no seed. `tau` is the estimated sd between clusters that
    their intervals do not explain. It is None for one cluster, whose interval is the paired t over
    its seeds.
    """

    k: int
    estimate: float
    se: float
    tau: OptionalFloat
    df: float
    low: float
    high: float
    p: float
    alpha: float


@dataclass(frozen=True)
class SeedCluster:
    """Executions that share seeds, `executions` of them, as one: the paired t over each seed's mean
    difference.
    """

    executions: int
    paired: PairedT


def clusters(executions: Sequence[tuple[Sequence[int], PairedT]]) -> list[SeedCluster]:
    """Executions with their seeds, in the order of `PairedT.differences`, by the seeds that they
    share.

    Two are in one cluster where they share a seed, or each shares one with a third. Every seed
    counts once, by its mean over the cluster. The answers' variance of such a mean is that of one
    execution over how many a seed has on average.
    """
    groups: list[list[tuple[Sequence[int], PairedT]]] = []
    for execution in executions:
        linked = [
            group for group in groups if any(set(seeds) & set(execution[0]) for seeds, _ in group)
        ]
        groups = [group for group in groups if group not in linked]
        groups.append([*chain.from_iterable(linked), execution])
    return [
        SeedCluster(len(group), _by_seed(group) if len(group) > 1 else group[0][1])
        for group in groups
    ]


def _by_seed(group: Sequence[tuple[Sequence[int], PairedT]]) -> PairedT:
    by_seed: dict[int, list[float]] = {}
    for seeds, paired in group:
        for seed, difference in zip(seeds, paired.differences, strict=True):
            by_seed.setdefault(seed, []).append(difference)
    item_variances = [paired.items_sd**2 for _, paired in group if paired.items_sd is not None]
    times = sum(map(len, by_seed.values())) / len(by_seed)
    return paired_t(
        [sum(differences) / len(differences) for differences in by_seed.values()],
        group[0][1].alpha,
        items_variance=float(np.mean(item_variances)) / times if item_variances else None,
    )


def combine(groups: Sequence[SeedCluster], alpha: float = 0.05) -> CombinedEstimate | None:
    """The clusters by random effects; one cluster of several executions by its own interval.

    None for one execution.
    """
    estimated = [group.paired for group in groups if group.paired.low is not None]
    if len(estimated) > 1:
        return random_effects(
            [paired.estimate or 0.0 for paired in estimated],
            [paired.se or 0.0 for paired in estimated],
            alpha,
        )
    if not estimated or sum(group.executions for group in groups) < 2:
        return None
    paired = estimated[0]
    assert paired.estimate is not None
    assert paired.se is not None
    assert paired.df is not None
    low, high, p = t_interval(paired.estimate, paired.se, paired.df, alpha)
    return CombinedEstimate(1, paired.estimate, paired.se, None, paired.df, low, high, p, alpha)


def random_effects(
    estimates: Sequence[float], ses: Sequence[float], alpha: float = 0.05
) -> CombinedEstimate | None:
    """Estimates of k executions and their standard errors as one; None with fewer than two.

    tau^2 by Paule and Mandel (1982), which solves sum_i w_i (y_i - y)^2 = k - 1 for w_i = 1 /
    (se_i^2 + tau^2); the interval by Hartung and Knapp (2001) on t_{k-1}, its factor kept at 1 or
    above (Roever, Knapp and Friede 2015). With this tau^2 that factor is 1 where tau^2 > 0 and
    below 1 elsewhere, so se = 1 / sqrt(sum_i w_i) throughout.
    """
    y = finite(estimates, "estimates")
    se = finite(ses, "standard errors")
    same_length(y, se, "executions")
    share(alpha, "alpha")
    if len(y) < 2:
        return None
    if not (se > 0).all():
        raise LabError("executions: a standard error of 0 leaves nothing to weigh by")
    tau2 = _paule_mandel(y, se**2)
    weights = 1 / (se**2 + tau2)
    estimate = float((weights * y).sum() / weights.sum())
    combined_se = float(1 / math.sqrt(weights.sum()))
    df = len(y) - 1.0
    low, high, p = t_interval(estimate, combined_se, df, alpha)
    return CombinedEstimate(len(y), estimate, combined_se, math.sqrt(tau2), df, low, high, p, alpha)


def _paule_mandel(y: Floats, variances: Floats) -> float:
    def excess(tau2: float) -> float:
        weights = 1 / (variances + tau2)
        around = y - (weights * y).sum() / weights.sum()
        return float((weights * around**2).sum() - (len(y) - 1))

    if excess(0.0) <= 0:
        return 0.0
    # At the estimates' own variance the sum is at most k - 1, whatever the weights; with errors far
    # below it, up to rounding.
    most = float(y.var(ddof=1))
    if excess(most) >= 0:
        return most
    from scipy.optimize import (
        brentq,
    )  # imported where it is used: only executions that differ need it

    return float(brentq(excess, 0.0, most, xtol=1e-16, rtol=1e-12))


def welch_p(
    estimates: Sequence[float], ses: Sequence[float], degrees: Sequence[float]
) -> OptionalFloat:
    """p of executions that differ this much if all estimate the same (Welch 1951); None below two.

    `degrees` are those of each standard error. Of two executions it is Welch's t test.
    """
    y = finite(estimates, "estimates")
    se = finite(ses, "standard errors")
    k = len(y)
    if k < 2 or not (se > 0).all():
        return None
    weights = 1 / se**2
    around = y - (weights * y).sum() / weights.sum()
    vague = float(((1 - weights / weights.sum()) ** 2 / np.asarray(degrees)).sum())
    f = (weights * around**2).sum() / (k - 1) / (1 + 2 * (k - 2) / (k**2 - 1) * vague)
    return float(special.fdtrc(k - 1, (k**2 - 1) / (3 * vague), f))


def replication_outcome(verdict: Verdict, later: Verdict) -> ReplicationOutcome | None:
    """What a later execution says of `verdict`; None where that is inconclusive, or the later one
    has no interval.

    Every verdict claims a range for the true difference. It is confirmed where the later interval
    lies wholly inside that range, contradicted where it lies wholly outside, and otherwise not
    confirmed.
    """
    claimed = _claimed_differences(verdict)
    interval = later.interval
    if claimed is None or interval is None or later.word == "no verdict":
        return None
    (least, most) = claimed
    (low, high) = interval
    if high <= least or low >= most:
        return "contradicted"
    confirmed = later.resolved and least <= low and high <= most
    return "confirmed" if confirmed else "not confirmed"


def _claimed_differences(verdict: Verdict) -> Interval | None:
    """The differences that a verdict allows."""
    if not verdict.resolved or verdict.margin is None:
        return None
    if not verdict.direction:
        return -verdict.margin, verdict.margin
    beyond = verdict.margin if verdict.word in BEYOND else 0.0
    return (beyond, math.inf) if verdict.direction > 0 else (-math.inf, -beyond)
