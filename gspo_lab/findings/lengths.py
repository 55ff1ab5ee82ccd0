"""Response length: how far the ratios move and what both rules clip where only the answers' limit differs between arms.

A law is a straight line of log y on log L through each seed's runs; its exponent is the mean over seeds with their t
interval. If the token log-ratios l_t of a response were independent, log s, their mean, would spread as they do divided
by sqrt(L): exponent -1/2. Under the policy that sampled them the expected l_t is -KL, at every length: a drift that
averaging does not shrink.

Longer answers than any that was trained on are extrapolated from the longest ones (`predicted`), and held against what
was published of such answers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gspo_lab.findings.clipped import rule_arms
from gspo_lab.findings.outcomes import outcomes
from gspo_lab.objectives.ratios import binds
from gspo_lab.readings import Reading, Source, average, once, read
from gspo_lab.readings.curves import reward_curves
from gspo_lab.readings.responses import Movement, band_shares, movement
from gspo_lab.readings.runs import deciding_runs
from gspo_lab.records import BAND_SCALES
from gspo_lab.stats import PairedT, paired_t
from gspo_lab.stats.arrays import Floats

KEY = "rollout.max_tokens"
"""The setting whose sweep is one of lengths."""

LONGER = (5_000, 10_000, 30_000)
"""Tokens at which the extrapolation is told: the answers of the models that were published."""

PUBLISHED = {"grpo": 0.0013, "gspo": 0.15}
"""Shares of tokens clipped (claim C04), read off a bar chart of 2507.18071, sec. 5.2: 30B-A3B, four mini-batches."""

QUANTITIES = {
    "spread_tokens": "spread of l_t",
    "spread": "spread of log s",
    "averaging": "spread of log s / spread of l_t",
    "drift": "drift, mean of -l_t (by k3)",
    "clipped_grpo": "tokens that GRPO's range clips",
    "clipped_gspo": "tokens that GSPO's range clips",
    "grad_norm": "gradient norm",
}
"""What is fitted, with the words for it."""


@dataclass(frozen=True)
class LengthMeasurement(Movement):
    """One run, over its updates after the learning rate's warm-up. Clipped shares, of each rule's reference range, are
    of all mini-batches, as the paper's. `gain` is what the primary score rose by."""

    clipped_grpo: float
    clipped_gspo: float
    grad_norm: float
    reward_first: float
    gain: float | None
    scales: Mapping[str, Floats]
    """Per rule the clipped share of all tokens at its range x BAND_SCALES."""

    @property
    def averaging(self) -> float:
        """What averaging over a response leaves of the token log-ratios' spread; 1/sqrt(L) if they were independent."""
        return self.spread / self.spread_tokens

    def clips(self, band: tuple[float, float], moved: float = 1.0, shrunk: float = 1.0) -> tuple[float, float]:
        """The clipped shares (A < 0, A > 0) of all tokens under a sequence rule's range, had the policy moved `moved`
        times as far, for which the log-ratios grow in proportion and their drift by its square, and were the spread
        around it `shrunk`."""
        log_s_N = moved**2 * self.expected_N + moved * shrunk * self.residual_N
        low_N, high_N = binds(np.exp(log_s_N), self.adv_N, np.ones_like(self.adv_N, dtype=bool), *band)
        return float(self.share_N @ low_N), float(self.share_N @ high_N)


@dataclass(frozen=True)
class Law:
    """y ~ L^exponent in one family of arms; `exponent.differences` has a value per seed."""

    family: str
    quantity: str
    exponent: PairedT


@dataclass(frozen=True)
class Prediction:
    """GSPO's clipped tokens at a length, by the laws of each seed: their share, and which part of them has A < 0.

    `measured` is None where nobody trained at that length.
    """

    length: float
    share: PairedT
    negative: PairedT
    measured: PairedT | None = None


@dataclass(frozen=True)
class Lengths:
    """A sweep over the length of answers. `runs` has family -> limit -> seed -> run, of the seeds that decide; the
    rest is over those that have finished at every length."""

    runs: dict[str, dict[float, dict[int, LengthMeasurement]]]
    laws: tuple[Law, ...]
    rules: tuple[str, str] | None
    """The families that follow GRPO's rule and GSPO's; None where one is lacking."""
    moved: PairedT | None
    """How much farther a policy would have had to move for GRPO's range to clip the published share; None where its
    range x BAND_SCALES does not reach that share on some seed, and nothing is extrapolated."""
    check: Prediction | None
    """The longest answers of the study, predicted from its shorter ones."""
    predicted: tuple[Prediction, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data, as the report's JSON has it."""
        names = [*QUANTITIES, "length", "reward_first", "gain"]
        return {
            "runs": {
                family: {
                    f"{limit:g}": {str(seed): {name: getattr(run, name) for name in names} for seed, run in own.items()}
                    for limit, own in limits.items()
                }
                for family, limits in self.runs.items()
            },
            "exponents": {
                family: {law.quantity: limits_of(law.exponent) for law in self.laws if law.family == family}
                for family in self.runs
            },
            "moved": None if self.moved is None else limits_of(self.moved),
            "check": None if self.check is None else _told(self.check),
            "predicted": [_told(one) for one in self.predicted],
            "published": PUBLISHED,
        }


@once
def lengths(found: Source) -> Lengths | None:
    """What a sweep over the length of answers says so far; None for any other study."""
    declared = found.declaration
    if declared.sweep is None or declared.sweep.key != KEY:
        return None
    gains = {(run.arm, run.seed): run.gain for run in outcomes(found, declared.primary)}
    runs: dict[str, dict[float, dict[int, LengthMeasurement]]] = {name: {} for name in declared.families}
    for (arm, seed), run in deciding_runs(found).items():
        one = declared.arms[arm]
        own = _measured(found, arm, seed, run, gains[arm, seed])
        if one.of is not None and one.dose is not None and own is not None:
            runs[one.of].setdefault(one.dose, {})[seed] = own
    runs = {family: dict(sorted(own.items())) for family, own in runs.items()}
    laws = tuple(
        Law(family, quantity, paired_t(list(found_here.values())))
        for family, own in runs.items()
        for quantity in QUANTITIES
        if (found_here := exponents(own, quantity))
    )
    pair = rule_arms(found)
    if pair is None:
        return Lengths(runs, laws, None, None, None, ())
    grpo, gspo = (declared.arms[arm].of or arm for arm in pair)
    extrapolated = _extrapolated(runs[grpo], runs[gspo], declared.reference_bands["gspo"])
    return Lengths(runs, laws, (grpo, gspo), *extrapolated)


def _measured(found: Source, arm: str, seed: int, run: str, gain: float | None) -> LengthMeasurement | None:
    moved = movement(found, run)
    if moved is None:
        return None
    names = ("would_clip_fraction_tokens_grpo", "would_clip_fraction_tokens_gspo", "grad_norm")
    known = (read(found, Reading(name))[run].value for name in names)
    grpo, gspo, norm = (math.nan if value is None else value for value in known)
    rewards = reward_curves(found).get((arm, seed))
    first = math.nan if rewards is None else float(rewards[1][0])
    return LengthMeasurement(
        **vars(moved),
        clipped_grpo=grpo,
        clipped_gspo=gspo,
        grad_norm=norm,
        reward_first=first,
        gain=gain,
        scales=band_shares(found, run),
    )


def exponents(own: Mapping[float, Mapping[int, LengthMeasurement]], quantity: str) -> dict[int, float]:
    """Per seed that has a run of every length the slope of log y on log L; none where a y is not above 0."""
    seeds = set.intersection(*(set(runs) for runs in own.values())) if len(own) > 1 else set()
    points = {
        seed: [(runs[seed].length, float(getattr(runs[seed], quantity))) for runs in own.values()] for seed in seeds
    }
    if not all(y > 0 for seed in seeds for _, y in points[seed]):
        return {}
    fits = {seed: np.log(np.asarray(points[seed]).T) for seed in sorted(seeds)}
    return {seed: float(np.polyfit(x, y, 1)[0]) for seed, (x, y) in fits.items()}


def moved_to(share: float, scaled: Floats) -> float | None:
    """How many times as far the log-ratios would have to reach for a range to clip this share of tokens, between the
    scales at which it was counted, by a straight line of log share on log scale; None beyond them.

    A range x 1/2 clips what the range itself would, had every log-ratio doubled.
    """
    known = scaled > 0
    if not known.any() or not scaled[known].min() <= share <= scaled[known].max():
        return None
    scales = np.log(np.asarray(BAND_SCALES)[known])
    return float(np.exp(-np.interp(-math.log(share), -np.log(scaled[known]), scales)))


def _extrapolated(
    grpo: Mapping[float, Mapping[int, LengthMeasurement]],
    gspo: Mapping[float, Mapping[int, LengthMeasurement]],
    band: tuple[float, float],
) -> tuple[PairedT | None, Prediction | None, tuple[Prediction, ...]]:
    slopes = exponents(gspo, "averaging")
    *shorter, longest = gspo or (0.0,)
    moved = {
        seed: found
        for seed in slopes
        if seed in grpo.get(longest, {}) and (found := moved_to(PUBLISHED["grpo"], grpo[longest][seed].scales["grpo"]))
    }
    check = None
    if len(shorter) > 1 and slopes:
        known = exponents({limit: gspo[limit] for limit in shorter}, "averaging")
        bases, aims = gspo[shorter[-1]], gspo[longest]
        far = {seed: aims[seed].spread_tokens / bases[seed].spread_tokens for seed in slopes}
        shares = [
            bases[seed].clips(band, far[seed], (aims[seed].length / bases[seed].length) ** known[seed])
            for seed in slopes
        ]
        seen = paired_t([aims[seed].clipped_gspo for seed in slopes])
        check = _prediction(average(aims[seed].length for seed in slopes) or 0.0, shares, seen)
    if len(moved) < len(slopes) or not slopes:
        return None, check, ()
    bases = gspo[longest]
    predicted = tuple(
        _prediction(
            length,
            [bases[seed].clips(band, moved[seed], (length / bases[seed].length) ** slopes[seed]) for seed in slopes],
        )
        for length in LONGER
    )
    return paired_t(list(moved.values())), check, predicted


def _prediction(length: float, shares: Sequence[tuple[float, float]], measured: PairedT | None = None) -> Prediction:
    parts = [low / (low + high) if low + high else math.nan for low, high in shares]
    known = [one for one in parts if math.isfinite(one)]
    return Prediction(length, paired_t([sum(one) for one in shares]), paired_t(known), measured)


def limits_of(of: PairedT) -> dict[str, Any]:
    """Plain data."""
    return {"estimate": of.estimate, "low": of.low, "high": of.high, "per_seed": list(of.differences)}


def _told(one: Prediction) -> dict[str, Any]:
    return {
        "length": one.length,
        "share": limits_of(one.share),
        "negative": limits_of(one.negative),
        "measured": None if one.measured is None else limits_of(one.measured),
    }
