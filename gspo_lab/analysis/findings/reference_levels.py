"""The levels that a difference of final scores is between: start, best and end of both sides.

A difference of final scores alone does not tell a rule that learns more from one that loses less.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gspo_lab.analysis.findings.decision import Sides, decision, with_sides
from gspo_lab.analysis.findings.run_outcomes import RunOutcome, outcomes
from gspo_lab.analysis.readings import Source, average, once
from gspo_lab.analysis.stats.paired import PairedT, paired_t
from gspo_lab.analysis.stats.verdict import Comparison
from gspo_lab.common.plain_data import OptionalFloat


@dataclass(frozen=True)
class ScoreLevels:
    """The scores of an arm, or of a side of a contrast, as means over the seeds that decide.

    `best` is the mean over runs of each run's best evaluation after the start. None: not measured.
    """

    name: str
    start: OptionalFloat
    best: OptionalFloat
    final: OptionalFloat

    @property
    def kept(self) -> OptionalFloat:
        """The share of the best gain over the start that is left at the end; below 0 where the end
        lies below the start. None where nothing was gained.
        """
        if self.start is None or self.best is None or self.final is None:
            return None
        gain = self.best - self.start
        return (self.final - self.start) / gain if gain > 0 else None

    @property
    def ends_below_start(self) -> bool:
        """Whether the mean final score lies below the mean start."""
        return self.start is not None and self.final is not None and self.final < self.start

    @property
    def measured(self) -> bool:
        """Whether all three were measured."""
        return None not in (self.start, self.best, self.final)


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


@once
def score_levels(source: Source) -> dict[str, ScoreLevels]:
    """Per arm its levels on the primary benchmark, over its runs of the deciding seeds."""
    decided = decision(source)
    ended = [run for run in outcomes(source, decided.primary) if decided.runs.has(run)]
    return {
        arm: _levels(arm, [_run_levels(run) for run in ended if run.arm == arm])
        for arm in source.arms
    }


@once
def reference_levels(source: Source) -> dict[str, ReferenceLevels]:
    """The levels of both sides of each verdict on final scores, by its subject.

    The contrast's verdict is included. The levels are of the seeds on which every arm of the
    comparison has a final score.
    """
    return {
        verdict.subject: _levels_of_sides(source, verdict, weights)
        for verdict, weights in with_sides(source)
    }


Levels = tuple[OptionalFloat, OptionalFloat, OptionalFloat]
"""Start, best evaluation and final score of one run, or of one seed of a contrast's side."""


def _run_levels(run: RunOutcome) -> Levels:
    return run.start, run.best_evaluation, run.final


def _levels(name: str, per_seed: Sequence[Levels]) -> ScoreLevels:
    measured = [levels for levels in per_seed if levels[2] is not None]
    means = []
    for place in range(3):
        column = [levels[place] for levels in measured]
        means.append(None if None in column else average(column))
    return ScoreLevels(name, *means)


def _levels_of_sides(source: Source, verdict: Comparison, weights: Sides) -> ReferenceLevels:
    runs = {(run.arm, run.seed): run for run in decision(source).ended if run.final is not None}
    arms = [*weights[0], *weights[1]]
    seeds = [seed for seed in decision(source).seeds if all((arm, seed) in runs for arm in arms)]
    columns = []
    for side in weights:
        columns.append([_weighted_levels(side, runs, seed) for seed in seeds])
    baseline, subject = columns
    apart = []
    for first, second in zip(baseline, subject, strict=True):
        if first[1] is not None and second[1] is not None:
            apart.append(second[1] - first[1])
    return ReferenceLevels(
        _levels(str(verdict.baseline), baseline),
        _levels(verdict.subject, subject),
        paired_t(apart, verdict.alpha),
        verdict.direction,
    )


def _weighted_levels(
    side: Mapping[str, float], runs: Mapping[tuple[str, int], RunOutcome], seed: int
) -> Levels:
    by_arm = [_run_levels(runs[arm, seed]) for arm in side]
    out: list[OptionalFloat] = []
    for place in range(3):
        column = [levels[place] for levels in by_arm]
        weighted = [
            weight * score
            for weight, score in zip(side.values(), column, strict=True)
            if score is not None
        ]
        out.append(sum(weighted) if len(weighted) == len(column) else None)
    start, best, final = out
    return start, best, final
