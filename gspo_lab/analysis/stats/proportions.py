"""Yes-or-no outcomes of few runs (collapsed, threshold reached): exact, never normal."""

import math
from fractions import Fraction
from typing import NamedTuple

from scipy import special

from gspo_lab.analysis.stats.array_checks import share
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import Interval, OptionalFloat


class Proportion(NamedTuple):
    """`k` of `n`, with the two-sided interval for the rate behind it.

    `rate` is None when n is 0.
    """

    k: int
    n: int
    rate: OptionalFloat
    low: float
    high: float


def clopper_pearson(k: int, n: int, level: float = 0.95) -> Proportion:
    """The exact interval for a rate (Clopper and Pearson 1934): Beta quantiles B(a/2; k, n-k+1),
    B(1-a/2; k+1, n-k).

    0 of 3 reaches up to .71, 0 of 5 up to .52. With n = 0 it is [0, 1].
    """
    _check_counts(k, n)
    tail = (1 - share(level, "level")) / 2
    low = 0.0 if k == 0 else float(special.betaincinv(k, n - k + 1, tail))
    high = 1.0 if k == n else float(special.betaincinv(k + 1, n - k, 1 - tail))
    return Proportion(k, n, k / n if n else None, low, high)


def binomial_p(k: int, n: int, rate: float = 0.5) -> float:
    """Exact two-sided p of `k` of `n` under `rate`: the total chance of outcomes no likelier than
    the one seen.
    """
    _check_counts(k, n)
    hit = Fraction(rate)
    miss = 1 - Fraction(rate)
    return _no_likelier([math.comb(n, i) * hit**i * miss ** (n - i) for i in range(n + 1)], k)


def fisher_p(counts_a: tuple[int, int], counts_b: tuple[int, int]) -> float:
    """Exact two-sided p of k of n in two groups under one rate, all totals given (Fisher 1935).

    It is the total chance of tables no likelier than the one seen. 0 of n against n of n: .10,
    .029, .0079 at n = 3, 4, 5."""
    (k, n) = counts_a
    (second_k, m) = counts_b
    _check_counts(k, n)
    _check_counts(second_k, m)
    total = k + second_k
    counts = range(max(0, k + second_k - m), min(n, k + second_k) + 1)
    ways = math.comb(n + m, total)
    return _no_likelier(
        [Fraction(math.comb(n, i) * math.comb(m, total - i), ways) for i in counts], k - counts[0]
    )


def binomial_band(rate: float, n: int, level: float = 0.99) -> Interval:
    """The central range in which the observed share of `n` trials lies with at least `level`, if
    the rate is `rate`.

    With rate .05 and level .99: .038-.063 for 2,000 trials, .033-.069 for 1,000.
    """
    from scipy import stats  # half a second to import, and only calibration asks

    tail = (1 - share(level, "level")) / 2
    return float(stats.binom.ppf(tail, n, rate)) / n, float(stats.binom.ppf(1 - tail, n, rate)) / n


def _no_likelier(chances: list[Fraction], observed: int) -> float:
    """The total chance of all outcomes that are no likelier than the one seen, without rounding."""
    return float(sum(chance for chance in chances if chance <= chances[observed]))


def _check_counts(k: int, n: int) -> None:
    if not 0 <= k <= n:
        raise LabError(f"{k} of {n}: a count lies between 0 and the number of trials")
