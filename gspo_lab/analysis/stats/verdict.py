"""Verdicts on matched arms.

Report, terminal and Python all state the same `Verdict`. Only `decide_all` judges scores; `decide`
is the same for two arms. `calibration.py` measures the error rates of these functions on thousands
of simulated studies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike

from gspo_lab.analysis.stats.levels import HolmStep, fixed_sequence, nominal_level, step_down
from gspo_lab.analysis.stats.moderated import VarianceEstimate, moderated_variance
from gspo_lab.analysis.stats.paired import (
    LEAST_SEEDS,
    PairedT,
    leave_one_out,
    paired_scores,
    pairing,
)
from gspo_lab.analysis.stats.power import (
    LEAST_FOR_EQUIVALENCE,
    detectable_factor,
    sd_range,
    seeds_for_equivalence,
    seeds_needed,
)
from gspo_lab.analysis.stats.proportions import Proportion, clopper_pearson
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import (
    Integers,
    Interval,
    OptionalFloat,
    OptionalInt,
    OptionalText,
    Strings,
)
from gspo_lab.common.reason import Reason, Reasons, joined
from gspo_lab.common.text import listed

Counts = tuple[tuple[int, int], tuple[int, int]]
"""(k, n) of two arms: k of n runs."""
Question = Literal["score", "stability", "contrast", "claim"]
VerdictLabel = Literal[
    "better by more than the margin",
    "worse by more than the margin",
    "better, not shown to exceed the margin",
    "worse, not shown to exceed the margin",
    "equivalent within the margin",
    "more stable",
    "less stable",
    "equally stable",
    "supported",
    "contradicted",
    "not testable here",
    "inconclusive",
    "no verdict",
]
"""The words of verdicts: for people, programs and the .json alike."""

EQUIVALENT: Final = "equivalent within the margin"
FAVOURABLE: tuple[VerdictLabel, ...] = (
    "better by more than the margin",
    "better, not shown to exceed the margin",
    "more stable",
    "supported",
)
UNFAVOURABLE: tuple[VerdictLabel, ...] = (
    "worse by more than the margin",
    "worse, not shown to exceed the margin",
    "less stable",
    "contradicted",
)
BEYOND: tuple[VerdictLabel, ...] = (FAVOURABLE[0], UNFAVOURABLE[0])
NOT_SHOWN_BEYOND: tuple[VerdictLabel, ...] = (FAVOURABLE[1], UNFAVOURABLE[1])
UNRESOLVED: tuple[VerdictLabel, ...] = ("inconclusive", "no verdict", "not testable here")
NO_INTERVAL = "no-interval"
"""The code of the one reason that lies in the pairs themselves: they give no interval."""
ONE_SEED_TURNS = "one-seed-turns"
"""The code of the note that leaving out one seed turns the sign of the difference."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict on an arm, a contrast or a claim (`subject`), which report, terminal and Python
    state.

    `baseline` is what the subject is compared with, None for a claim. `estimate` and `interval` are
    of the subject minus the baseline, the interval at 1 - `level`. Unknown is None.
    """

    question: Question
    subject: str
    baseline: OptionalText
    word: VerdictLabel
    estimate: OptionalFloat
    interval: Interval | None
    level: float
    reasons: Reasons = ()
    margin: OptionalFloat = None
    paired: PairedT | None = None
    """The pairs of runs behind it; None for a verdict without pairs."""
    about: Reason | None = None
    """The starting models to which the verdict is limited; None: not limited."""

    @property
    def direction(self) -> int:
        """1 where the verdict favours the subject, -1 where it is against it, else 0."""
        return (self.word in FAVOURABLE) - (self.word in UNFAVOURABLE)

    @property
    def better(self) -> OptionalText:
        """The side that is better; None where that is not said."""
        return (self.baseline, None, self.subject)[self.direction + 1]

    @property
    def because(self) -> str:
        """Why the verdict is what it is, in one line; empty where nothing needs a reason."""
        return joined(self.reasons)

    @property
    def resolved(self) -> bool:
        """Whether the verdict is conclusive."""
        return self.word not in UNRESOLVED

    @property
    def withheld(self) -> bool:
        """Whether something other than its pairs withholds the verdict."""
        return self.word == "no verdict" and any(
            reason.code != NO_INTERVAL for reason in self.reasons
        )


def verdict_label(low: float, high: float, margin: float) -> VerdictLabel:
    """First match: interval beyond +-margin; inside it, also when it excludes 0; excluding 0; else
    inconclusive.
    """
    worse = high < 0
    if low > margin or high < -margin:
        return BEYOND[worse]
    if -margin < low and high < margin:
        return EQUIVALENT
    if low > 0 or worse:
        return NOT_SHOWN_BEYOND[worse]
    return "inconclusive"


@dataclass(frozen=True)
class Rule:
    """The rule that is fixed before the first step. `looks` are the numbers of seeds after which
    verdicts are given.

    With one look or none all seeds are judged once.
    """

    margin: float
    alpha: float = 0.05
    looks: Integers = ()
    power: float = 0.8
    order: Strings = ()
    """Arms tested in this order, each at the whole alpha until one fails; empty:

    Holm's step-down.
    """

    def steps(self, p_values: Sequence[OptionalFloat], arms: Sequence[str]) -> list[HolmStep]:
        """The decision on each arm, at levels that keep alpha over all of them."""
        if not self.order:
            return step_down(p_values, self.alpha, self.level)
        return fixed_sequence(
            p_values, [arms.index(arm) for arm in self.order if arm in arms], self.level(self.alpha)
        )

    def level(self, alpha: float) -> float:
        """The level of each look that keeps `alpha` over all looks."""
        return nominal_level(self.looks, alpha)


@dataclass(frozen=True)
class Scores:
    """What is known of an arm `labels[1]` and the baseline `labels[0]`: one score per run, in the
    same order of seeds.

    `items_variance` is the variance of one pair's difference due to the answers
    (`paired.items_variance`). `estimated` is the variance of a contrast by all of its arms, or of
    a difference of peaks. Of several arms `decide_all` estimates it. `collapsed` and `unstable`
    are (k, n) per arm: k of n judged runs collapsed, or were unstable in any way; None: unknown.
    `withheld_because` withholds the verdict. `unproven` names proofs of matching that some runs
    lack.
    """

    baseline: ArrayLike
    treatment: ArrayLike
    labels: tuple[str, str] = ("a", "b")
    items_variance: OptionalFloat = None
    estimated: VarianceEstimate | None = None
    collapsed: Counts | None = None
    unstable: Counts | None = None
    withheld_because: Reasons = ()
    unproven: Strings = ()


@dataclass(frozen=True, kw_only=True)
class Comparison(Verdict):
    """A verdict on the scores of pairs of runs, with all its numbers.

    `paired` has the plain 1 - alpha interval. The verdict rests on `interval`, which is wider if
    several arms or looks share alpha; if the two disagree, `notes` say so. `smallest_detectable` is
    the true difference that n seeds detect with chance `power` at the strictest level and the
    observed spread. `detectable_range` is the same at both ends of the range of the true spread.
    `family` arms are judged together. `unproven` names proofs of matching that some runs lack.
    Unknown is None.
    """

    margin: float
    paired: PairedT
    rule: Rule
    family: int
    leave_one_out: tuple[float, ...] | None
    smallest_detectable: OptionalFloat
    detectable_range: Interval | None
    collapsed: tuple[Proportion, Proportion] | None
    notes: Reasons
    unproven: Strings = ()
    unstable: Counts | None = None
    """Per arm (k, n): the unstable runs of those that could be judged. None: not known."""

    @property
    def adjusted(self) -> bool:
        """Whether the verdict rests on a wider interval than that at 1 - alpha, as it shares its
        error rate with others.
        """
        if self.interval is None or self.word == "no verdict":
            return False
        return self.level < self.alpha

    @property
    def alpha(self) -> float:
        """For each of the three statements the chance that it is untrue of any arm at any look."""
        return self.rule.alpha

    @property
    def flips(self) -> bool:
        """Whether leaving out one seed turns the sign of the difference; the headline then says
        so.
        """
        return any(mean * (self.estimate or 0.0) < 0 for mean in self.leave_one_out or ())

    @property
    def highest_unseen_rate(self) -> float:
        """The highest rate at 1 - alpha of an event that no run of an arm has shown."""
        return clopper_pearson(0, self.paired.n, 1 - self.alpha).high

    @property
    def seeds_for_margin(self) -> OptionalInt:
        """Seeds in all that would detect a true difference as large as the margin at the observed
        spread; None: unknown."""
        return self._seeds(seeds_needed)

    @property
    def seeds_for_equivalence(self) -> OptionalInt:
        """Seeds in all that would show equivalence if nothing differs, at the observed spread;
        None: unknown.
        """
        return self._seeds(seeds_for_equivalence)

    @property
    def more_seeds(self) -> OptionalInt:
        """Seeds still missing to settle the question either way: a difference of the margin, or
        none. None: unknown.

        0 beside "inconclusive": n should do, but the draw was unlucky or the true difference is
        near 0 or the margin.
        """
        needed = (self.seeds_for_margin, self.seeds_for_equivalence)
        if needed[0] is None or needed[1] is None:
            return None
        return max(0, max(needed[0], needed[1]) - self.paired.n)

    def _seeds(self, needed: Callable[..., OptionalInt]) -> OptionalInt:
        sd = self.paired.spread
        if not sd:
            return None
        level = strictest(self.rule, self.family)
        return needed(sd, self.margin, level, self.rule.power, self.paired.variance_rule)


def strictest(rule: Rule, family: int) -> float:
    """The level that a difference of one of `family` arms must pass when no other arm shows any."""
    return rule.level(rule.alpha / max(1, 1 if rule.order else family))


def decide(
    y_a: ArrayLike,
    y_b: ArrayLike,
    margin: float,
    alpha: float = 0.05,
    labels: tuple[str, str] = ("a", "b"),
    *,
    items_variance: OptionalFloat = None,
    withheld_because: Sequence[Reason] = (),
    unproven: Sequence[str] = (),
) -> Comparison:
    """`decide_all` for a study of two arms and no looks: arm b against arm a, the baseline."""
    scores = Scores(
        y_a,
        y_b,
        labels,
        items_variance,
        withheld_because=tuple(withheld_because),
        unproven=tuple(unproven),
    )
    return decide_all([scores], Rule(margin, alpha))[0]


def decide_all(arms: Sequence[Scores], rule: Rule) -> list[Comparison]:
    """Judge each arm against the baseline, all arms as one family.

    d_s = y_b,s - y_a,s; a t whose variance is at least that of the answers alone, and is estimated
    from all arms where there are several (`moderated.py`). Three
    statements are tested of each arm: the difference lies beyond the margin; the arms are
    equivalent (the whole interval inside the margin, from five pairs on); there is a difference.
    Holm's rule keeps the chance that a statement is untrue of any arm below alpha, over all
    declared looks too. The first statement that passes is the verdict.

    It is "no verdict" for reasons of the caller (certificate mismatch, runs missing), for n
    < 3, and for differences without any spread. `unproven` does not change it; the sentence names
    it. LabError for missing values: callers carry or impute the scores of collapsed runs.
    """
    if not rule.margin > 0:
        raise LabError(
            f"margin is {rule.margin}; without a margin above 0 nothing can be called equivalent"
        )
    judged = [
        paired_scores(
            arm.baseline,
            arm.treatment,
            rule.alpha,
            arm.labels,
            items_variance=arm.items_variance,
            estimated=estimated,
        )
        for arm, estimated in zip(arms, _estimates(arms), strict=True)
    ]
    tested = [
        None if scores.withheld_because else paired
        for scores, paired in zip(arms, judged, strict=True)
    ]
    enough = [paired if paired and paired.n >= LEAST_FOR_EQUIVALENCE else None for paired in tested]
    steps = [
        rule.steps(p_values, [scores.labels[1] for scores in arms])
        for p_values in (
            [
                None if paired is None else paired.p_of_margin(rule.margin, beyond=True)
                for paired in tested
            ],
            [
                None if paired is None else paired.p_of_margin(rule.margin, beyond=False)
                for paired in enough
            ],
            [None if paired is None else paired.p for paired in tested],
        )
    ]
    verdicts = [
        _verdict(scores, paired, arm_steps, rule, len(arms))
        for scores, paired, arm_steps in zip(arms, judged, zip(*steps, strict=True), strict=True)
    ]
    return _stop_in_declared_order(verdicts, rule.order)


def _estimates(arms: Sequence[Scores]) -> list[VarianceEstimate | None]:
    """Per arm the variance of its differences by all arms that may have a verdict; None where its
    own pairs estimate it.

    These arms have all seeds in common with the baseline, so that their scores make one table.
    """
    counted = [arm for arm in arms if not arm.withheld_because]
    estimated = [arm.estimated for arm in arms]
    if any(estimated) or len(counted) < 2:
        return estimated
    if len({np.shape(arm.treatment) for arm in counted}) > 1:
        return estimated
    scores_AS = np.asarray(
        [counted[0].baseline, *(arm.treatment for arm in counted)], dtype=np.float64
    )
    if not all(np.array_equal(arm.baseline, scores_AS[0]) for arm in counted):
        return estimated
    moderated = {
        id(arm): moderated_variance(scores_AS, 0, place)
        for place, arm in enumerate(counted, start=1)
    }
    return [moderated.get(id(arm)) for arm in arms]


def _stop_in_declared_order(verdicts: list[Comparison], order: Sequence[str]) -> list[Comparison]:
    """Verdicts with the reason of those that are inconclusive because an earlier arm of the
    declared order is: their own interval may exclude 0.
    """
    by_arm = {verdict.subject: verdict for verdict in verdicts}
    stopped = next((arm for arm in order if arm in by_arm and not by_arm[arm].resolved), None)
    behind = order[order.index(stopped) + 1 :] if stopped else ()
    text = f"{stopped}, which the declared order tests before it, is inconclusive"
    why = (Reason("stopped-before", text),)
    return [
        (
            replace(verdict, reasons=why)
            if verdict.subject in behind and verdict.word == "inconclusive"
            else verdict
        )
        for verdict in verdicts
    ]


def _verdict(
    scores: Scores, paired: PairedT, steps: Sequence[HolmStep], rule: Rule, family: int
) -> Comparison:
    word, level, aside = _word(paired, steps, rule.margin)
    if scores.withheld_because or paired.low is None:
        word = "no verdict"
    detectable, between = _detectable(paired, strictest(rule, family), rule.power)
    left_out = leave_one_out(paired.differences)
    reasons = (
        *scores.withheld_because,
        *([Reason(NO_INTERVAL, paired.reason)] if paired.reason else []),
    )
    return Comparison(
        question="score",
        subject=scores.labels[1],
        baseline=scores.labels[0],
        word=word,
        estimate=paired.estimate,
        interval=paired.interval(level),
        level=level,
        reasons=reasons,
        margin=rule.margin,
        paired=paired,
        rule=rule,
        family=family,
        leave_one_out=left_out,
        smallest_detectable=detectable,
        detectable_range=between,
        collapsed=scores.collapsed
        and (
            clopper_pearson(*scores.collapsed[0], 1 - rule.alpha),
            clopper_pearson(*scores.collapsed[1], 1 - rule.alpha),
        ),
        notes=(
            *aside,
            *_notes(
                word,
                paired,
                level,
                rule,
                family,
                pairing(scores.baseline, scores.treatment),
                left_out,
            ),
        ),
        unproven=scores.unproven,
        unstable=scores.unstable,
    )


def _detectable(
    paired: PairedT, level: float, power: float
) -> tuple[OptionalFloat, Interval | None]:
    """The smallest true difference that is detected, at the observed spread and at both ends of the
    range of the true one.
    """
    spread = paired.spread
    sd = paired.estimated_sd
    if not spread or sd is None or paired.n < LEAST_SEEDS:
        return None, None
    variance_rule = paired.variance_rule
    factor = detectable_factor(paired.n, level, power, variance_rule)
    least = paired.items_sd or 0.0
    low, high = sd_range(sd, variance_rule.sampled_degrees(paired.n))
    return factor * spread, (factor * max(low, least), factor * max(high, least))


def _word(
    paired: PairedT, steps: Sequence[HolmStep], margin: float
) -> tuple[VerdictLabel, float, Reasons]:
    """The first statement that passes, with its level; if none passes, the strictest level at which
    one failed.

    "Better" may pass at a laxer level than the earlier statements failed at, with an interval
    beyond or inside the margin there. Then it is read at the level of an earlier statement. If 0 is
    inside that interval, a note says so.
    """
    worse = (paired.estimate or 0.0) < 0
    words: tuple[VerdictLabel, VerdictLabel, VerdictLabel] = (
        BEYOND[worse],
        EQUIVALENT,
        NOT_SHOWN_BEYOND[worse],
    )
    for word, step in zip(words, steps, strict=True):
        if step.rejected:
            levels = (step.level, *(later.level for later in steps))
            read = [
                verdict_label(*(paired.interval(level) or (0.0, 0.0)), margin) for level in levels
            ]
            if word in read:
                return word, levels[read.index(word)], ()
            if read[0] == EQUIVALENT and paired.n < LEAST_FOR_EQUIVALENCE:
                return word, step.level, ()  # the note on too few pairs says it
            needed = steps[words.index(read[0])].level
            text = (
                f"this interval alone reads '{read[0]}', but with arms and looks counted in that"
                f" must pass p < {needed:.3g}"
            )
            return word, step.level, (Reason("reads-otherwise-alone", text),)
    return "inconclusive", min(step.level for step in steps), ()


def _notes(
    word: VerdictLabel,
    paired: PairedT,
    level: float,
    rule: Rule,
    family: int,
    correlation: OptionalFloat,
    left_out: tuple[float, ...] | None,
) -> Reasons:
    notes = []
    if any(mean * (paired.estimate or 0.0) < 0 for mean in left_out or ()):
        text = "leaving out one seed turns the sign of the difference"
        notes.append(Reason(ONE_SEED_TURNS, text))
    if word == EQUIVALENT and paired.p is not None and paired.p < level:
        text = "the interval excludes 0: there is a difference, and it is smaller than the margin"
        notes.append(Reason("difference-within-margin", text))
    if correlation is not None and correlation <= 0:
        text = "pairing by seed did not help: the arms are not positively correlated over seeds"
        notes.append(Reason("pairing-did-not-help", text))
    if word == "no verdict" or paired.low is None or paired.high is None:
        return tuple(notes)
    if level < rule.alpha:
        sharing = [f"{family} arms"] if family > 1 else []
        if len(rule.looks) > 1:
            sharing.append(f"{len(rule.looks)} declared looks")
        text = f"{listed(sharing)} share alpha = {rule.alpha:g}: the verdict needs p < {level:.3g}"
        notes.append(Reason("alpha-is-shared", text))
    if paired.items_sd is None:
        text = "no answers are stored: the sampling sd is not known, and no part of the interval"
        notes.append(Reason("no-answers-stored", text))
    plain = verdict_label(paired.low, paired.high, rule.margin)
    if paired.n < LEAST_FOR_EQUIVALENCE and plain == EQUIVALENT:
        text = (
            f"the interval lies inside the margin, but fewer than {LEAST_FOR_EQUIVALENCE} pairs"
            " cannot show equivalence"
        )
        notes.append(Reason("few-pairs", text))
    return tuple(notes)
