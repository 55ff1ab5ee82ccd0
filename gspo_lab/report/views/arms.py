"""The table that decides: a row per arm, its interval drawn over the margin, and any arm as the
baseline by a click."""

from collections.abc import Sequence
from dataclasses import dataclass

from gspo_lab.analysis.findings.answer import StudyAnswer
from gspo_lab.analysis.findings.clip_fractions import NO_CLIP, clips, rule_arms
from gspo_lab.analysis.findings.decision import decision, with_baseline
from gspo_lab.analysis.findings.reference_levels import score_levels
from gspo_lab.analysis.findings.run_outcomes import NOT_JUDGED, RunOutcome, outcomes
from gspo_lab.analysis.findings.stability import stability_verdicts
from gspo_lab.analysis.readings import Source, average, summarise
from gspo_lab.analysis.readings import runs as runs_of
from gspo_lab.analysis.readings.curves import grader_errors
from gspo_lab.analysis.readings.reading import CLIP, CLIP_GRADIENT, DEVICE_SECONDS, PEAK_MEMORY
from gspo_lab.analysis.stats import Verdict, paired_t
from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.common.text import level
from gspo_lab.report.templating import (
    NONE,
    NOT_MEASURED,
    NOT_RECORDED,
    format_number,
    percent,
    statement,
)
from gspo_lab.report.views.drawing import Drawing, drawing, half_width
from gspo_lab.report.views.verdicts import tone
from gspo_lab.report.views.view import PageOnly
from gspo_lab.study.contrast import formula, sides

COLUMNS = (
    "arm",
    "score: start, best, final",
    "difference",
    "unstable",
    "clipped: tokens, gradient",
    "time, memory",
    "verdict",
)
CLIPPED = (
    "Clipped: the share of the tokens, then of the gradient, that the clip takes on mini-batches"
    " ≥ 1. A token that is nearly certain has almost no gradient, so the two may differ much."
)


@dataclass(frozen=True)
class ArmNumbers:
    """One arm over the seeds that count; its runs and scores by seed are of all seeds. None: not
    measured.
    """

    runs: int
    """Planned runs."""
    finished: int
    counted: PageOnly[int]
    """Finished runs of the seeds that count."""
    start: OptionalFloat
    best: OptionalFloat
    final: OptionalFloat
    by_seed: dict[int, OptionalFloat]
    """Final score by seed; of an unfinished run its latest score."""
    unstable: int
    judged: int
    """Runs long enough to say whether they were unstable."""
    clips: bool
    """Whether the arm's loss has a clip."""
    clipped: OptionalFloat
    clipped_gradient: OptionalFloat
    seconds: OptionalFloat
    memory: OptionalFloat
    """Largest memory of a run, in bytes."""
    not_graded: OptionalFloat
    """Share of training responses on which the grader failed."""

    @property
    def levels(self) -> list[float]:
        """Its scores at the start, at their best and at the end, those that were measured."""
        return [score for score in (self.start, self.best, self.final) if score is not None]

    @property
    def scores(self) -> str:
        """The three levels as text, each in its place."""
        if not self.levels:
            return NOT_MEASURED
        return ", ".join(map(format_number, (self.start, self.best, self.final)))

    @property
    def course(self) -> str:
        """The points of a small line from start over best to final, in a box of 40 x 14."""
        if len(self.levels) < 3:
            return ""
        low = min(self.levels)
        reach = max(self.levels) - low or 1.0
        points = []
        for x, score in zip((2, 20, 38), self.levels, strict=True):
            points.append(f"{x},{12 - 10 * (score - low) / reach:.1f}")
        return " ".join(points)

    @property
    def unstable_text(self) -> str:
        """How many runs were unstable, of those that could be judged."""
        return f"{self.unstable} of {self.judged}" if self.judged else NOT_JUDGED

    @property
    def clipped_text(self) -> str:
        """The share of tokens that was clipped, then the share of the gradient."""
        if not self.clips:
            return NO_CLIP
        gradient = NOT_RECORDED
        if self.clipped_gradient is not None:
            gradient = percent(self.clipped_gradient, 2)
        return f"{percent(self.clipped, 2)}, {gradient}"

    @property
    def spent(self) -> str:
        """Mean time of a run and its largest memory."""
        if not self.seconds and not self.memory:
            return NOT_MEASURED
        size = f"memory {NOT_MEASURED}"
        if self.memory is not None:
            size = f"{format_number(self.memory / 2**30)} GiB"
        return f"{_time(self.seconds)}, {size}"


@dataclass(frozen=True)
class ArmRow:
    """One arm below the answer, or a declared contrast, which has no numbers of its own."""

    subject: str
    opponent: str
    """What it is compared with, where that is not the table's baseline."""
    numbers: ArmNumbers | None
    difference: Drawing | None = None
    word: str = ""
    tone: str = ""
    baseline: bool = False
    """Whether others are compared with it."""

    @property
    def cells(self) -> list[str]:
        """Its row without a drawing."""
        name = f"{self.subject} against {self.opponent}" if self.opponent else self.subject
        arm = self.numbers
        if arm is None:
            return [name, NONE, self.difference_text, NONE, NONE, NONE, self.word]
        numbers = [arm.unstable_text, arm.clipped_text, arm.spent]
        return [name, arm.scores, self.difference_text, *numbers, self.word]

    @property
    def difference_text(self) -> str:
        """Its difference where nothing is drawn."""
        if self.baseline:
            return "baseline"
        return NOT_MEASURED if self.difference is None else self.difference.text


@dataclass(frozen=True)
class ArmsTable:
    """The arms against one baseline; of a sweep every value, without time and verdict."""

    baseline: str
    declared: bool
    caption: str
    rows: list[ArmRow]
    of_sweep: bool = False

    @property
    def columns(self) -> Sequence[str]:
        """The titles of its columns."""
        return COLUMNS[:5] if self.of_sweep else COLUMNS


def arm_tables(study: Source, answer: StudyAnswer) -> list[ArmsTable]:
    """One table per baseline, the declared one first; empty where no score decides. What is
    withheld is red only where the answer is."""
    if not decision(study).verdicts:
        swept = study.declaration.sweep is not None and study.declaration.primary is not None
        return [_swept(study)] if swept else []
    declared = study.declaration.baseline
    tables = [_declared_table(study, answer)]
    for arm in study.arms:
        if arm != declared:
            tables.append(_rebased_table(study, arm, answer))
    return tables


def _swept(study: Source) -> ArmsTable:
    """The table of a sweep: every arm at every value, beside the baseline at that value."""
    declared = study.declaration
    baseline = declared.verdict.baseline or declared.families[0]
    of_baseline = {arm.dose: name for name, arm in declared.arms.items() if arm.of == baseline}
    ended = outcomes(study, declared.primary)
    final = {(run.arm, run.seed): run.final for run in ended if decision(study).runs.has(run)}
    tests = {}
    for name, arm in declared.arms.items():
        apart = []
        for seed in decision(study).seeds:
            score = final.get((name, seed))
            other = final.get((of_baseline.get(arm.dose, ""), seed))
            if score is not None and other is not None:
                apart.append(score - other)
        if arm.of != baseline:
            tests[name] = paired_t(apart)
    reach = half_width(tests.values())
    rows = []
    for name, numbers in arm_numbers(study).items():
        drawn = None
        if name in tests:
            drawn = drawing(tests[name], name, reach, declared.verdict.margin)
        rows.append(ArmRow(name, "", numbers, drawn, baseline=drawn is None))
    caption = (
        f"{CLIPPED} Difference of final scores to {baseline} at the same value: {level(0.05)}"
        f" intervals, each by itself, without a verdict. Shaded: the margin"
        f" ±{declared.verdict.margin:.3g}. Numbers of an arm: {decision(study).runs.label()}."
    )
    return ArmsTable(baseline, True, caption, rows, of_sweep=True)


def _declared_table(study: Source, answer: StudyAnswer) -> ArmsTable:
    """The table of the declared baseline, with the two rules' comparison and the contrast."""
    verdicts = _verdicts(study)
    pair = rule_arms(study)
    baseline = study.declaration.baseline
    if pair is not None and baseline not in pair:
        rules = _verdicts(with_baseline(study, pair[0]))
        verdicts += [verdict for verdict in rules if verdict.subject == pair[1]]
    contrast = decision(study).contrast
    if contrast is not None:
        verdicts.append(contrast)
    rule = study.declaration.verdict
    caption = statement("arms_caption", rule, baseline, verdicts, decision(study).runs.label())
    if contrast is not None:
        negative, positive = map(formula, sides(study.declaration.verdict.contrast or {}))
        caption += (
            " The last row is the declared contrast, which answers the question; the arms'"
            f" verdicts are secondary. It compares {positive} with {negative}."
        )
    return ArmsTable(
        baseline, True, f"{CLIPPED} {caption}", _rows(study, baseline, verdicts, answer)
    )


def _rebased_table(study: Source, baseline: str, answer: StudyAnswer) -> ArmsTable:
    """The table of a baseline that a reader chose."""
    verdicts = _verdicts(with_baseline(study, baseline))
    rule = study.declaration.verdict
    caption = statement("arms_caption", rule, baseline, verdicts, decision(study).runs.label())
    caption += " This baseline was not declared: its verdicts are descriptive."
    return ArmsTable(
        baseline, False, f"{CLIPPED} {caption}", _rows(study, baseline, verdicts, answer)
    )


def _verdicts(study: Source) -> list[Verdict]:
    """The verdict on every arm: on its stability where that is the question, else on its final
    score.
    """
    if study.declaration.verdict.question == "stability":
        return list(stability_verdicts(study).values())
    return list(decision(study).verdicts.values())


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
    arms = arm_numbers(study)
    rows = [ArmRow(baseline, "", arms[baseline], baseline=True)]
    for verdict in verdicts:
        opponent = verdict.baseline or ""
        if opponent == baseline and verdict.question != "contrast":
            opponent = ""
        word, look = _word(verdict, answer)
        drawn = _drawing(verdict, reach, study.declaration.verdict.alpha)
        subject = verdict.subject
        rows.append(ArmRow(subject, opponent, arms.get(subject), drawn, word, look))
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


def arm_numbers(study: Source) -> dict[str, ArmNumbers]:
    """The numbers of every arm, in the order of the arms."""
    seeds = decision(study).runs
    planned = len(study.declaration.seeds) if study.declaration.recorded is None else 0
    levels = score_levels(study)
    failed = grader_errors(study)
    ended = {(run.arm, run.seed) for run in runs_of(study) if run.finished}
    members: dict[str, list[RunOutcome]] = {arm: [] for arm in study.arms}
    for run in outcomes(study, study.declaration.primary):
        members[run.arm].append(run)
    numbers = {}
    for arm, runs in members.items():
        counted = [run for run in runs if seeds.has(run)]
        judged = [run.unstable for run in counted if run.stability_judged]
        numbers[arm] = ArmNumbers(
            runs=max(planned, len(runs)),
            finished=sum((arm, run.seed) in ended for run in runs),
            counted=len(counted),
            start=levels[arm].start,
            best=levels[arm].best,
            final=levels[arm].final,
            by_seed={run.seed: run.latest if run.final is None else run.final for run in runs},
            unstable=sum(judged),
            judged=len(judged),
            clips=clips(study.declaration, arm),
            clipped=summarise(study, CLIP, arm, seeds).mean,
            clipped_gradient=summarise(study, CLIP_GRADIENT, arm, seeds).mean,
            seconds=summarise(study, DEVICE_SECONDS, arm, seeds).mean,
            memory=summarise(study, PEAK_MEMORY, arm, seeds).largest,
            not_graded=average(failed.get(f"{study.study}/{arm}/s{run.seed}") for run in counted),
        )
    return numbers


def _time(seconds: OptionalFloat) -> str:
    if seconds is None:
        return NOT_MEASURED
    if seconds < 90:
        return f"{format_number(seconds)} s"
    if seconds < 5400:
        return f"{format_number(seconds / 60)} min"
    return f"{format_number(seconds / 3600)} h"
