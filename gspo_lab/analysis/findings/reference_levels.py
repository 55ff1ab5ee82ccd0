"""The levels that a difference of final scores is between: start, best and end of both sides.

A difference of final scores alone does not tell a rule that learns more from one that loses less.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gspo_lab.analysis.findings.clip_fractions import clips
from gspo_lab.analysis.findings.decision import Sides, decision, with_sides
from gspo_lab.analysis.findings.run_outcomes import outcomes
from gspo_lab.analysis.readings import Source, average, once, read, runs
from gspo_lab.analysis.readings.reading import CLIP_GRADIENT
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.analysis.stats.paired import PairedT, paired_t
from gspo_lab.analysis.stats.verdict import Comparison
from gspo_lab.common.plain_data import OptionalFloat

LITTLE_CLIPPED = 0.02
"""Below this clipped share of the gradient on both sides, clipping can hardly make a difference."""
UNEQUAL_STEPS = 1.25
"""From this ratio of the shares of the gradient that both sides keep, effective steps differ."""


@dataclass(frozen=True)
class ScoreLevels:
    """The scores of an arm, or of a side of a contrast, as means over the seeds that decide.

    `best` is the mean over runs of each run's best evaluation after the start. `clipped_gradient`
    is the share of the gradient that the clip takes on mini-batches >= 1: 0 for a loss without a
    clip. None: not measured.
    """

    name: str
    start: OptionalFloat
    best: OptionalFloat
    final: OptionalFloat
    clipped_gradient: OptionalFloat
    kept: OptionalFloat
    """The share of the best gain over the start that is left at the end; below 0 where the end lies
    below the start. None where nothing was gained.
    """

    @property
    def ends_below_start(self) -> bool:
        """Whether the mean final score lies below the mean start, where both were measured."""
        return (self.final or 0.0) < (self.start or 0.0)


@dataclass(frozen=True)
class ReferenceLevels:
    """Both sides of a comparison of final scores, with their difference at each run's best
    evaluation.
    """

    baseline: ScoreLevels
    subject: ScoreLevels
    at_best: PairedT
    direction: int
    """The side of the verdict on final scores: 1 for the subject, -1 against it, else 0."""

    @property
    def both_lose(self) -> bool:
        """Whether both sides end below their start: then "better" means "loses less"."""
        return self.baseline.ends_below_start and self.subject.ends_below_start

    @property
    def opposite_at_best(self) -> bool:
        """Whether the side that ends better is behind at each run's best evaluation."""
        return self.direction * (self.at_best.estimate or 0.0) < 0

    @property
    def regime(self) -> str:
        """What clipping can explain, by the share of the gradient that each side keeps."""
        clipped = [self.baseline.clipped_gradient, self.subject.clipped_gradient]
        kept = sorted(1 - share for share in clipped if share is not None)
        if len(kept) < 2:
            return "not measured"
        if kept[0] > 1 - LITTLE_CLIPPED:
            return "little clipped"
        return "unequal steps" if kept[1] >= UNEQUAL_STEPS * kept[0] else "like steps"


@once
def score_levels(source: Source) -> dict[str, ScoreLevels]:
    """Per arm its levels on the primary benchmark, over its runs of the deciding seeds."""
    levels = _levels_by_run(source)
    return {
        arm: _levels(
            arm, [levels[arm, seed] for seed in decision(source).seeds if (arm, seed) in levels]
        )
        for arm in source.arms
    }


@once
def reference_levels(source: Source) -> dict[str, ReferenceLevels]:
    """The levels of both sides of each verdict on final scores, by its subject.

    The contrast's verdict is included. The levels are of the seeds on which every arm of the
    comparison has a final score.
    """
    seeds = decision(source).seeds
    return {
        verdict.subject: levels_between(source, verdict, dict.fromkeys(seeds, sides))
        for verdict, sides in with_sides(source)
    }


def levels_between(
    source: Source, verdict: Comparison, sides: Mapping[int, Sides]
) -> ReferenceLevels:
    """The levels of both sides of a verdict, of which `sides` has the arms by seed.

    In a sweep a side is another arm on another seed: the value that the other seeds choose. Seeds
    count on which every arm has a final score.
    """
    levels = _levels_by_run(source)
    rows = []
    for seed, pair in sides.items():
        if all((arm, seed) in levels for arm in {**pair[0], **pair[1]}):
            rows.append(
                [sum(share * levels[arm, seed] for arm, share in side.items()) for side in pair]
            )
    rows_S24: Floats = np.array(rows, dtype=float).reshape(-1, 2, 4)
    apart_S = rows_S24[:, 1, 1] - rows_S24[:, 0, 1]
    return ReferenceLevels(
        _levels(str(verdict.baseline), rows_S24[:, 0]),
        _levels(verdict.subject, rows_S24[:, 1]),
        paired_t(apart_S[np.isfinite(apart_S)], verdict.alpha),
        verdict.direction,
    )


@once
def _levels_by_run(source: Source) -> dict[tuple[str, int], Floats]:
    """Start, best evaluation, final score and clipped share of the gradient of each finished run,
    [4]; NaN: not measured.
    """
    shares = read(source, CLIP_GRADIENT)
    rows = {}
    for run, ended in zip(runs(source), outcomes(source, source.declaration.primary), strict=True):
        if ended.final is not None:
            clipped = shares[run.id].value if clips(source.declaration, run.arm) else 0.0
            row = [ended.start, ended.best_evaluation, ended.final, clipped]
            rows[run.arm, run.seed] = np.array(row, dtype=float)
    return rows


def _levels(name: str, rows_S4: Floats | Sequence[Floats]) -> ScoreLevels:
    """The means over seeds; None where a seed's level was not measured."""
    means = []
    for column_S in np.reshape(rows_S4, (-1, 4)).T:
        means.append(None if np.isnan(column_S).any() else average(column_S))
    start, best, final, clipped = means
    kept = None
    if start is not None and best is not None and final is not None and best > start:
        kept = (final - start) / (best - start)
    return ScoreLevels(name, start, best, final, clipped, kept)
