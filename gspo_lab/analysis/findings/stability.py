"""Stability as an answer: each arm's drop from its best score against the baseline's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.matched import starting_models
from gspo_lab.analysis.findings.run_outcomes import NOT_JUDGED, RunOutcome, outcomes
from gspo_lab.analysis.readings import Source, once
from gspo_lab.analysis.readings.answers import answers_variance
from gspo_lab.analysis.stats.proportions import clopper_pearson
from gspo_lab.analysis.stats.stability import ArmRuns, RunPairs, StabilityVerdict, decide_stability
from gspo_lab.analysis.stats.verdict import Rule, Verdict
from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.common.text import counted, percent


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

    @property
    def reached(self) -> bool:
        """Whether any run was unstable."""
        return self.unstable > 0

    @property
    def all_collapsed(self) -> bool:
        """Whether every run collapsed, in every arm."""
        return 0 < self.finished == self.collapsed

    def sentence(self, level: OptionalFloat = None) -> str:
        """The counts; with a `level`, of runs that were all stable, the interval of their rate."""
        if not self.judged:
            return (
                f"Whether runs were unstable is {NOT_JUDGED}: too few evaluations and training"
                " steps."
            )
        if self.unstable:
            collapsed = f", {self.collapsed} of them collapsed" if self.collapsed else ""
            was = "was" if self.unstable == 1 else "were"
            return f"{self.unstable} of {counted(self.judged, 'run')} {was} unstable{collapsed}."
        # Without `by_reward` the training steps are too few to judge the reward.
        who = "None" if self.by_reward else "By scores alone, none"
        unjudged = self.finished - self.judged
        aside = f", {unjudged} {NOT_JUDGED}" if unjudged else ""
        none = f"{who} of {counted(self.judged, 'run')} was unstable{aside}"
        if level is None:
            return f"{none}."
        high = clopper_pearson(0, self.judged, level).high
        return f"{none} ({percent(level)} interval of the rate: 0 to {percent(high)})."


@once
def count_unstable_runs(source: Source) -> UnstableRunCounts:
    """Counts of the finished runs of the deciding seeds."""
    ended = outcomes(source, source.declaration.primary)
    finished = [run for run in ended if decision(source).runs.has(run)]
    judged = [run for run in finished if run.stability_judged]
    counts = {name: sum(getattr(run, name) for run in judged) for name in ("collapsed", "unstable")}
    return UnstableRunCounts(
        len(judged), sum(run.judged for run in judged), **counts, finished=len(finished)
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
        because = verdict.reasons if verdict.barred else ()
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
