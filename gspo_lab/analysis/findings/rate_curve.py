"""Score against a swept setting, each arm at its own best value: `[verdict] over = KEY`.

A comparison at one learning rate can have either sign, because the curves of two rules cross. So
this answers: which arm gets further at its own best value, where its peak lies, and how wide a
range of values keeps it near the peak. Values and arms added after the first step do not count.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gspo_lab.analysis.findings.matched import starting_models, study_certificate
from gspo_lab.analysis.findings.reference_levels import ReferenceLevels, levels_between
from gspo_lab.analysis.findings.run_outcomes import outcomes
from gspo_lab.analysis.readings import Source, once
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.analysis.stats.paired import PairedT, paired_t
from gspo_lab.analysis.stats.peaks import (
    best_without_seed,
    mean_range,
    mean_score,
    peak_difference_variance,
    peak_heights,
    peak_is_inside,
    peak_places,
    ranges_near_peak,
)
from gspo_lab.analysis.stats.verdict import Comparison, Rule, Scores, decide_all
from gspo_lab.common.plain_data import Integers, Interval, OptionalFloat, Strings
from gspo_lab.common.reason import Reason
from gspo_lab.common.text import setting_name
from gspo_lab.study.declaration import Declaration


@dataclass(frozen=True)
class Ratio:
    """A ratio of two values of the setting, with its interval over seeds; None: not known."""

    estimate: OptionalFloat
    low: OptionalFloat
    high: OptionalFloat


@dataclass(frozen=True)
class CurvePoint:
    """One arm at one value: mean score, the ends of its 95 % interval, each seed's score."""

    value: float
    score: float
    low: OptionalFloat
    high: OptionalFloat
    by_seed: tuple[float, ...]


@dataclass(frozen=True)
class ScoreCurve:
    """One arm over all values. `height` is its score at the value that the other seeds choose.

    `best` has that value for each seed. `near` is the range of values within the margin of the
    arm's own peak (geometric means over seeds). `inside`: the peak lies at no end of the grid.
    """

    arm: str
    points: tuple[CurvePoint, ...]
    height: float
    best: tuple[float, ...]
    near: Interval
    inside: bool


@dataclass(frozen=True)
class CurveComparison:
    """One arm's curve against the baseline's, over the seeds that both finished at all values.

    `verdict` is on the heights of the peaks. `place` is the ratio of the values at the peaks,
    `upper` that of the highest values within the margin of the own peak, `width` that of the
    widths (highest over lowest) of these ranges. The answer says `upper`, which tells how much more
    an arm stands; the grid often cuts a range at its lower end, and then `width` is too small.
    `levels` are those of each seed's runs at the values that the other seeds choose. `differences`
    has one difference per value.
    """

    arm: str
    baseline: str
    verdict: Comparison
    levels: ReferenceLevels
    place: Ratio
    upper: Ratio
    width: Ratio
    differences: tuple[tuple[float, PairedT], ...]

    @property
    def one_sided(self) -> list[tuple[float, PairedT]]:
        """The differences that have the same sign on every seed."""
        out = []
        for value, paired in self.differences:
            if paired.n and (min(paired.differences) > 0 or max(paired.differences) < 0):
                out.append((value, paired))
        return out


@dataclass(frozen=True)
class RateCurve:
    """Score against the setting `key`, for every arm with at least two seeds at all its values."""

    key: str
    baseline: str
    seeds: Integers
    curves: tuple[ScoreCurve, ...]
    comparisons: tuple[CurveComparison, ...]
    missing: Strings
    """Runs without a final score, in words."""


@once
def rate_curve(source: Source) -> RateCurve | None:
    """The curves so far; None without a sweep that `[verdict] over` names, or without a score."""
    declared = source.declaration
    if declared.sweep is None or declared.verdict.over is None or declared.primary is None:
        return None
    arms = [arm for arm in declared.arms.values() if arm.name not in set(declared.arms_added)]
    values = np.array(sorted({arm.dose for arm in arms if arm.dose is not None}))
    final = {
        (run.arm, run.seed): run.final
        for run in outcomes(source, declared.primary)
        if run.final is not None
    }
    missing = tuple(
        f"{arm.name} seed {seed}"
        for arm in arms
        for seed in declared.deciding
        if (arm.name, seed) not in final
    )
    names = {(str(arm.of), arm.dose): arm.name for arm in arms}
    families = list(dict.fromkeys(of for of, _ in names))
    seeds = tuple(
        seed for seed in declared.deciding if all((arm.name, seed) in final for arm in arms)
    )
    scores = {
        of: np.array([[final[names[of, value], seed] for value in values] for seed in seeds])
        for of in families
    }
    baseline = declared.verdict.baseline or families[0]
    margin = declared.verdict.margin
    curves: tuple[ScoreCurve, ...] = ()
    comparisons: tuple[CurveComparison, ...] = ()
    if len(seeds) >= 2:
        curves = tuple(_curve(of, scores[of], values, margin) for of in families)
        about = _own_best(declared, declared.verdict.over)
        comparisons = _comparisons(source, baseline, scores, values, seeds, missing, about)
    return RateCurve(declared.sweep.key, baseline, seeds, curves, comparisons, missing)


def _curve(arm: str, scores_SD: Floats, values: Floats, margin: float) -> ScoreCurve:
    points = []
    for place, value in enumerate(values):
        interval = paired_t(scores_SD[:, place])
        points.append(
            CurvePoint(
                float(value),
                mean_score(scores_SD[:, place]),
                interval.low,
                interval.high,
                tuple(scores_SD[:, place].tolist()),
            )
        )
    return ScoreCurve(
        arm,
        tuple(points),
        mean_score(peak_heights(scores_SD)),
        tuple(values[best_without_seed(scores_SD)].tolist()),
        mean_range(ranges_near_peak(scores_SD, values, margin)),
        peak_is_inside(scores_SD),
    )


def _comparisons(
    source: Source,
    baseline: str,
    scores: dict[str, Floats],
    values: Floats,
    seeds: Sequence[int],
    missing: Sequence[str],
    about: Reason,
) -> tuple[CurveComparison, ...]:
    rule = source.declaration.verdict
    matched = study_certificate(source).on(source.declaration.deciding)
    withheld = [Reason("not-matched", why) for whys in matched.reasons.values() for why in whys]
    if missing:
        text = (
            f"runs are missing, {len(seeds)} of {len(source.declaration.deciding)} seeds are"
            " complete at every value"
        )
        withheld.append(Reason("pairs-incomplete", text))
    treatments = [arm for arm in scores if arm != baseline]
    compared = [
        Scores(
            peak_heights(scores[baseline]),
            peak_heights(scores[arm]),
            (baseline, arm),
            estimated=peak_difference_variance(scores[baseline], scores[arm]),
            withheld_because=tuple(withheld),
            unproven=matched.unproven,
        )
        for arm in treatments
    ]
    verdicts = decide_all(compared, Rule(rule.margin, rule.alpha))
    names = {(str(arm.of), arm.dose): arm.name for arm in source.declaration.arms.values()}
    chosen = {
        of: [{names[of, value]: 1.0} for value in values[best_without_seed(scores_SD)]]
        for of, scores_SD in scores.items()
    }
    places = {arm: peak_places(scores_SD, values) for arm, scores_SD in scores.items()}
    ranges = {
        arm: ranges_near_peak(scores_SD, values, rule.margin) for arm, scores_SD in scores.items()
    }
    out = []
    for arm, verdict in zip(treatments, verdicts, strict=True):
        difference_SD = scores[arm] - scores[baseline]
        sides = zip(chosen[baseline], chosen[arm], strict=True)
        out.append(
            CurveComparison(
                arm,
                baseline,
                replace(verdict, about=about),
                levels_between(source, verdict, dict(zip(seeds, sides, strict=True))),
                _ratio(places[arm] - places[baseline]),
                _ratio(ranges[arm][:, 1] - ranges[baseline][:, 1]),
                _ratio(np.ptp(ranges[arm], axis=1) - np.ptp(ranges[baseline], axis=1)),
                tuple(zip(values.tolist(), map(paired_t, difference_SD.T), strict=True)),
            )
        )
    return tuple(out)


def _own_best(declared: Declaration, key: str) -> Reason:
    """What the heights are compared at: each arm's own best value, and the starting models."""
    texts = [f"with each at its own best {setting_name(key)}"]
    if models := starting_models(declared):
        texts.append(models.text)
    return Reason("own-best", ", ".join(texts))


def _ratio(log_ratios: Floats) -> Ratio:
    """The geometric mean of ratios over seeds, with the interval of their logarithms' t."""
    interval = paired_t(log_ratios)
    if interval.estimate is None:
        return Ratio(None, None, None)
    ends = [None if end is None else math.exp(end) for end in (interval.low, interval.high)]
    return Ratio(math.exp(interval.estimate), ends[0], ends[1])
