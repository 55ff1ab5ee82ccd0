"""Stability as a verdict: which arm's runs drop less from their best score, and do not end worse.

Three conditions make an arm the more stable one. Its runs drop less from their best, relative to
their gain (paired t, Holm over arms). Its final score is not worse by more than the margin: an arm
that learned little has little to lose. The less stable arm has unstable runs, and at least as large
a share of them: noise among stable runs does not count.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike

from gspo_lab.analysis.stats.array_checks import Floats, finite
from gspo_lab.analysis.stats.paired import PairedT, paired_scores
from gspo_lab.analysis.stats.proportions import Proportion, clopper_pearson, fisher_p
from gspo_lab.analysis.stats.verdict import (
    EQUIVALENT,
    Comparison,
    Rule,
    Scores,
    Verdict,
    VerdictLabel,
    decide_all,
)
from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.common.reason import Reason, Reasons


@dataclass(frozen=True)
class ArmRuns:
    """One arm's runs in the order of seeds: best and final score, and the starting model's (NaN:
    not measured). `unstable` are (k, n): the unstable ones of those that could be judged."""

    best: ArrayLike
    final: ArrayLike
    start: ArrayLike
    unstable: tuple[int, int]

    @property
    def drops(self) -> Floats:
        """How far each final score lies below the best one of its run, in points of score."""
        return finite(self.best, "best scores") - finite(self.final, "final scores")

    def stakes(self, margin: float) -> Floats:
        """The denominators of relative drops: the run's gain, half of its best score or the margin,
        whichever is most.

        A run that never rose above its start has no gain, yet can drop. A drop by half of the best
        score is unstable anyway.
        """
        best = finite(self.best, "best scores")
        return np.maximum(
            np.fmax(best - np.asarray(self.start, dtype=np.float64), np.abs(best) / 2), margin
        )


@dataclass(frozen=True)
class RunPairs:
    """An arm `labels[1]` and the baseline `labels[0]` on the same seeds. `items_variance` and
    `withheld_because` are those of `verdict.Scores`."""

    baseline: ArmRuns
    treatment: ArmRuns
    labels: tuple[str, str] = ("a", "b")
    items_variance: OptionalFloat = None
    withheld_because: Reasons = ()


@dataclass(frozen=True, kw_only=True)
class StabilityVerdict(Verdict):
    """A verdict on stability, with its numbers.

    `drop` judges the relative drops from best with the sign turned. Its difference, `estimate`, is
    how much less the arm drops than the baseline, as a share of the stakes (`ArmRuns.stakes`); its
    margin is a share of the mean stake. `points` is the same difference in points of score. `drops`
    has each arm's mean drop in both units, baseline first. `final` is the difference of final
    scores. Two are descriptive: `unstable`, the rates of unstable runs of baseline and arm at 1 -
    alpha, and `p`, Fisher's for the two counts.
    """

    drop: Comparison
    points: PairedT
    final: PairedT
    drops: tuple[tuple[float, float], tuple[float, float]]
    unstable: tuple[Proportion, Proportion]
    p: OptionalFloat


def comparison(verdict: Verdict) -> Comparison:
    """The comparison of pairs behind a verdict; for stability that of the drops from best."""
    if isinstance(verdict, StabilityVerdict):
        return verdict.drop
    assert isinstance(verdict, Comparison)
    return verdict


def decide_stability(arms: Sequence[RunPairs], rule: Rule) -> list[StabilityVerdict]:
    """Judge each arm against the baseline; Holm's rule keeps alpha over the arms.

    A relative drop is (best - final) / stake. An arm's p is the larger of two: of no difference in
    relative drops, and of a final score that is worse by the margin.
    """
    runs = chain.from_iterable((pair.baseline, pair.treatment) for pair in arms)
    all_stakes = np.concatenate([*(arm.stakes(rule.margin) for arm in runs), np.zeros(0)])
    unit = float(all_stakes.mean()) if all_stakes.size else 1.0
    scored = [
        Scores(
            -_relative(pair.baseline, rule.margin),
            -_relative(pair.treatment, rule.margin),
            pair.labels,
            None if pair.items_variance is None else pair.items_variance / unit**2,
            withheld_because=pair.withheld_because,
        )
        for pair in arms
    ]
    judged = decide_all(scored, replace(rule, margin=rule.margin / unit))
    finals = [
        _paired_test(pair, pair.baseline.final, pair.treatment.final, rule.alpha) for pair in arms
    ]
    p_values = [
        _larger(drop, final, rule.margin) for drop, final in zip(judged, finals, strict=True)
    ]
    steps = rule.steps(p_values, [pair.labels[1] for pair in arms])
    return [
        _verdict(pair, drop, final, step.rejected, rule)
        for pair, drop, final, step in zip(arms, judged, finals, steps, strict=True)
    ]


def _relative(runs: ArmRuns, margin: float) -> Floats:
    return runs.drops / runs.stakes(margin)


def _paired_test(
    pair: RunPairs, baseline: ArrayLike, treatment: ArrayLike, alpha: float
) -> PairedT:
    return paired_scores(
        baseline, treatment, alpha, pair.labels, items_variance=pair.items_variance
    )


def _larger(drop: Comparison, final: PairedT, margin: float) -> OptionalFloat:
    """The larger p of the two conditions; None where nothing can be tested."""
    if drop.word == "no verdict" or drop.paired.p is None:
        return None
    worse = final.no_worse(margin, treatment=(drop.paired.estimate or 0.0) > 0)
    return None if worse is None else max(drop.paired.p, worse)


def _verdict(
    pair: RunPairs, drop: Comparison, final: PairedT, passed: bool, rule: Rule
) -> StabilityVerdict:
    word, reasons = _word(pair, drop, passed)
    points = _paired_test(pair, -pair.baseline.drops, -pair.treatment.drops, rule.alpha)

    def drops(runs: ArmRuns) -> tuple[float, float]:
        if not points.n:
            return math.nan, math.nan
        return float(_relative(runs, rule.margin).mean()), float(runs.drops.mean())

    unstable = pair.baseline.unstable, pair.treatment.unstable
    shared = {field.name: getattr(drop, field.name) for field in fields(Verdict)} | {
        "question": "stability",
        "word": word,
        "reasons": reasons,
    }
    return StabilityVerdict(
        **shared,
        drop=drop,
        points=points,
        final=final,
        drops=(drops(pair.baseline), drops(pair.treatment)),
        unstable=(
            clopper_pearson(*unstable[0], 1 - rule.alpha),
            clopper_pearson(*unstable[1], 1 - rule.alpha),
        ),
        p=None if pair.withheld_because else fisher_p(*unstable),
    )


def _word(pair: RunPairs, drop: Comparison, passed: bool) -> tuple[VerdictLabel, Reasons]:
    if drop.word == "no verdict":
        return "no verdict", drop.reasons
    baseline_unstable, baseline_judged = pair.baseline.unstable
    arm_unstable, arm_judged = pair.treatment.unstable
    excess = baseline_unstable * arm_judged - arm_unstable * baseline_judged
    if not drop.direction:
        alike = drop.word == EQUIVALENT and not excess
        return ("equally stable" if alike else "inconclusive"), ()
    if drop.direction > 0:
        falling, steady = pair.labels
        opposite_unstable = baseline_unstable
        word: VerdictLabel = "more stable"
    else:
        steady, falling = pair.labels
        opposite_unstable = arm_unstable
        word = "less stable"
    less = f"{steady} drops less from its best, but"
    if not opposite_unstable:
        text = f"{less} no run of {falling} was unstable"
        return "inconclusive", (Reason("nothing-unstable-opposite", text),)
    if excess * drop.direction < 0:
        text = f"{less} more of its runs were unstable"
        return "inconclusive", (Reason("more-unstable-runs", text),)
    if not passed:
        text = f"{less} its final score may be worse by more than the margin"
        return "inconclusive", (Reason("final-score-may-be-worse", text),)
    return word, ()
