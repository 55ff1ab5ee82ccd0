"""The table that decides: a row per arm, its interval drawn over the margin, and any arm as the
baseline by a click."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gspo_lab.analysis.findings.answer import StudyAnswer
from gspo_lab.analysis.findings.clip_fractions import NO_CLIP, clips, rule_arms
from gspo_lab.analysis.findings.decision import against as against_of
from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.reference_levels import score_levels
from gspo_lab.analysis.findings.run_outcomes import RunOutcome, outcomes
from gspo_lab.analysis.findings.stability import stability_verdicts
from gspo_lab.analysis.readings import Source, average, summarise
from gspo_lab.analysis.readings.reading import CLIP, DEVICE_SECONDS, PEAK_MEMORY
from gspo_lab.analysis.stats import Verdict
from gspo_lab.common.text import level
from gspo_lab.report.formats import NONE, NOT_MEASURED, format_number, percent
from gspo_lab.report.views.drawing import Drawing, count_unstable, half_width
from gspo_lab.report.views.verdicts import tone
from gspo_lab.study.contrast import formula, sides


@dataclass(frozen=True)
class ArmRow:
    """One arm below the answer, or a declared contrast, which has no numbers of its own."""

    subject: str
    opponent: str
    """What it is compared with, where that is not the table's baseline."""
    is_arm: bool
    start: float | None
    best: float | None
    final: float | None
    unstable: str
    clipped: str
    spent: str
    difference: Drawing | None = None
    word: str = ""
    tone: str = ""

    @property
    def baseline(self) -> bool:
        """Whether all others are compared with it."""
        return not self.word

    @property
    def scores(self) -> str:
        """Its scores as text, those that were measured."""
        if not self.is_arm:
            return NONE
        measured = [score for score in (self.start, self.best, self.final) if score is not None]
        return ", ".join(map(format_number, measured)) or NOT_MEASURED

    @property
    def cells(self) -> list[str]:
        """Its row without a drawing."""
        name = f"{self.subject} against {self.opponent}" if self.opponent else self.subject
        numbers = [cell or NONE for cell in (self.unstable, self.clipped, self.spent)]
        return [name, self.scores, self.difference_text, *numbers, self.word]

    @property
    def course(self) -> str:
        """The points of a small line from start over best to final, in a box of 40 x 14."""
        measured = [score for score in (self.start, self.best, self.final) if score is not None]
        if len(measured) < 3:
            return ""
        low = min(measured)
        reach = max(measured) - low or 1.0
        points = []
        for x, score in zip((2, 20, 38), measured, strict=True):
            points.append(f"{x},{12 - 10 * (score - low) / reach:.1f}")
        return " ".join(points)

    @property
    def difference_text(self) -> str:
        """Its difference where nothing is drawn."""
        if self.baseline:
            return "baseline"
        return NOT_MEASURED if self.difference is None else self.difference.text


@dataclass(frozen=True)
class ArmsTable:
    """The arms against one baseline."""

    baseline: str
    declared: bool
    caption: str
    rows: list[ArmRow]


def arm_tables(study: Source, answer: StudyAnswer) -> list[ArmsTable]:
    """One table per baseline, the declared one first; empty where no score decides. What is
    withheld is red only where the answer is."""
    if not decision(study).verdicts:
        return []
    declared = study.declaration.baseline
    tables = [_declared(study, answer)]
    for arm in study.arms:
        if arm != declared:
            tables.append(_rebased(study, arm, answer))
    return tables


def _declared(study: Source, answer: StudyAnswer) -> ArmsTable:
    """The table of the declared baseline, with the two rules' comparison and the contrast."""
    verdicts = _verdicts(study)
    pair = rule_arms(study)
    baseline = study.declaration.baseline
    if pair is not None and baseline not in pair:
        rules = _verdicts(against_of(study, pair[0]))
        verdicts += [verdict for verdict in rules if verdict.subject == pair[1]]
    contrast = decision(study).contrast
    if contrast is not None:
        verdicts.append(contrast)
    caption = _caption(study, baseline, verdicts)
    if contrast is not None:
        negative, positive = map(formula, sides(study.declaration.verdict.contrast or {}))
        caption += (
            " The last row is the declared contrast, which answers the question; the arms'"
            f" verdicts are secondary. It compares {positive} with {negative}."
        )
    return ArmsTable(baseline, True, caption, _rows(study, baseline, verdicts, answer))


def _rebased(study: Source, baseline: str, answer: StudyAnswer) -> ArmsTable:
    """The table of a baseline that a reader chose."""
    verdicts = _verdicts(against_of(study, baseline))
    caption = _caption(study, baseline, verdicts)
    caption += " This baseline was not declared: its verdicts are descriptive."
    return ArmsTable(baseline, False, caption, _rows(study, baseline, verdicts, answer))


def _verdicts(study: Source) -> list[Verdict]:
    """The verdict on every arm: on its stability where that is the question, else on its final
    score.
    """
    if study.declaration.verdict.question == "stability":
        return list(stability_verdicts(study).values())
    return list(decision(study).verdicts.values())


def _caption(study: Source, baseline: str, verdicts: Sequence[Verdict]) -> str:
    rule = study.declaration.verdict
    subject = f"Difference of final scores to {baseline}"
    if rule.question == "stability":
        subject = (
            f"By how much the drop from best, relative to the gain, is smaller than that of"
            f" {baseline}"
        )
    arms = sum(verdict.question != "contrast" for verdict in verdicts)
    shared = f"; several arms share the {100 * rule.alpha:g} % error" if arms > 1 else ""
    margin = verdicts[0].margin or rule.margin
    return (
        f"{subject}. Shaded: the margin ±{margin:.3g}. Intervals are {level(rule.alpha)} unless"
        f" another level stands beside them{shared}. Numbers of an arm:"
        f" {decision(study).runs.label()}."
    )


def _rows(
    study: Source, baseline: str, verdicts: Sequence[Verdict], answer: StudyAnswer
) -> list[ArmRow]:
    margin = verdicts[0].margin or study.declaration.verdict.margin
    tests = [verdict.paired for verdict in verdicts if verdict.paired is not None]
    ends: list[float] = []
    for verdict in verdicts:
        if verdict.paired is not None:
            ends += verdict.interval or ()
    reach = half_width(tests, margin, *ends)
    rows = [ArmRow(baseline, "", True, **_numbers(study, baseline))]
    for verdict in verdicts:
        opponent = verdict.baseline or ""
        if opponent == baseline and verdict.question != "contrast":
            opponent = ""
        word, look = _word(verdict, answer)
        subject = verdict.subject
        numbers = _numbers(study, subject)
        drawn = _drawing(verdict, reach, study.declaration.verdict.alpha)
        rows.append(
            ArmRow(
                subject,
                opponent,
                subject in study.arms,
                **numbers,
                difference=drawn,
                word=word,
                tone=look,
            )
        )
    return rows


def _word(verdict: Verdict, answer: StudyAnswer) -> tuple[str, str]:
    """The word of a verdict and its look."""
    if answer.word == "all collapsed":
        return "collapsed", str(tone(verdict))
    if verdict.word != "no verdict":
        return verdict.word, str(tone(verdict))
    word = "not yet" if answer.word == "running" else verdict.word
    return word, "against" if answer.colour == "red" else str(tone(verdict))


def _drawing(verdict: Verdict, reach: float, alpha: float) -> Drawing | None:
    paired = verdict.paired
    if paired is None or verdict.margin is None or paired.estimate is None:
        return None
    low, high = verdict.interval or (paired.low, paired.high)
    return Drawing(
        verdict.subject,
        reach,
        paired.estimate,
        low,
        high,
        paired.differences,
        verdict.margin,
        paired.reason,
        level(verdict.level) if verdict.interval and verdict.level < alpha else "",
    )


def _numbers(study: Source, subject: str) -> dict[str, Any]:
    """What the table shows of an arm; of a contrast nothing."""
    if subject not in study.arms:
        return dict.fromkeys(("start", "best", "final")) | dict.fromkeys(
            ("unstable", "clipped", "spent"), ""
        )
    seeds = decision(study).runs
    runs: list[RunOutcome] = []
    for run in outcomes(study, study.declaration.primary):
        if run.arm == subject and seeds.has(run):
            runs.append(run)
    levels = score_levels(study)[subject]
    clipped = percent(summarise(study, CLIP, subject, seeds).mean, 2)
    return {
        "start": levels.start,
        "best": levels.best,
        "final": average(run.final for run in runs),
        "unstable": count_unstable(runs),
        "clipped": clipped if clips(study.declaration, subject) else NO_CLIP,
        "spent": _spent(study, subject),
    }


def _spent(study: Source, arm: str) -> str:
    """Mean time of a run and its largest memory."""
    seeds = decision(study).runs
    seconds = summarise(study, DEVICE_SECONDS, arm, seeds).mean
    memory = summarise(study, PEAK_MEMORY, arm, seeds).largest
    if not seconds and not memory:
        return NOT_MEASURED
    size = f"memory {NOT_MEASURED}" if memory is None else f"{format_number(memory / 2**30)} GiB"
    return f"{_time(seconds)}, {size}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return NOT_MEASURED
    if seconds < 90:
        return f"{format_number(seconds)} s"
    if seconds < 5400:
        return f"{format_number(seconds / 60)} min"
    return f"{format_number(seconds / 3600)} h"
