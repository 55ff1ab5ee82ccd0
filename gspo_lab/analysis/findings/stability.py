"""Stability as an answer: each arm's drop from its best score against the baseline's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.matched import starting_models
from gspo_lab.analysis.findings.run_outcomes import RunOutcome, outcomes
from gspo_lab.analysis.readings import Source, once
from gspo_lab.analysis.readings.answers import answers_variance
from gspo_lab.analysis.stats.proportions import clopper_pearson
from gspo_lab.analysis.stats.stability import ArmRuns, RunPairs, StabilityVerdict, decide_stability
from gspo_lab.analysis.stats.verdict import Rule, Verdict


@dataclass(frozen=True)
class UnstableRunCounts:
    """How many runs of the deciding seeds were unstable.

    `by_reward` of the `judged` have enough training steps for their reward; the others are judged
    by scores alone.
    """

    judged: int
    by_reward: int
    collapsed: int
    unstable: int
    finished: int
    alpha: float

    @property
    def reached(self) -> bool:
        """Whether any run was unstable."""
        return self.unstable > 0

    @property
    def all_collapsed(self) -> bool:
        """Whether every run collapsed, in every arm."""
        return 0 < self.finished == self.collapsed

    @property
    def unjudged(self) -> int:
        """The finished runs that are too short to be judged."""
        return self.finished - self.judged

    @property
    def highest_rate(self) -> float:
        """The upper end of the interval of the unstable rate, if all runs were stable."""
        return clopper_pearson(0, self.judged, 1 - self.alpha).high


@once
def count_unstable_runs(source: Source) -> UnstableRunCounts:
    """Counts of the finished runs of the deciding seeds."""
    ended = outcomes(source, source.declaration.primary)
    finished = [run for run in ended if decision(source).runs.has(run)]
    judged = [run for run in finished if run.stability_judged]
    counts = {name: sum(getattr(run, name) for run in judged) for name in ("collapsed", "unstable")}
    return UnstableRunCounts(
        len(judged),
        sum(run.judged for run in judged),
        **counts,
        finished=len(finished),
        alpha=source.declaration.verdict.alpha,
    )


@once
def stability_verdicts(source: Source) -> dict[str, StabilityVerdict]:
    """Each arm but the baseline by the declared rule (`stats.stability`); empty where no score
    decides.
    """
    declared = source.declaration
    decided = decision(source)
    baseline = declared.baseline
    alpha = declared.verdict.alpha
    by_arm = {
        arm: [run for run in decided.ended if run.arm == arm]
        for arm in (baseline, *decided.verdicts)
    }
    pairs = []
    for arm, verdict in decided.verdicts.items():
        ends = [
            {run.seed: run for run in by_arm[name] if run.drop is not None}
            for name in (baseline, arm)
        ]
        seeds = [seed for seed in decided.seeds if all(seed in runs for runs in ends)]
        sides = [_runs([runs[seed] for seed in seeds]) for runs in ends]
        variance = answers_variance(source, {baseline: -1, arm: 1}, seeds)
        because = verdict.reasons if verdict.withheld else ()
        pairs.append(RunPairs(sides[0], sides[1], (baseline, arm), variance, because))
    judged = decide_stability(pairs, Rule(declared.verdict.margin, alpha))
    return {
        verdict.subject: replace(verdict, about=starting_models(declared)) for verdict in judged
    }


def verdicts(source: Source) -> Mapping[str, Verdict]:
    """Per arm the verdict on the declared question; where claims are the question, that on
    scores.
    """
    decided = decision(source)
    if source.declaration.verdict.question == "stability":
        return stability_verdicts(source)
    return (
        decided.verdicts
        if decided.contrast is None
        else {decided.contrast.subject: decided.contrast}
    )


def _runs(ended: Sequence[RunOutcome]) -> ArmRuns:
    judged = [run.unstable for run in ended if run.stability_judged]
    scores = np.array([(run.best, run.final, run.start) for run in ended], dtype=np.float64)
    best, final, start = scores.reshape(-1, 3).T
    return ArmRuns(best, final, start, (sum(judged), len(judged)))
