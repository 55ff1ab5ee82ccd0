"""Stability as an answer: which arm's runs fell, and how far scores fell, each arm against the baseline."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from gspo_lab.findings.outcomes import NOT_JUDGED, RunOutcome
from gspo_lab.findings.starting import about
from gspo_lab.stats.binary import Proportion, clopper_pearson, fisher_p
from gspo_lab.stats.holm import holm
from gspo_lab.stats.verdict import Rule, Scores, Verdict, decide_all

if TYPE_CHECKING:
    from gspo_lab.findings.findings import Findings

Steady = Literal["more stable", "less stable", "as stable", "not resolved", "withheld"]


@dataclass(frozen=True)
class Steadiness:
    """An arm `labels[1]` against the baseline `labels[0]`.

    `fell` are the runs of each that collapsed, fell back or ended below half of their best score, of those that could
    be judged, with their intervals at 1 - alpha. `p` is Fisher's of the two counts, Holm's over the arms in
    `p_adjusted`: runs of one seed share their start, which makes it cautious. `lost` judges how far final scores lie
    below the best ones of their runs, with the sign turned: its difference is what the arm loses less than the
    baseline. Each of the two is held at alpha / 2.
    """

    labels: tuple[str, str]
    word: Steady
    fell: tuple[Proportion, Proportion]
    p: float | None
    p_adjusted: float | None
    lost: Verdict

    @property
    def sentence(self) -> str:
        """The word with what it rests on, for people."""
        first, second = self.labels
        if self.word == "withheld":
            return f"No answer on {second} against {first}: {self.lost.reason}."
        if self.word == "not resolved":
            return f"Whether {second} or {first} is more stable is not resolved."
        return f"{second} is {self.word} {'as' if self.word == 'as stable' else 'than'} {first}{self.lost.about}."

    @property
    def counts(self) -> str:
        """How many runs of each fell, the arm first."""
        one, other = self.fell
        return f"{other.k} of {other.n} runs of {self.labels[1]} fell, {one.k} of {one.n} of {self.labels[0]}"

    def to_json(self) -> dict[str, Any]:
        """Plain data, as the report's JSON has it."""
        paired = self.lost.paired
        return {
            "word": self.word,
            "sentence": self.sentence,
            "fell": [list(one) for one in self.fell],
            "p": self.p,
            "p_adjusted": self.p_adjusted,
            "loses_less": {"estimate": paired.estimate, "low": paired.low, "high": paired.high, "word": self.lost.word},
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


def regime(runs: Sequence[RunOutcome]) -> Regime:
    """Counts of finished runs."""
    finished = [one for one in runs if one.final is not None or one.state == "finished"]
    judged = [one for one in finished if one.fall_judged]
    return Regime(len(judged), sum(one.collapsed for one in judged), sum(one.fell for one in judged), len(finished))


def steadiness(found: "Findings") -> dict[str, Steadiness]:
    """Every arm but the baseline by the declared rule; empty where no score decides.

    More or less stable: the counts or the losses say so, and neither says the contrary. As stable: the losses are
    equivalent within the margin and as many runs fell; that anything could fall is the regime's to say.
    """
    declared, decided = found.declaration, found.decision
    baseline, half = declared.baseline, declared.verdict.alpha / 2
    by_arm = {arm: [one for one in decided.ended if one.arm == arm] for arm in (baseline, *decided.verdicts)}
    losses, counts = [], []
    for arm, verdict in decided.verdicts.items():
        first, second = (
            {one.seed: one.lost for one in by_arm[name] if one.lost is not None} for name in (baseline, arm)
        )
        both = [seed for seed in decided.seeds if seed in first and seed in second]
        forbidden = verdict.word == "withheld" and verdict.reason != verdict.paired.reason
        losses.append(
            Scores(
                [-first[seed] for seed in both],
                [-second[seed] for seed in both],
                (baseline, arm),
                found.answers_variance(baseline, arm, both),
                withheld_because=(str(verdict.reason),) if forbidden else (),
            )
        )
        counts.append((_fell(by_arm[baseline], both), _fell(by_arm[arm], both)))
    tests = [fisher_p(*both) if not one.withheld_because else None for both, one in zip(counts, losses, strict=True)]
    adjusted = holm(tests, len(tests)) if tests else []
    judged = decide_all(losses, Rule(declared.verdict.margin, half)) if losses else []
    judged = [replace(one, about=about(declared)) for one in judged]
    level = 1 - declared.verdict.alpha
    return {
        lost.labels[1]: Steadiness(
            lost.labels,
            _word(both, p_adjusted is not None and p_adjusted < half, lost),
            (clopper_pearson(*both[0], level), clopper_pearson(*both[1], level)),
            p,
            p_adjusted,
            lost,
        )
        for both, p, p_adjusted, lost in zip(counts, tests, adjusted, judged, strict=True)
    }


def _fell(runs: Sequence[RunOutcome], seeds: Sequence[int]) -> tuple[int, int]:
    """How many of an arm's judged runs fell, of how many."""
    judged = [one.fell for one in runs if one.seed in seeds and one.fall_judged]
    return sum(judged), len(judged)


def _word(counts: tuple[tuple[int, int], tuple[int, int]], apart: bool, lost: Verdict) -> Steady:
    (k, n), (other, m) = counts
    signs = {1 if k * m > other * n else -1} if apart else set()
    signs |= {1 if lost.better == lost.labels[1] else -1} if lost.better else set()
    if signs == {1}:
        return "more stable"
    if signs == {-1}:
        return "less stable"
    if not signs and lost.word == "practically equivalent" and k * m == other * n:
        return "as stable"
    return "withheld" if lost.word == "withheld" and not apart else "not resolved"
