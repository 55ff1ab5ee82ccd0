"""Stability as an answer: which arm's runs lose less of what they had, each arm against the baseline."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gspo_lab.findings.decision import decision
from gspo_lab.findings.matched import about
from gspo_lab.findings.outcomes import RunOutcome, outcomes
from gspo_lab.readings import Source, once
from gspo_lab.readings.answers import answers_variance
from gspo_lab.stats.stability import RunPairs, Runs, StabilityVerdict, decide_stability
from gspo_lab.stats.verdict import Rule, Verdict


@dataclass(frozen=True)
class UnstableRunCounts:
    """Whether the study went where runs become unstable: the runs of the seeds that decide.

    `by_reward` of the `judged` have enough training steps for their reward; the others are judged by scores alone.
    """

    judged: int
    by_reward: int
    collapsed: int
    fell: int
    finished: int

    @property
    def reached(self) -> bool:
        """Whether any run was unstable."""
        return self.fell > 0

    @property
    def all_collapsed(self) -> bool:
        """Whether every run collapsed, in every arm."""
        return 0 < self.finished == self.collapsed


@once
def regime(found: Source) -> UnstableRunCounts:
    """Counts of the finished runs of the seeds that decided."""
    ended = outcomes(found, found.declaration.primary)
    finished = [run for run in ended if decision(found).runs.has(run)]
    judged = [run for run in finished if run.fall_judged]
    by_reward, collapsed, fell = (sum(getattr(run, what) for run in judged) for what in ("judged", "collapsed", "fell"))
    return UnstableRunCounts(len(judged), by_reward, collapsed, fell, len(finished))


@once
def steadiness(found: Source) -> dict[str, StabilityVerdict]:
    """Every arm but the baseline by the declared rule (`stats.stability`); empty where no score decides.

    That anything could fall is the regime's to say.
    """
    declared, decided = found.declaration, decision(found)
    baseline, alpha = declared.baseline, declared.verdict.alpha
    by_arm = {arm: [run for run in decided.ended if run.arm == arm] for arm in (baseline, *decided.verdicts)}
    pairs = []
    for arm, verdict in decided.verdicts.items():
        ends = [{run.seed: run for run in by_arm[name] if run.lost is not None} for name in (baseline, arm)]
        both = [seed for seed in decided.seeds if all(seed in of for of in ends)]
        first, second = (_runs([of[seed] for seed in both]) for of in ends)
        variance = answers_variance(found, baseline, arm, both)
        because = verdict.reasons if verdict.barred else ()
        pairs.append(RunPairs(first, second, (baseline, arm), variance, because))
    judged = decide_stability(pairs, Rule(declared.verdict.margin, alpha))
    return {verdict.subject: replace(verdict, about=about(declared)) for verdict in judged}


def verdicts(found: Source) -> Mapping[str, Verdict]:
    """Per arm the verdict on the declared question, which every surface states; of claims those of the scores."""
    decided = decision(found)
    if found.declaration.verdict.question == "stability":
        return steadiness(found)
    return decided.verdicts if decided.contrast is None else {decided.contrast.subject: decided.contrast}


def _runs(ended: Sequence[RunOutcome]) -> Runs:
    judged = [run.fell for run in ended if run.fall_judged]
    best, final, start = (
        [math.nan if score is None else score for score in scores]
        for scores in ([run.best for run in ended], [run.final for run in ended], [run.start for run in ended])
    )
    return Runs(best, final, start, (sum(judged), len(judged)))
