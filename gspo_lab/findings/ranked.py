"""Which arms may be the best by the score that decides, where there are three arms or more."""

from gspo_lab.findings.answered import answers_variance
from gspo_lab.findings.decision import decision
from gspo_lab.readings import Source, once
from gspo_lab.stats.ranking import Ranking, ranking


@once
def ranked(found: Source) -> Ranking | None:
    """All arms on the seeds that decide; None for two arms, whose verdict says it, for a sweep, and where anything but
    too few seeds forbids a word on any arm."""
    decided, declared = decision(found), found.declaration
    verdicts = decided.verdicts.values()
    barred = any(one.word == "withheld" and one.reason != one.paired.reason for one in verdicts)
    if len(verdicts) < 2 or barred or not decided.matched.ok:
        return None
    final = {(one.arm, one.seed): one.final for one in decided.ended if one.final is not None}
    scores = {arm: [final[arm, seed] for seed in decided.seeds] for arm in declared.arms}
    return ranking(scores, declared.verdict.alpha, lambda a, b: answers_variance(found, a, b, decided.seeds))
