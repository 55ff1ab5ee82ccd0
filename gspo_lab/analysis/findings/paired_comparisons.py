"""Every declared number of a run as a difference between arms, paired by seed; the primary score
decides.
"""

from dataclasses import dataclass

from gspo_lab.analysis.findings.decision import decision, with_sides
from gspo_lab.analysis.findings.imported_metrics import imported_metrics
from gspo_lab.analysis.findings.run_outcomes import outcomes
from gspo_lab.analysis.readings import Source, once
from gspo_lab.analysis.readings.answers import (
    answers_variance,
    benches,
    weighted_rates,
)
from gspo_lab.analysis.readings.curves import reward_curves
from gspo_lab.analysis.stats import TwoWay, holm, two_way
from gspo_lab.analysis.stats.curve_summaries import last_fifth, normalised_auc
from gspo_lab.analysis.stats.paired import PairedT, paired_scores
from gspo_lab.analysis.stats.ranking import Ranking, ranking
from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.study.contrast import signed_sides


@dataclass(frozen=True)
class RunScalar:
    """One number per run, by its arm and seed. `scored`: it is a benchmark's score; else it is a
    training reward."""

    name: str
    values: dict[tuple[str, int], float]
    scored: bool
    primary: bool = False
    bench: str | None = None
    """The benchmark of a score."""

    @property
    def title(self) -> str:
        """The name, and whether it decides."""
        return f"{self.name}, primary" if self.primary else self.name


@dataclass(frozen=True)
class PairedComparison:
    """A scalar's difference between an arm and the baseline over the verdict's seeds that both
    have.

    `p_adjusted` is Holm's over all scalars and arms but the primary score, which stands by itself
    (None).
    """

    scalar: RunScalar
    arm: str
    paired: PairedT
    p_adjusted: OptionalFloat


@once
def scalars(source: Source) -> list[RunScalar]:
    """Each finished run's score on every benchmark, and the area and tail of its reward."""
    primary = source.declaration.primary
    benchmarks = [
        RunScalar(
            bench,
            {
                (run.arm, run.seed): run.final
                for run in outcomes(source, bench)
                if run.final is not None
            },
            scored=True,
            primary=bench == primary,
            bench=bench,
        )
        for bench in benches(source)
    ]
    rewards = {run: curve for run, curve in reward_curves(source).items() if len(curve[0]) > 1}
    logged = imported_metrics(source)
    if logged is not None and logged.rewards_differ:
        rewards = {}
    imported = logged is not None
    area = {run: normalised_auc(*curve) for run, curve in rewards.items()}
    tail = {run: last_fifth(reward) for run, (_, reward) in rewards.items()}
    return [
        *benchmarks,
        RunScalar("training reward, area under its curve", area, scored=False),
        RunScalar(
            f"training reward, last fifth of {'each log' if imported else 'the steps'}",
            tail,
            scored=False,
        ),
    ]


@once
def compared(source: Source) -> list[PairedComparison]:
    """Scalar by scalar, each arm against the baseline; scalars without a pair are left out."""
    differences = [
        (scalar, arm, paired)
        for scalar in scalars(source)
        for arm in source.declaration.treatments
        if (paired := _difference(source, scalar, arm)).n
    ]
    adjusted = holm([None if scalar.primary else paired.p for scalar, _, paired in differences])
    return [
        PairedComparison(*difference, p)
        for difference, p in zip(differences, adjusted, strict=True)
    ]


def _difference(source: Source, scalar: RunScalar, arm: str) -> PairedT:
    decided = decision(source)
    baseline = source.declaration.baseline
    if scalar.primary and arm in decided.verdicts:
        return decided.verdicts[arm].paired
    both = [
        seed
        for seed in decided.seeds
        if (baseline, seed) in scalar.values and (arm, seed) in scalar.values
    ]
    weights = {baseline: -1, arm: 1}
    bench = scalar.bench
    answers = None if bench is None else answers_variance(source, weights, both, bench=bench)
    first = [scalar.values[baseline, seed] for seed in both]
    second = [scalar.values[arm, seed] for seed in both]
    return paired_scores(first, second, source.declaration.verdict.alpha, items_variance=answers)


@once
def new_problems(source: Source) -> dict[str, TwoWay]:
    """Per subject of a verdict, a treatment or the contrast's side, its difference on the primary
    benchmark with the interval of new problems. The contrast's has its variance over seeds by all
    arms.
    """
    decided = decision(source)
    out = {}
    for verdict, compared_sides in with_sides(source):
        rates_SI = weighted_rates(source, signed_sides(*compared_sides), decided.seeds)
        if rates_SI is not None:
            estimated = verdict.paired.estimated if verdict is decided.contrast else None
            out[verdict.subject] = two_way(rates_SI, verdict.alpha, scale=1.0, estimated=estimated)
    return out


@once
def ranked(source: Source) -> Ranking | None:
    """The ranking of three or more arms on the deciding seeds; None where a verdict is withheld for
    other reasons than too few seeds."""
    decided = decision(source)
    declared = source.declaration
    verdicts = decided.verdicts.values()
    if len(verdicts) < 2 or any(verdict.withheld for verdict in verdicts) or not decided.matched.ok:
        return None
    final = {(run.arm, run.seed): run.final for run in decided.ended if run.final is not None}
    scores = {arm: [final[arm, seed] for seed in decided.seeds] for arm in declared.arms}
    better = {
        arm: verdict.better
        for arm, verdict in decided.verdicts.items()
        if verdict.better is not None
    }
    resolved = [
        (arm_better, decided.baseline if arm_better == arm else arm)
        for arm, arm_better in better.items()
    ]

    def variance(first: str, second: str) -> OptionalFloat:
        return answers_variance(source, {first: -1, second: 1}, decided.seeds)

    return ranking(scores, declared.verdict.alpha, variance, resolved)
