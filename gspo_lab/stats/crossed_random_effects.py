"""Benchmark scores with both sources of chance: new seeds and new problems."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gspo_lab.stats.array_checks import finite, share
from gspo_lab.stats.paired import IDENTICAL, LEAST_SEEDS, ROUNDING, SAME_DIFFERENCE, t_interval, t_quantile


@dataclass(frozen=True)
class TwoWay:
    """Mean difference over seeds and items.

    `var_seeds`, `var_items`, `var_residual` are Vs, Vi, Vr: squared standard errors of the mean. The interval is built
    from `variance` and `df`. Interval and p are None where `reason` says why.
    """

    seeds: int
    items: int
    estimate: float | None
    alpha: float
    var_seeds: float | None = None
    var_items: float | None = None
    var_residual: float | None = None
    variance: float | None = None
    df: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    reason: str | None = None


def two_way(differences_SI: ArrayLike, alpha: float = 0.05, *, scale: float = 0.0) -> TwoWay:
    """Interval for "new problems, new seeds" from d_si, second arm minus first, samples averaged: [S seeds, I items].

    Vs = var_s(d_s.)/S, Vi = var_i(d_.i)/I, Vr = sum (d_si - d_s. - d_.i + d_..)^2 / ((S-1)(I-1) S I);
    V = max(Vs + Vi - Vr, Vs, Vi, Vr), the crossed random effects variance kept above its parts; Satterthwaite's
    df = V^2 / (Vs^2/(S-1) + Vi^2/(I-1) + Vr^2/((S-1)(I-1))), at most (S-1)(I-1).

    New problems add a source of variation, so the interval is never narrower than that of new seeds alone
    (`paired_t` with `items_variance`): variance max(Vs, Vr) on S - 1 degrees of freedom. The wider of the two is given.
    """
    d_SI = finite(differences_SI, "differences by seed and item", axes=2)
    share(alpha, "alpha")
    seeds, items = d_SI.shape
    if seeds == 0 or items == 0:
        return TwoWay(seeds, items, None, alpha, reason="no scores")
    estimate = float(d_SI.mean())
    centred_SI = d_SI - estimate
    if min(seeds, items) < 2:
        reason = f"{seeds} seeds and {items} items; two of each are needed"
        return TwoWay(seeds, items, estimate, alpha, reason=reason)

    by_seed_S, by_item_I = centred_SI.mean(axis=1), centred_SI.mean(axis=0)
    residual_SI = centred_SI - by_seed_S[:, None] - by_item_I
    df_seeds, df_items = seeds - 1, items - 1
    var_seeds = float(by_seed_S.var(ddof=1)) / seeds
    var_items = float(by_item_I.var(ddof=1)) / items
    var_residual = float((residual_SI**2).sum()) / (df_seeds * df_items * seeds * items)
    parts = (var_seeds, var_items, var_residual)
    variance = max(var_seeds + var_items - var_residual, *parts)
    rounding = ROUNDING * max(float(np.abs(d_SI).max()), scale)
    if math.sqrt(variance) <= rounding:
        reason = IDENTICAL if np.abs(d_SI).max() <= rounding else SAME_DIFFERENCE
        return TwoWay(seeds, items, estimate, alpha, *parts, 0.0, reason=reason)
    satterthwaite = variance**2 / (
        var_seeds**2 / df_seeds + var_items**2 / df_items + var_residual**2 / (df_seeds * df_items)
    )
    crossed = (variance, min(satterthwaite, float(df_seeds * df_items)))
    seeds_alone = (max(var_seeds, var_residual), float(df_seeds))
    variance, df = max(crossed, seeds_alone, key=lambda source: source[0] * t_quantile(source[1], 1 - alpha / 2) ** 2)
    if seeds < LEAST_SEEDS:
        reason = f"{seeds} pairs of runs; an interval needs {LEAST_SEEDS}"
        return TwoWay(seeds, items, estimate, alpha, *parts, variance, df, reason=reason)
    low, high, p = t_interval(estimate, math.sqrt(variance), df, alpha)
    return TwoWay(seeds, items, estimate, alpha, *parts, variance, df, low, high, p)


def items_variance(differences_SI: ArrayLike) -> float | None:
    """The variance of one seed's mean difference due to finitely many answers to these problems, [S, I].

    S x Vr = sum (d_si - d_s. - d_.i + d_..)^2 / ((S-1)(I-1) I), with (S-1)(I-1) degrees of freedom. It excludes
    problem-by-arm effects that are the same on every seed, and includes those of a single seed, which average out over
    problems within a pair. None with fewer than 2 seeds or problems.
    """
    components = two_way(differences_SI)
    return None if components.var_residual is None else components.var_residual * components.seeds
