"""Sweeps: the swept value (dose) at which half of an arm's runs collapse, and what the length of
answers changes.

`stats.collapse` judges each run, `stats.ed50` fits the doses. Values and arms that were added after
the first step do not count.

A law is a straight line of log y on log L through each seed's runs. Its exponent is the mean over
seeds with their t interval. Let l_t be the token log-ratios of a response and log s their mean. If
the l_t were independent, the spread of log s would be theirs divided by sqrt(L): exponent -1/2.
Under the policy that sampled them the expected l_t is -KL at every length, a drift that averaging
does not shrink.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gspo_lab.analysis.findings.clip_fractions import rule_arms
from gspo_lab.analysis.findings.matched import starting_models
from gspo_lab.analysis.findings.run_outcomes import RunOutcome, outcomes
from gspo_lab.analysis.readings import Reading, Source, average, once, read
from gspo_lab.analysis.readings.curves import Movement, movement, reward_curves
from gspo_lab.analysis.readings.runs import deciding_runs
from gspo_lab.analysis.stats import PairedT, paired_t
from gspo_lab.analysis.stats.ed50 import DoseLimits, dose_ratios, half_collapse
from gspo_lab.common.plain_data import OptionalFloat, Strings
from gspo_lab.common.reason import Reason

LENGTH = "rollout.max_tokens"
"""The setting whose sweep is one of lengths."""

PUBLISHED = {"grpo": 0.0013, "gspo": 0.15}
"""Shares of tokens clipped (claim C04), read off a bar chart of 2507.18071, sec. 5.2: 30B-A3B, four
mini-batches.
"""

QUANTITIES = {
    "spread_tokens": "spread of l_t",
    "spread": "spread of log s",
    "averaging": "spread of log s / spread of l_t",
    "drift": "drift, mean of -l_t (by k3)",
    "clipped_grpo": "tokens that GRPO's range clips",
    "clipped_gspo": "tokens that GSPO's range clips",
    "grad_norm": "gradient norm",
}
"""The fitted quantities, each with its label."""


@dataclass(frozen=True)
class LengthMeasurement(Movement):
    """One run, over its updates after the learning rate's warm-up. Clipped shares, of each rule's
    reference range, are of all mini-batches, as the paper's. `gain` is what the primary score rose
    by."""

    averaging: float
    """What averaging over a response leaves of the token log-ratios' spread; 1/sqrt(L) if they were
    independent."""
    clipped_grpo: float
    clipped_gspo: float
    grad_norm: float
    reward_first: float
    gain: OptionalFloat


@dataclass(frozen=True)
class Law:
    """y ~ L^exponent in one family of arms; `exponent.differences` has a value per seed."""

    family: str
    quantity: str
    exponent: PairedT

    @property
    def title(self) -> str:
        """What the law is of."""
        return QUANTITIES[self.quantity]


@dataclass(frozen=True)
class Lengths:
    """A sweep over answer length. `runs` has family -> limit -> seed -> run, of the deciding seeds.

    Laws are over the seeds that have finished at every length.
    """

    runs: dict[str, dict[float, dict[int, LengthMeasurement]]]
    laws: tuple[Law, ...]
    rules: tuple[str, str] | None
    """The families that follow GRPO's rule and GSPO's; None where one is lacking."""


@once
def lengths(source: Source) -> Lengths | None:
    """The laws of a sweep over answer length so far; None for any other study."""
    declared = source.declaration
    if declared.sweep is None or declared.sweep.key != LENGTH:
        return None
    gains = {(run.arm, run.seed): run.gain for run in outcomes(source, declared.primary)}
    runs: dict[str, dict[float, dict[int, LengthMeasurement]]] = {
        name: {} for name in declared.families
    }
    for (arm, seed), run in deciding_runs(source).items():
        family = declared.arms[arm].of
        limit = declared.arms[arm].dose
        measurement = _measurement(source, arm, seed, run, gains[arm, seed])
        if family is not None and limit is not None and measurement is not None:
            runs[family].setdefault(limit, {})[seed] = measurement
    runs = {family: dict(sorted(by_limit.items())) for family, by_limit in runs.items()}
    laws = tuple(
        Law(family, quantity, paired_t(list(slopes.values())))
        for family, by_limit in runs.items()
        for quantity in QUANTITIES
        if (slopes := exponents(by_limit, quantity))
    )
    pair = rule_arms(source)
    if pair is None:
        return Lengths(runs, laws, None)
    grpo, gspo = pair
    return Lengths(runs, laws, (declared.arms[grpo].of or grpo, declared.arms[gspo].of or gspo))


def _measurement(
    source: Source, arm: str, seed: int, run: str, gain: OptionalFloat
) -> LengthMeasurement | None:
    moved = movement(source, run)
    if moved is None:
        return None
    names = ("would_clip_fraction_tokens_grpo", "would_clip_fraction_tokens_gspo", "grad_norm")
    known = (read(source, Reading(name))[run].value for name in names)
    grpo, gspo, norm = (math.nan if value is None else value for value in known)
    rewards = reward_curves(source).get((arm, seed))
    first = math.nan if rewards is None else float(rewards[1][0])
    return LengthMeasurement(
        **vars(moved),
        averaging=moved.spread / moved.spread_tokens if moved.spread_tokens else math.nan,
        clipped_grpo=grpo,
        clipped_gspo=gspo,
        grad_norm=norm,
        reward_first=first,
        gain=gain,
    )


def exponents(
    by_limit: Mapping[float, Mapping[int, LengthMeasurement]], quantity: str
) -> dict[int, float]:
    """The slope of log y on log L for each seed with a run of every length; empty where a y is not
    above 0.
    """
    seeds = (
        set.intersection(*(set(runs) for runs in by_limit.values())) if len(by_limit) > 1 else set()
    )
    limits = by_limit.values()
    points = {
        seed: [(runs[seed].length, float(getattr(runs[seed], quantity))) for runs in limits]
        for seed in seeds
    }
    if not all(y > 0 for seed in seeds for _, y in points[seed]):
        return {}
    fits = {seed: np.log(np.asarray(points[seed]).T) for seed in sorted(seeds)}
    return {seed: float(np.polyfit(x, y, 1)[0]) for seed, (x, y) in fits.items()}


@dataclass(frozen=True)
class DosePoint:
    """One arm at one dose: its finished runs long enough to be judged, how many of them collapsed,
    and the mean of all final scores; None where no run has one.
    """

    dose: float
    runs: int
    collapsed: int
    score: OptionalFloat


@dataclass(frozen=True)
class ArmResponse:
    """One arm over all doses; `half_collapse` is None while no finished run can be judged."""

    points: tuple[DosePoint, ...]
    half_collapse: DoseLimits | None


@dataclass(frozen=True)
class DoseResponse:
    """All arms of a sweep over `key`, and the ratio of each arm's 50 % collapse point to the
    baseline's.

    `about` names the starting models where seeds share them. Arms that came after the first step
    are `not_counted`.
    """

    key: str
    baseline: str
    arms: dict[str, ArmResponse]
    ratios: dict[str, DoseLimits]
    about: Reason | None = None
    not_counted: Strings = ()


@once
def dose_response(source: Source) -> DoseResponse | None:
    """The dose response so far, from the finished runs of the deciding seeds; None without a sweep.

    None, too, for a sweep of answer lengths, which `lengths` reads. Of a run too short to be judged
    only the score counts.
    """
    declared = source.declaration
    if declared.sweep is None or declared.sweep.key == LENGTH:
        return None
    added = set(declared.arms_added)
    counted = [
        arm for arm in declared.arms.values() if arm.dose is not None and arm.name not in added
    ]
    names = [name for name in declared.families if any(arm.of == name for arm in counted)]
    baseline = declared.verdict.baseline or names[0]
    runs: dict[str, list[tuple[float, RunOutcome]]] = {name: [] for name in names}
    by_name = {arm.name: arm for arm in counted}
    deciding = deciding_runs(source)
    for run in outcomes(source, declared.primary):
        arm = by_name.get(run.arm)
        if (
            (run.arm, run.seed) in deciding
            and arm is not None
            and arm.of is not None
            and arm.dose is not None
        ):
            runs[arm.of].append((arm.dose, run))
    doses = sorted({arm.dose for arm in counted if arm.dose is not None})
    arms = {name: _response(doses, runs[name]) for name in names}
    judged = {name: columns for name in names if (columns := _columns(runs[name]))[0]}
    base = judged.pop(baseline, None)
    ratios = {} if base is None else dose_ratios(base, judged, declared.verdict.alpha)
    return DoseResponse(
        declared.sweep.key, baseline, arms, ratios, starting_models(declared), declared.arms_added
    )


def _response(doses: list[float], runs: list[tuple[float, RunOutcome]]) -> ArmResponse:
    points = []
    for dose in doses:
        ended = [run for run_dose, run in runs if run_dose == dose]
        judged_runs = sum(run.judged for run in ended)
        fallen = sum(run.collapsed for run in ended)
        points.append(DosePoint(dose, judged_runs, fallen, average(run.final for run in ended)))
    judged, collapsed, _ = _columns(runs)
    return ArmResponse(tuple(points), half_collapse(judged, collapsed) if judged else None)


def _columns(runs: list[tuple[float, RunOutcome]]) -> tuple[list[float], list[int], list[int]]:
    """Dose, collapsed and seed of every run that could be judged; none before runs at two doses
    could.
    """
    judged = [(dose, run) for dose, run in runs if run.judged]
    if len({dose for dose, _ in judged}) < 2:
        return [], [], []
    return (
        [dose for dose, _ in judged],
        [int(run.collapsed) for _, run in judged],
        [run.seed for _, run in judged],
    )
