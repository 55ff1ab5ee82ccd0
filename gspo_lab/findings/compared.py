"""Every declared number of a run as a difference between arms, paired by seed; the primary score decides."""

from dataclasses import dataclass

from gspo_lab.findings.decision import decision
from gspo_lab.findings.outcomes import outcomes
from gspo_lab.readings import Source, once, runs
from gspo_lab.readings.answers import answered, answers_variance, benches, in_training
from gspo_lab.readings.curves import reward_curves
from gspo_lab.readings.graded import noise
from gspo_lab.stats import TwoWay, holm
from gspo_lab.stats.paired import PairedT, paired_t
from gspo_lab.stats.ranking import Ranking, ranking
from gspo_lab.stats.series import last_fifth, normalised_auc


@dataclass(frozen=True)
class RunScalar:
    """One number per run: (arm, seed) -> value. `scored` ones are benchmark scores, the others training rewards."""

    name: str
    values: dict[tuple[str, int], float]
    scored: bool
    primary: bool = False
    bench: str | None = None
    """The benchmark that a score is of."""

    @property
    def title(self) -> str:
        """The name, and whether it decides."""
        return f"{self.name}, primary" if self.primary else self.name


@dataclass(frozen=True)
class PairedComparison:
    """A scalar's difference between an arm and the baseline over the verdict's seeds that both have.

    `p_adjusted` is Holm's over all scalars and arms but the primary score, which stands by itself (None).
    """

    scalar: RunScalar
    arm: str
    paired: PairedT
    p_adjusted: float | None


@once
def scalars(found: Source) -> list[RunScalar]:
    """The primary score, the other benchmarks' scores, and the reward's area and tail, of finished runs."""
    primary = found.declaration.primary
    out = [
        RunScalar(
            bench,
            {(run.arm, run.seed): run.final for run in outcomes(found, bench) if run.final is not None},
            scored=True,
            primary=bench == primary,
            bench=bench,
        )
        for bench in benches(found)
    ]
    rewards = {run: curve for run, curve in reward_curves(found).items() if len(curve[0]) > 1}
    own = any(run.imported for run in runs(found))
    area = {run: normalised_auc(*curve) for run, curve in rewards.items()}
    tail = {run: last_fifth(reward) for run, (_, reward) in rewards.items()}
    return [
        *out,
        RunScalar("training reward, area under its curve", area, scored=False),
        RunScalar(f"training reward, last fifth of {'each log' if own else 'the steps'}", tail, scored=False),
    ]


@once
def compared(found: Source) -> list[PairedComparison]:
    """Scalar by scalar, each arm against the baseline; those without a pair are left out."""
    pairs = [
        (scalar, arm, _difference(found, scalar, arm))
        for scalar in scalars(found)
        for arm in found.declaration.treatments
    ]
    pairs = [one for one in pairs if one[2].n]
    adjusted = holm([None if scalar.primary else paired.p for scalar, _, paired in pairs])
    return [PairedComparison(*one, p) for one, p in zip(pairs, adjusted, strict=True)]


def _difference(found: Source, scalar: RunScalar, arm: str) -> PairedT:
    decided, baseline = decision(found), found.declaration.baseline
    if scalar.primary and arm in decided.verdicts:
        return decided.verdicts[arm].paired
    both = [seed for seed in decided.seeds if (baseline, seed) in scalar.values and (arm, seed) in scalar.values]
    answers = None if scalar.bench is None else answers_variance(found, baseline, arm, both, bench=scalar.bench)
    pairs = [(scalar.values[baseline, seed], scalar.values[arm, seed]) for seed in both]
    scale = max((abs(value) for pair in pairs for value in pair), default=0.0)
    alpha = found.declaration.verdict.alpha
    return paired_t([b - a for a, b in pairs], alpha, scale=scale, items_variance=answers)


@once
def new_problems(found: Source) -> dict[str, TwoWay]:
    """Per treatment its difference to the baseline on the primary benchmark with the interval that also holds for
    other problems of the kind; treatments without a finished pair are left out."""
    declared = found.declaration
    primary = in_training(found, declared.primary)
    blocks = {} if primary is None else answered(found, primary, list(declared.arms), decision(found).seeds)
    others = {arm: block for arm, block in blocks.items() if arm != declared.baseline and declared.baseline in blocks}
    parts = {arm: noise(blocks[declared.baseline], block, arm, declared.verdict.alpha) for arm, block in others.items()}
    return {arm: part.crossed for arm, part in parts.items() if part is not None}


@once
def ranked(found: Source) -> Ranking | None:
    """All arms on the seeds that decide; None for two arms, whose verdict says it, for a sweep, and where anything but
    too few seeds forbids a word on any arm."""
    decided, declared = decision(found), found.declaration
    verdicts = decided.verdicts.values()
    if len(verdicts) < 2 or any(verdict.barred for verdict in verdicts) or not decided.matched.ok:
        return None
    final = {(one.arm, one.seed): one.final for one in decided.ended if one.final is not None}
    scores = {arm: [final[arm, seed] for seed in decided.seeds] for arm in declared.arms}
    better = {arm: one.better for arm, one in decided.verdicts.items() if one.better is not None}
    resolved = [(one, decided.baseline if one == arm else arm) for arm, one in better.items()]

    def variance(first: str, second: str) -> float | None:
        return answers_variance(found, first, second, decided.seeds)

    return ranking(scores, declared.verdict.alpha, variance, resolved)
