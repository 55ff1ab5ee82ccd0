"""From one number per seed to a side: whole intervals against the regions that a claim names."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Final, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gspo_lab.analysis.stats import holm, paired_t
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.analysis.stats.power import detectable_factor
from gspo_lab.analysis.stats.simulation_cells import Cell, Conclusion, Method, kinds, stated
from gspo_lab.analysis.stats.simulation_draws import UNEVEN, draw_block, normal_noise
from gspo_lab.analysis.stats.verdict import NO_INTERVAL
from gspo_lab.common.plain_data import Interval, OptionalFloat
from gspo_lab.common.reason import Reason, Reasons

Side = Literal["supported", "contradicted"]

MEASURED: Final = "measured"
"""The criterion of a number that is held against nothing."""


class Untestable(Exception):
    """What a claim presupposes is not there; `reason` says what, and what was measured of it."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.reason = Reason(code, text)


def not_recorded(metric: str, arm: str, seed: int) -> Untestable:
    """What a claim raises where a run lacks one of its metrics."""
    return Untestable("not-recorded", f"{metric} was not recorded in {arm}, seed {seed}")


@dataclass(frozen=True)
class Region:
    """An open stretch of the number line: above one bound, below another, or between the two."""

    above: OptionalFloat = None
    below: OptionalFloat = None

    def contains(self, low: float, high: float) -> bool:
        """Whether an interval, open at its ends, lies wholly in the region."""
        return (self.above is None or low > self.above) and (
            self.below is None or high < self.below
        )

    @property
    def bounds(self) -> tuple[float, ...]:
        """The ends that the region has, the lower one first."""
        return tuple(bound for bound in (self.above, self.below) if bound is not None)

    @property
    def outside(self) -> tuple["Region", ...]:
        """What lies on the other side of its bounds."""
        below = () if self.above is None else (Region(below=self.above),)
        above = () if self.below is None else (Region(above=self.below),)
        return below + above

    def __str__(self) -> str:
        if self.above is None or self.below is None:
            return f"below {self.below:g}" if self.above is None else f"above {self.above:g}"
        return f"between {self.above:g} and {self.below:g}"

    def log(self) -> "Region":
        """This region on the natural logarithm's scale."""
        above = None if self.above is None else math.log(self.above)
        below = None if self.below is None else math.log(self.below)
        return Region(above, below)


@dataclass(frozen=True)
class Estimate:
    """One number of a claim over `n` seeds (runs, if `exact`), and the side on which it lies.

    `side` is the region of the estimate, `p` the largest two-sided p against that region's bounds.
    If p < `alpha`, the whole interval lies in the region. An identity and a count have no p: they
    hold or not. `detectable` is the difference (with `ratio`: the factor) that these seeds detect
    with power .8.
    """

    name: str
    criterion: str
    n: int
    estimate: OptionalFloat
    low: OptionalFloat = None
    high: OptionalFloat = None
    p: OptionalFloat = None
    side: Side | None = None
    exact: bool = False
    ratio: bool = False
    detectable: OptionalFloat = None
    reason: Reason | None = None
    """Why it has no interval, which runs break an identity, or what was counted."""
    alpha: float = 0.05
    """1 - the confidence of the interval: the study's `verdict.alpha`."""

    @property
    def interval(self) -> Interval | None:
        """The interval, None where there is none."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def resolved(self) -> bool:
        """Whether the estimate, taken alone, lies wholly on its side."""
        return self.side is not None and (self.p is None or self.p < self.alpha)

    @property
    def word(self) -> Literal["supported", "contradicted", "inconclusive", "measured"]:
        """The label by this number alone."""
        if self.criterion == MEASURED:
            return "measured"
        return self.side if self.side is not None and self.resolved else "inconclusive"


@dataclass(frozen=True)
class Estimates:
    """The numbers of one claim. It needs all its `parts`; `also` and `reasons` are only shown."""

    parts: tuple[Estimate, ...]
    also: tuple[Estimate, ...] = ()
    reasons: Reasons = ()

    @property
    def alpha(self) -> float:
        """The level of its tests, one for all."""
        return next((part.alpha for part in self.parts if part.p is not None), Estimate.alpha)


def over_seeds(
    name: str,
    values: Mapping[int, float],
    supported: Region | None,
    contradicted: Sequence[Region] | None = None,
    *,
    alpha: float,
    ratio: bool = False,
    items_variance: OptionalFloat = None,
) -> Estimate:
    """The paired t interval of one number per seed, against the regions of the claim.

    By default the claim is contradicted outside the region of support. `items_variance` is the
    variance of a difference of scores due to finitely many answers. With `ratio` values and bounds
    are positive: the interval is that of their logarithms, and is shown as ratios. A region of
    contradiction that holds the whole interval goes before one of support. Without any region the
    number is only measured.
    """
    if contradicted is None:
        contradicted = () if supported is None else supported.outside
    tests = [] if supported is None else [f"supported if {supported}"]
    if contradicted:
        tests.append(f"contradicted if {' or '.join(map(str, contradicted))}")
    criterion = ", ".join(tests) or MEASURED
    x = np.array(list(values.values()), dtype=np.float64)
    if ratio:
        x = np.log(x)
        supported = supported and supported.log()
        contradicted = [region.log() for region in contradicted]
    back = math.exp if ratio else float
    paired = paired_t(
        x, alpha, scale=float(np.abs(x).max(initial=0.0)), items_variance=items_variance
    )
    estimate = None if paired.estimate is None else back(paired.estimate)
    if paired.estimate is None or paired.low is None or paired.high is None:
        why = Reason(NO_INTERVAL, paired.reason or "")
        return Estimate(name, criterion, len(x), estimate, ratio=ratio, reason=why, alpha=alpha)
    against: list[tuple[Side, Region]] = [("contradicted", region) for region in contradicted]
    in_favour: list[tuple[Side, Region]] = [] if supported is None else [("supported", supported)]
    holding = [part for part in against + in_favour if part[1].contains(paired.low, paired.high)]
    holding += [
        part for part in in_favour + against if part[1].contains(paired.estimate, paired.estimate)
    ]
    side, region = next(iter(holding), (None, Region()))
    detectable = detectable_factor(len(x), alpha) * paired.sd if paired.sd else None
    return Estimate(
        name,
        criterion,
        len(x),
        estimate,
        back(paired.low),
        back(paired.high),
        p=_p(x, region, alpha, items_variance),
        side=side,
        ratio=ratio,
        detectable=None if detectable is None else back(detectable),
        alpha=alpha,
    )


def _p(
    x: NDArray[np.float64], region: Region, alpha: float, items_variance: OptionalFloat
) -> OptionalFloat:
    p_values = [
        paired_t(x - bound, alpha, items_variance=items_variance).p for bound in region.bounds
    ]
    return max((p for p in p_values if p is not None), default=None)


def exact(name: str, values: Mapping[str, float], at_most: float) -> Estimate:
    """An identity: it must hold in every run, to rounding. `estimate` is the worst run's number."""
    worst = max(values, key=values.__getitem__)
    broken = tuple(run for run in values if not values[run] <= at_most)
    side: Side = "contradicted" if broken else "supported"
    why = Reason("broken-in", f"broken in {', '.join(broken)}") if broken else None
    limit = f"at most {at_most:g}" if at_most else "exactly 0"
    return Estimate(name, limit, len(values), values[worst], side=side, exact=True, reason=why)


def condition(name: str, holds: bool, *, n: int, reason: Reason, estimate: float) -> Estimate:
    """A count beside the statistics: without it the claim is not supported; alone it contradicts
    nothing.
    """
    return Estimate(
        name,
        "must hold for support",
        n,
        estimate,
        side="supported" if holds else None,
        reason=reason,
    )


def weigh(parts: Sequence[Estimate]) -> tuple[Side | None, OptionalFloat]:
    """The claim's side and its p: all parts for support (the largest p), one for contradiction (p x
    parts).

    A broken identity contradicts without a p. (None, None): some part lies on neither side.
    """
    if any(part.exact and part.side == "contradicted" for part in parts):
        return "contradicted", None
    tested = [part for part in parts if part.p is not None]
    against = [part.p for part in tested if part.side == "contradicted" and part.p is not None]
    if against:
        return "contradicted", min(1.0, len(tested) * min(against))
    if all(part.side == "supported" for part in parts):
        return "supported", max((part.p for part in tested if part.p is not None), default=None)
    return None, None


def _any_claim_settled(a_S: Floats, b_MS: Floats, alpha: float, rng: Generator) -> Conclusion:
    """Whether any of M claims "this arm ends above the baseline" is supported or contradicted.

    The claims are declared together.
    """
    sides = []
    p_values = []
    for b_S in b_MS:
        differences = dict(enumerate((b_S - a_S).tolist()))
        estimate = over_seeds("difference", differences, Region(above=0.0), alpha=alpha)
        side, p = weigh((estimate,))
        sides.append(side)
        p_values.append(p)
    words = set()
    for side, p in zip(sides, holm(p_values, len(p_values)), strict=True):
        if p is not None and p < alpha:
            words.add(side)
    return Conclusion(bool(words), "contradicted" in words, "supported" in words)


CLAIMS = Method("4 claims, any with a word, Holm", _any_claim_settled, "at most the band")


def _claim_cells() -> list[Cell]:
    cells = []
    for name, (baseline, treatment) in {"normal": (normal_noise, normal_noise), **UNEVEN}.items():
        draw = partial(draw_block, noises=(baseline, *repeat(treatment, 4)))
        method = CLAIMS if name == "normal" else stated(CLAIMS)
        cells += kinds(f"4 claims, {name}", (3, 5, 8), draw, method)
    return cells


CLAIM_CELLS = tuple(_claim_cells())
