"""The level of each of several tests, so that all together are wrong no more often than one would
be.

Over arms by Holm's step-down or a declared order; over declared looks at growing data by Pocock's
constant.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from scipy import special

from gspo_lab.analysis.stats.array_checks import Floats, share
from gspo_lab.analysis.stats.paired import LEAST_SEEDS
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import Integers, OptionalFloat

STUDIES = 2**17
FEW = 200
"""With fewer simulated studies than this below alpha the constant is Bonferroni's."""
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
"""Two for each look: eight looks at most."""

T = TypeVar("T")


def holm(p_values: Sequence[OptionalFloat], family: int | None = None) -> list[OptionalFloat]:
    """Adjusted p in the order given: sorted, p_(j) becomes max over i <= j of min(1, (m - i + 1)
    p_(i)) (Holm 1979).

    None (nothing could be tested) stays None. m is `family`, the number of tests declared before
    the run, and without it the number of p-values that are there.
    """
    tested = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    if any(not 0 <= p <= 1 for p, _ in tested):
        raise LabError(f"Holm: a p-value lies between 0 and 1; given {[p for p, _ in tested]}")
    size = len(tested) if family is None else family
    if size < len(tested):
        raise LabError(
            f"Holm: {len(tested)} p-values in a family of {size}; declare the whole family"
        )
    adjusted: list[OptionalFloat] = [None for _ in p_values]
    highest = 0.0
    for rank, (p, place) in enumerate(tested):
        highest = max(highest, min(1.0, (size - rank) * p))
        adjusted[place] = highest
    return adjusted


class HolmStep(NamedTuple):
    """Whether a hypothesis was rejected, and at which level it was tested."""

    rejected: bool
    level: float


def fixed_sequence(
    p_values: Sequence[OptionalFloat], order: Sequence[int], level: float
) -> list[HolmStep]:
    """Test each hypothesis in the declared `order` (places) at the whole level, until one is not
    rejected.

    The chance of any false rejection is at most `level` (Maurer, Hothorn and Lehmacher 1995)."""
    rejected = set()
    going = True
    for place in order:
        p = p_values[place]
        going = going and p is not None and p < level
        rejected |= {place} if going else set()
    return [HolmStep(place in rejected, level) for place in range(len(p_values))]


def step_down(
    p_values: Sequence[OptionalFloat],
    alpha: float,
    level: Callable[[float], float] = lambda alpha: alpha,
) -> list[HolmStep]:
    """Holm's decisions in the order given: the k-th smallest of m p-values is held against
    level(alpha / (m - k + 1)).

    The first that is not below its level ends the rejections; it and all later ones were tested
    there. None (nothing could be tested) counts in m and is never rejected. `level` spends its
    argument over looks at growing data.
    """
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    rejected: dict[int, HolmStep] = {}
    for p, place in order:
        level_ = level(alpha / (len(p_values) - len(rejected)))
        if p >= level_:
            break
        rejected[place] = HolmStep(True, level_)
    last = HolmStep(False, level(alpha / max(1, len(p_values) - len(rejected))))
    return [rejected.get(place, last) for place in range(len(p_values))]


def nominal_level(looks: Sequence[int], alpha: float) -> float:
    """The level at which each of these looks is judged so that `alpha` is the chance that any finds
    what is not there.

    Pocock's constant boundary (1977), for paired t on n_1 < n_2 < ... seeds: the alpha quantile of
    the smallest of the looks' p-values when nothing differs, rounded down to three digits. One look
    has alpha itself.
    """
    share(alpha, "alpha")
    return _level(tuple(looks), alpha) if len(looks) > 1 else alpha


@lru_cache(maxsize=1024)
def _level(looks: Integers, alpha: float) -> float:
    smallest = _smallest_p(looks)
    if alpha * STUDIES < FEW:
        return alpha / len(looks)
    exact = float(np.quantile(smallest, alpha))
    unit = 10.0 ** (math.floor(math.log10(exact)) - 2)
    return math.floor(exact / unit) * unit


@lru_cache(maxsize=64)
def _smallest_p(looks: Integers) -> Floats:
    """Per simulated study without a difference its smallest p over the looks, sorted.

    The seeds that a look adds enter by their mean, z ~ N(0, 1) / sqrt(m), and their sum of squares
    around it, chi2_{m-1}. Both are drawn by quasi-Monte Carlo (Richtmyer 1951: fractional parts of
    i sqrt(prime)), with the same numbers on every machine.
    """
    if looks[0] < LEAST_SEEDS or len(looks) > len(PRIMES) // 2 or list(looks) != sorted(set(looks)):
        raise LabError(
            f"looks at {looks}: {len(PRIMES) // 2} at most, rising, from {LEAST_SEEDS} seeds on"
        )
    i = np.arange(1, STUDIES + 1)
    totals = np.zeros(STUDIES)
    squares = np.zeros(STUDIES)
    smallest = np.ones(STUDIES)
    primes = iter(PRIMES)
    previous = 0
    for n in looks:
        added = n - previous
        previous = n
        z = special.ndtri((i * math.sqrt(next(primes))) % 1)
        around = (
            special.gammaincinv((added - 1) / 2, (i * math.sqrt(next(primes))) % 1) * 2
            if added > 1
            else 0.0
        )
        totals += math.sqrt(added) * z
        squares += z**2 + around
        spread = np.sqrt((squares - totals**2 / n) / (n - 1))
        smallest = np.minimum(
            smallest, 2 * special.stdtr(n - 1, -np.abs(totals) / math.sqrt(n) / spread)
        )
    return np.sort(smallest)


def first_resolving(
    looks: Sequence[int], judge: Callable[[int], T], resolved: Callable[[T], bool]
) -> tuple[int, T]:
    """(look, what `judge` says of that many first seeds) of the first look that is resolved, else
    of the last.
    """
    for look in looks:
        decided = judge(look)
        if resolved(decided):
            break
    return look, decided
