"""One number per seed and arm, or one per seed and problem: the paired t, and that with new
problems as well.

The unit of replication is the training run. With few of them the t interval on per-seed differences
is what keeps its promise; `calibration.py` measures that on this very code.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from gspo_lab.analysis.stats.array_checks import Floats, finite, same_length, share
from gspo_lab.analysis.stats.moderated import PLAIN, VarianceEstimate, VarianceRule
from gspo_lab.common.plain_data import Interval, OptionalFloat, OptionalText

LEAST_SEEDS = 3
"""Below this there is no interval: dots only."""

ROUNDING = 1e-12
"""A spread below this share of the largest number is rounding, not variance."""

IDENTICAL = "identical scores"
SAME_DIFFERENCE = (
    "every seed shows exactly the same difference: there is no spread to build an interval from"
)


@dataclass(frozen=True)
class PairedT:
    """Mean per-seed difference with its two-sided t interval; `low`, `high`, `p` are None where
    `reason` says why.

    `sd` is what the pairs showed. `pooled_sd` is the estimate by all arms of the study, where
    `variance_rule` has one (`moderated.py`). `items_sd`, where it is known, is what finitely many
    answers to the benchmark's problems alone would let the pairs show.
    """

    n: int
    estimate: OptionalFloat
    differences: tuple[float, ...]
    alpha: float
    sd: OptionalFloat = None
    se: OptionalFloat = None
    df: OptionalFloat = None
    low: OptionalFloat = None
    high: OptionalFloat = None
    p: OptionalFloat = None
    reason: OptionalText = None
    items_sd: OptionalFloat = None
    pooled_sd: OptionalFloat = None
    variance_rule: VarianceRule = PLAIN

    @property
    def estimated_sd(self) -> OptionalFloat:
        """Standard deviation of a pair's difference by the scores: `pooled_sd`, else `sd`."""
        return self.sd if self.pooled_sd is None else self.pooled_sd

    @property
    def estimated(self) -> VarianceEstimate | None:
        """The variance by all arms of the study; None where the plain one stands."""
        if self.pooled_sd is None:
            return None
        return VarianceEstimate(self.pooled_sd**2, self.variance_rule)

    @property
    def spread(self) -> OptionalFloat:
        """Standard deviation of a pair's difference that the interval is built from: that of the
        scores, at least that of the answers."""
        sd = self.estimated_sd
        return None if sd is None else max(sd, self.items_sd or 0.0)

    @property
    def seed_sd(self) -> OptionalFloat:
        """What of the spread the answers do not explain: runs differ by it however many answers are
        asked. None where the answers' part is not known."""
        if self.sd is None or self.items_sd is None:
            return None
        return math.sqrt(max(0.0, self.sd**2 - self.items_sd**2))

    def interval(self, alpha: float) -> Interval | None:
        """The interval at another level; None if there is no interval."""
        if self.low is None or self.estimate is None or self.se is None or self.df is None:
            return None
        return t_interval(self.estimate, self.se, self.df, alpha)[:2]

    def p_of_margin(self, margin: float, *, beyond: bool) -> OptionalFloat:
        """p < alpha where the whole interval lies `beyond` the margin on either side, else where it
        lies inside.

        Against a difference of at most `margin` it is two-sided; against one of at least `margin`
        it is twice that of two one-sided tests (Schuirmann 1987).
        """
        if self.low is None or self.estimate is None or self.se is None or self.df is None:
            return None
        clear = (abs(self.estimate) - margin) * (1 if beyond else -1)
        return 1.0 if clear <= 0 else float(2 * special.stdtr(self.df, -clear / self.se))

    def no_worse(self, margin: float, *, treatment: bool) -> OptionalFloat:
        """p against the treatment (else the baseline) being worse by `margin` or more.

        It is twice the one-sided p, so that p < alpha if the interval excludes such a difference.
        It is 0 or 1 without an interval, where all differences are equal.
        """
        if self.estimate is None or self.n < LEAST_SEEDS:
            return None
        clear = (self.estimate if treatment else -self.estimate) + margin
        if self.low is None or self.se is None or self.df is None:
            return 0.0 if clear > 0 else 1.0
        return min(1.0, float(2 * special.stdtr(self.df, -clear / self.se)))


def paired_t(
    differences: ArrayLike,
    alpha: float = 0.05,
    *,
    scale: float = 0.0,
    items_variance: OptionalFloat = None,
    estimated: VarianceEstimate | None = None,
) -> PairedT:
    """mean(d) +- t_{n-1, 1-alpha/2} s / sqrt(n) over per-seed differences d (Student 1908), s =
    max(sd(d), items' sd).

    `items_variance` is the variance of one d due to finitely many answers; None: unknown. With few
    seeds sd(d) is often far below it by chance, and the interval would be too narrow. `estimated`
    replaces sd(d) and its degrees of freedom by an estimate from all arms of the study. `scale` is
    the size of the subtracted scores, so that rounding does not count as variance. Without any
    spread of d there is no interval: the reason is "identical scores" if all d are 0, and another
    one if all d are equal.
    """
    d = finite(differences, "differences")
    share(alpha, "alpha")
    n = len(d)
    if n == 0:
        return PairedT(0, None, (), alpha, reason="no pairs of runs")
    estimate = float(d.mean())
    plural = "s" if n > 1 else ""
    too_few = f"{n} pair{plural} of runs; an interval needs {LEAST_SEEDS}"
    result = PairedT(n, estimate, tuple(d.tolist()), alpha)
    if n < 2:
        return replace(result, reason=too_few)
    rule = PLAIN if estimated is None else estimated.rule
    sd = math.sqrt(float(((d - estimate) ** 2).sum()) / (n - 1))
    items_sd = None if items_variance is None else math.sqrt(items_variance)
    rounding = ROUNDING * max(float(np.abs(d).max()), scale)
    sd = 0.0 if sd <= rounding else sd
    result = replace(
        result,
        sd=sd,
        items_sd=items_sd,
        df=rule.degrees(n),
        pooled_sd=None if estimated is None else estimated.sd,
        variance_rule=rule,
    )
    if max(sd, items_sd or 0.0) <= rounding:
        same = IDENTICAL if abs(estimate) <= rounding else SAME_DIFFERENCE
        return replace(result, sd=0.0, se=0.0, reason=same)
    se = (result.spread or 0.0) / math.sqrt(n)
    if n < LEAST_SEEDS:
        return replace(result, se=se, reason=too_few)
    low, high, p = t_interval(estimate, se, rule.degrees(n), alpha)
    return replace(result, se=se, low=low, high=high, p=p)


def paired_scores(
    baseline: ArrayLike,
    treatment: ArrayLike,
    alpha: float = 0.05,
    labels: tuple[str, str] = ("first arm", "second arm"),
    *,
    items_variance: OptionalFloat = None,
    estimated: VarianceEstimate | None = None,
) -> PairedT:
    """`paired_t` of the second arm's scores minus the first's, seed by seed; their size is the
    scale.
    """
    a = finite(baseline, labels[0])
    b = finite(treatment, labels[1])
    same_length(a, b, f"{labels[0]} and {labels[1]}")
    scale = float(max(np.abs(a).max(), np.abs(b).max())) if len(a) else 0.0
    return paired_t(b - a, alpha, scale=scale, items_variance=items_variance, estimated=estimated)


def t_interval(estimate: float, se: float, df: float, alpha: float) -> tuple[float, float, float]:
    """(low, high, two-sided p against 0) of an estimate with a t distribution; se > 0."""
    half = t_quantile(df, 1 - alpha / 2) * se
    return estimate - half, estimate + half, float(2 * special.stdtr(df, -abs(estimate) / se))


def t_quantile(df: float, level: float) -> float:
    """t_{df, level}."""
    return float(special.stdtrit(df, level))


def pointwise_t(differences: Floats, alpha: float) -> tuple[Floats, Floats, Floats] | None:
    """Mean and two-sided t interval at every point by itself, of one row per pair; None with fewer
    than LEAST_SEEDS.
    """
    n = len(differences)
    if n < LEAST_SEEDS:
        return None
    mean = differences.mean(axis=0)
    half = t_quantile(n - 1, 1 - alpha / 2) * differences.std(axis=0, ddof=1) / math.sqrt(n)
    return mean, mean - half, mean + half


def leave_one_out(differences: ArrayLike) -> tuple[float, ...] | None:
    """The mean difference with each seed left out in turn; None with fewer than 2 seeds."""
    d = finite(differences, "differences")
    return tuple(((d.sum() - d) / (len(d) - 1)).tolist()) if len(d) > 1 else None


def pairing(y_a: ArrayLike, y_b: ArrayLike) -> OptionalFloat:
    """Correlation r of the two arms over seeds; None with fewer than 3 seeds or an arm without
    spread.

    Var(b - a) = 2 sigma^2 (1 - r) against 2 sigma^2 unpaired: pairing needs 1 / (1 - r) times fewer
    seeds.
    """
    a = finite(y_a, "first arm")
    b = finite(y_b, "second arm")
    same_length(a, b, "pairing")
    if len(a) < LEAST_SEEDS or any(np.ptp(arm) <= ROUNDING * np.abs(arm).max() for arm in (a, b)):
        return None
    a = a - a.mean()
    b = b - b.mean()
    return max(-1.0, min(1.0, float((a * b).sum()) / math.sqrt((a**2).sum() * (b**2).sum())))


@dataclass(frozen=True)
class TwoWay:
    """Mean difference over seeds and items.

    `var_seeds`, `var_items`, `var_residual` are Vs, Vi, Vr: squared standard errors of the mean.
    The interval is built from `variance` and `df`. Interval and p are None where `reason` says why.
    """

    seeds: int
    items: int
    estimate: OptionalFloat
    alpha: float
    var_seeds: OptionalFloat = None
    var_items: OptionalFloat = None
    var_residual: OptionalFloat = None
    variance: OptionalFloat = None
    df: OptionalFloat = None
    low: OptionalFloat = None
    high: OptionalFloat = None
    p: OptionalFloat = None
    reason: OptionalText = None


def two_way(
    differences_SI: ArrayLike,
    alpha: float = 0.05,
    *,
    scale: float = 0.0,
    estimated: VarianceEstimate | None = None,
) -> TwoWay:
    """Interval for "new problems, new seeds" from d_si, [S seeds, I items]: second arm minus first,
    or a contrast of arms, samples averaged.

    Vs = var_s(d_s.)/S, Vi = var_i(d_.i)/I, Vr = sum (d_si - d_s. - d_.i + d_..)^2 / ((S-1)(I-1) S
    I); V = max(Vs + Vi - Vr, Vs, Vi, Vr), the crossed random effects variance kept above its parts;
    Satterthwaite's df = V^2 / (Vs^2/(S-1) + Vi^2/(I-1) + Vr^2/((S-1)(I-1))), at most (S-1)(I-1).
    `estimated`, from all arms of the study, replaces var_s(d_s.) and its S - 1 degrees of freedom.

    New problems add a source of variation, so the interval is never narrower than that of new seeds
    alone (`paired_t` with `items_variance`): variance max(Vs, Vr) on the degrees of freedom of Vs.
    The wider of the two is given.
    """
    d_SI = finite(differences_SI, "differences by seed and item", axes=2)
    share(alpha, "alpha")
    seeds, items = d_SI.shape
    if seeds == 0 or items == 0:
        return TwoWay(seeds, items, None, alpha, reason="no scores")
    estimate = float(d_SI.mean())
    result = TwoWay(seeds, items, estimate, alpha)
    if min(seeds, items) < 2:
        return replace(result, reason=f"{seeds} seeds and {items} items; two of each are needed")

    centred_SI = d_SI - estimate
    by_seed_S = centred_SI.mean(axis=1)
    by_item_I = centred_SI.mean(axis=0)
    residual_SI = centred_SI - by_seed_S[:, None] - by_item_I
    df_seeds = float(seeds - 1)
    df_items = items - 1
    df_residual = df_seeds * df_items
    var_seeds = float(by_seed_S.var(ddof=1)) / seeds
    var_items = float(by_item_I.var(ddof=1)) / items
    var_residual = float((residual_SI**2).sum()) / (df_residual * seeds * items)
    rounding = ROUNDING * max(float(np.abs(d_SI).max()), scale)
    same = math.sqrt(max(var_seeds, var_items, var_residual)) <= rounding
    if estimated is not None:
        var_seeds = estimated.variance / seeds
        df_seeds = estimated.rule.degrees(seeds)
    result = replace(result, var_seeds=var_seeds, var_items=var_items, var_residual=var_residual)
    if same:
        reason = IDENTICAL if np.abs(d_SI).max() <= rounding else SAME_DIFFERENCE
        return replace(result, variance=0.0, reason=reason)
    variance = max(var_seeds + var_items - var_residual, var_seeds, var_items, var_residual)
    satterthwaite = variance**2 / (
        var_seeds**2 / df_seeds + var_items**2 / df_items + var_residual**2 / df_residual
    )
    crossed = (variance, min(satterthwaite, df_residual))
    seeds_alone = (max(var_seeds, var_residual), df_seeds)
    variance, df = max(
        crossed,
        seeds_alone,
        key=lambda source: source[0] * t_quantile(source[1], 1 - alpha / 2) ** 2,
    )
    result = replace(result, variance=variance, df=df)
    if seeds < LEAST_SEEDS:
        return replace(result, reason=f"{seeds} pairs of runs; an interval needs {LEAST_SEEDS}")
    low, high, p = t_interval(estimate, math.sqrt(variance), df, alpha)
    return replace(result, low=low, high=high, p=p)


def items_variance(differences_SI: ArrayLike) -> OptionalFloat:
    """The variance of one seed's mean difference due to finitely many answers to these problems,
    [S, I].

    S x Vr = sum (d_si - d_s. - d_.i + d_..)^2 / ((S-1)(I-1) I), with (S-1)(I-1) degrees of freedom.
    It excludes problem-by-arm effects that are the same on every seed, and includes those of a
    single seed, which average out over problems within a pair. None with fewer than 2 seeds or
    problems.
    """
    components = two_way(differences_SI)
    return None if components.var_residual is None else components.var_residual * components.seeds
