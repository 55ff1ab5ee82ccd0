"""Stability as an answer: which arm's runs lose less of what they had, each arm against the baseline."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gspo_lab.findings.answered import answers_variance
from gspo_lab.findings.decision import decision
from gspo_lab.findings.outcomes import NOT_JUDGED, RunOutcome, outcomes
from gspo_lab.findings.starting import about
from gspo_lab.readings import Source, once
from gspo_lab.stats import PairedT
from gspo_lab.stats.binary import Proportion, clopper_pearson, fisher_p
from gspo_lab.stats.stability import RunPairs, Runs, StabilityWord, decide_stability
from gspo_lab.stats.verdict import Rule, Verdict


@dataclass(frozen=True)
class Steadiness:
    """An arm `labels[1]` against the baseline `labels[0]`.

    `word`, `reason`, `lost`, `points`, `final` and `drops` are those of `stats.stability.StabilityVerdict`. `fell` are
    the runs of each that collapsed, fell back or ended below half of their best score, of those that could be judged,
    with their intervals at 1 - alpha. `p` is Fisher's of the two counts: it describes, and decides nothing.
    """

    labels: tuple[str, str]
    word: StabilityWord
    reason: str | None
    fell: tuple[Proportion, Proportion]
    p: float | None
    lost: Verdict
    points: PairedT
    final: PairedT
    drops: tuple[tuple[float, float], tuple[float, float]]

    @property
    def sentence(self) -> str:
        """The word with what it rests on, for people."""
        first, second = self.labels
        if self.word == "withheld":
            return f"No answer on {second} against {first}: {self.lost.reason}."
        if self.word == "not resolved":
            why = f": {self.reason}" if self.reason else ""
            return f"Whether {second} or {first} is more stable is not resolved{why}."
        return f"{second} is {self.word} {'as' if self.word == 'as stable' else 'than'} {first}{self.lost.about}."

    @property
    def counts(self) -> str:
        """How many runs of each fell, the arm first."""
        first, second = self.fell
        return f"{second.k} of {second.n} runs of {self.labels[1]} fell, {first.k} of {first.n} of {self.labels[0]}"

    def to_json(self) -> dict[str, Any]:
        """Plain data, as the report's JSON has it."""
        relative, points = self.lost.paired, self.points
        return {
            "word": self.word,
            "sentence": self.sentence,
            "reason": self.reason,
            "fell": [list(proportion) for proportion in self.fell],
            "p": self.p,
            "loses_less": {
                "estimate": relative.estimate,
                "low": relative.low,
                "high": relative.high,
                "margin": self.lost.margin,
                "word": self.lost.word,
            },
            "loses_less_points": {"estimate": points.estimate, "low": points.low, "high": points.high},
            "final": {"estimate": self.final.estimate, "low": self.final.low, "high": self.final.high},
        }


@dataclass(frozen=True)
class Regime:
    """Whether the study went where runs can fall: the runs of the seeds that decide."""

    judged: int
    collapsed: int
    fell: int
    finished: int

    @property
    def reached(self) -> bool:
        """Whether any run fell."""
        return self.fell > 0

    @property
    def all_collapsed(self) -> bool:
        """Whether no arm has a run that stood."""
        return 0 < self.finished == self.collapsed

    def told(self, level: float | None) -> str:
        """The counts for people; with a `level`, of runs that all stood, how many may fall all the same."""
        if not self.judged:
            return f"whether runs fell is {NOT_JUDGED}: too few evaluations and training steps"
        if self.fell:
            for_good = f", {self.collapsed} of them for good" if self.collapsed else ""
            return f"{self.fell} of {self.judged} runs fell{for_good}"
        rest = self.finished - self.judged
        none = f"none of {self.judged} runs fell{f', {rest} {NOT_JUDGED}' if rest else ''}"
        if level is None:
            return none
        return f"{none} (up to {100 * clopper_pearson(0, self.judged, level).high:.0f} % still might)"


@once
def regime(found: Source) -> Regime:
    """Counts of the finished runs of the seeds that decided."""
    ended = outcomes(found, found.declaration.primary or "")
    finished = [run for run in ended if decision(found).runs.has(run)]
    judged = [one for one in finished if one.fall_judged]
    return Regime(len(judged), sum(one.collapsed for one in judged), sum(one.fell for one in judged), len(finished))


@once
def steadiness(found: Source) -> dict[str, Steadiness]:
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
        forbidden = verdict.word == "withheld" and verdict.reason != verdict.paired.reason
        variance = answers_variance(found, baseline, arm, both)
        because = (str(verdict.reason),) if forbidden else ()
        pairs.append(RunPairs(first, second, (baseline, arm), variance, because))
    judged = decide_stability(pairs, Rule(declared.verdict.margin, alpha))
    out = {}
    for pair, stable in zip(pairs, judged, strict=True):
        counts = pair.first.unstable, pair.second.unstable
        out[pair.labels[1]] = Steadiness(
            pair.labels,
            stable.word,
            stable.reason,
            (clopper_pearson(*counts[0], 1 - alpha), clopper_pearson(*counts[1], 1 - alpha)),
            None if pair.withheld_because else fisher_p(*counts),
            replace(stable.lost, about=about(declared)),
            stable.points,
            stable.final,
            stable.drops,
        )
    return out


def _runs(ended: Sequence[RunOutcome]) -> Runs:
    judged = [run.fell for run in ended if run.fall_judged]
    best, final, start = (
        [math.nan if score is None else score for score in scores]
        for scores in ([run.best for run in ended], [run.final for run in ended], [run.start for run in ended])
    )
    return Runs(best, final, start, (sum(judged), len(judged)))
