"""Which arms may be the best by the score that decides, where there are three arms or more."""

from gspo_lab.findings.decision import decision
from gspo_lab.readings import Source, once
from gspo_lab.readings.answers import answers_variance
from gspo_lab.stats.ranking import Ranking, ranking


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
