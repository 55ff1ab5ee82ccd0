"""One number per seed and arm: the paired t and what is shown beside it.

The unit of replication is the training run. With few of them the t interval on per-seed differences is what keeps its
promise; `calibration.py` measures that on this very code.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from gspo_lab.stats.array_checks import Floats, finite, same_length, share

LEAST_SEEDS = 3
"""Below this there is no interval: dots only."""

ROUNDING = 1e-12
"""A spread below this share of the largest number is rounding, not variance."""

IDENTICAL = "identical scores"
SAME_DIFFERENCE = "every seed shows exactly the same difference: there is no spread to build an interval from"


@dataclass(frozen=True)
class PairedT:
    """Mean per-seed difference with its two-sided t interval; `low`, `high`, `p` are None where `reason` says why.

    `sd` is what the pairs showed; `items_sd`, where it is known, what finitely many answers to the benchmark's
    problems alone would let them show. The interval is built from the larger of the two, `spread`.
    """

    n: int
    estimate: float | None
    sd: float | None
    se: float | None
    df: float | None
    low: float | None
    high: float | None
    p: float | None
    differences: tuple[float, ...]
    alpha: float
    reason: str | None = None
    items_sd: float | None = None

    @property
    def spread(self) -> float | None:
        """Standard deviation of a pair's difference that the interval is built from."""
        return None if self.sd is None else max(self.sd, self.items_sd or 0.0)

    @property
    def seed_sd(self) -> float | None:
        """What of the spread the answers do not explain: runs differ by it however many answers are asked. None where
        the answers' part is not known."""
        if self.sd is None or self.items_sd is None:
            return None
        return math.sqrt(max(0.0, self.sd**2 - self.items_sd**2))

    def interval(self, alpha: float) -> tuple[float, float] | None:
        """The same interval at another level; None where there is none."""
        if self.low is None or self.estimate is None or self.se is None or self.df is None:
            return None
        return t_interval(self.estimate, self.se, self.df, alpha)[:2]

    def p_beyond_margin(self, margin: float) -> float | None:
        """Two-sided p against a difference of at most `margin`: the interval lies beyond it where p < alpha."""
        return self._tail(margin, sign=1)

    def p_inside_margin(self, margin: float) -> float | None:
        """p against a difference of at least `margin`, twice that of two one-sided tests (Schuirmann 1987): the whole
        interval lies inside where p < alpha."""
        return self._tail(margin, sign=-1)

    def no_worse(self, margin: float, *, second: bool) -> float | None:
        """p against the second arm (else the first) being worse by `margin` or more.

        It is twice the one-sided p, so that p < alpha if the interval excludes such a difference. It is 0 or 1 without
        an interval, where all differences are equal.
        """
        if self.estimate is None or self.n < LEAST_SEEDS:
            return None
        clear = (self.estimate if second else -self.estimate) + margin
        if self.low is None or self.se is None or self.df is None:
            return 0.0 if clear > 0 else 1.0
        return min(1.0, float(2 * special.stdtr(self.df, -clear / self.se)))

    def _tail(self, margin: float, sign: int) -> float | None:
        if self.low is None or self.estimate is None or self.se is None or self.df is None:
            return None
        clear = sign * (abs(self.estimate) - margin)
        return 1.0 if clear <= 0 else float(2 * special.stdtr(self.df, -clear / self.se))


def paired_t(
    differences: ArrayLike, alpha: float = 0.05, *, scale: float = 0.0, items_variance: float | None = None
) -> PairedT:
    """mean(d) +- t_{n-1, 1-alpha/2} s / sqrt(n) over per-seed differences d (Student 1908), s = max(sd(d), items' sd).

    `items_variance` is the variance of one d due to finitely many answers; None: unknown. With few seeds sd(d) is often
    far below it by chance, and the interval would be too narrow. `scale` is the size of the subtracted scores, so that
    rounding does not count as variance. Without any spread there is no interval: the reason is "identical scores" if
    all d are 0, and another one if all d are equal.
    """
    d = finite(differences, "differences")
    share(alpha, "alpha")
    n = len(d)
    per_seed = tuple(float(value) for value in d)
    if n == 0:
        return PairedT(0, None, None, None, None, None, None, None, per_seed, alpha, "no pairs of runs")
    estimate = float(d.mean())
    if n == 1:
        reason = f"1 pair of runs; an interval needs {LEAST_SEEDS}"
        return PairedT(1, estimate, None, None, None, None, None, None, per_seed, alpha, reason)
    sd = float(d.std(ddof=1))
    items_sd = None if items_variance is None else math.sqrt(items_variance)
    rounding = ROUNDING * max(float(np.abs(d).max()), scale)
    sd = 0.0 if sd <= rounding else sd
    spread = max(sd, items_sd or 0.0)
    if spread <= rounding:
        reason = IDENTICAL if abs(estimate) <= rounding else SAME_DIFFERENCE
        return PairedT(n, estimate, 0.0, 0.0, n - 1.0, None, None, None, per_seed, alpha, reason, items_sd)
    se = spread / math.sqrt(n)
    if n < LEAST_SEEDS:
        reason = f"{n} pairs of runs; an interval needs {LEAST_SEEDS}"
        return PairedT(n, estimate, sd, se, n - 1.0, None, None, None, per_seed, alpha, reason, items_sd)
    low, high, p = t_interval(estimate, se, n - 1.0, alpha)
    return PairedT(n, estimate, sd, se, n - 1.0, low, high, p, per_seed, alpha, None, items_sd)


def t_interval(estimate: float, se: float, df: float, alpha: float) -> tuple[float, float, float]:
    """(low, high, two-sided p against 0) of an estimate with a t distribution; se > 0."""
    half = t_quantile(df, 1 - alpha / 2) * se
    return estimate - half, estimate + half, float(2 * special.stdtr(df, -abs(estimate) / se))


def t_quantile(df: float, level: float) -> float:
    """t_{df, level}."""
    return float(special.stdtrit(df, level))


def pointwise_t(differences: Floats, alpha: float) -> tuple[Floats, Floats, Floats] | None:
    """Mean and two-sided t interval at every point by itself, of one row per pair; None with fewer than LEAST_SEEDS."""
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


def pairing(y_a: ArrayLike, y_b: ArrayLike) -> float | None:
    """Correlation r of the two arms over seeds; None with fewer than 3 seeds or an arm without spread.

    Var(b - a) = 2 sigma^2 (1 - r) against 2 sigma^2 unpaired: pairing needs 1 / (1 - r) times fewer seeds.
    """
    a, b = finite(y_a, "first arm"), finite(y_b, "second arm")
    same_length(a, b, "pairing")
    if len(a) < LEAST_SEEDS or any(np.ptp(arm) <= ROUNDING * np.abs(arm).max() for arm in (a, b)):
        return None
    return float(np.clip(np.corrcoef(a, b)[0, 1], -1, 1))


def shared_variance(y_a: ArrayLike, y_b: ArrayLike) -> float:
    """The covariance of two arms over two seeds or more: what a seed gives both of them, and cancels in its pair."""
    a, b = finite(y_a, "first arm"), finite(y_b, "second arm")
    same_length(a, b, "shared variance")
    return float(np.cov(a, b)[0, 1])
