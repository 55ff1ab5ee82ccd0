"""Why to believe the answer: what it rests on, what each verdict rests on, and the declared
rule."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.executions import all_executions
from gspo_lab.analysis.findings.matched import study_certificate
from gspo_lab.analysis.findings.paired_comparisons import new_problems
from gspo_lab.analysis.findings.paired_comparisons import ranked as ranked_of
from gspo_lab.analysis.findings.rate_curve import rate_curve
from gspo_lab.analysis.findings.run_outcomes import deciding_steps
from gspo_lab.analysis.findings.stability import count_unstable_runs
from gspo_lab.analysis.findings.stability import verdicts as verdicts_of
from gspo_lab.analysis.matching import Certificate
from gspo_lab.analysis.matching.run_pair import Match
from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.readings import runs as runs_of
from gspo_lab.analysis.readings.curves import grader_errors
from gspo_lab.analysis.stats import Comparison
from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.common.reason import sentences
from gspo_lab.common.states import State
from gspo_lab.common.text import capital, counted, last_evaluations, level
from gspo_lab.report.templating import NOT_MEASURED, between, statement, statements
from gspo_lab.report.views.calibration import stated_rates
from gspo_lab.report.views.verdicts import VerdictView, verdict_view
from gspo_lab.report.views.view import PageOnly, View
from gspo_lab.study.import_origin import ABSENT

Grade = Literal["good", "warn", "neutral"]
MARKS: dict[Grade, str] = {"good": "✓", "warn": "!", "neutral": "·"}
ENOUGH = 5
"""Pairs from which "equivalent" can be said."""
LEAST = 3
"""Pairs from which there is an interval at all."""


@dataclass(frozen=True)
class Ground:
    """One thing that the answer rests on. Good only where all that it needs was recorded."""

    name: str
    text: str
    grade: Grade
    target: str
    """The id of the section that has the details."""

    @property
    def mark(self) -> str:
        """The sign of its grade."""
        return MARKS[self.grade]


@dataclass(frozen=True)
class GroundsView(View):
    """Badges with links to their sections, a table of what each verdict rests on, ranks, and the
    declared rule."""

    id = "grounds"
    title = "How far to trust this"
    grounds: PageOnly[list[Ground]]
    rates: PageOnly[list[str]]
    verdicts: PageOnly[list[VerdictView]]
    rank_caption: PageOnly[str]
    ranks: PageOnly[list[list[str | OptionalFloat]]]
    rule: PageOnly[str]


def grounds_view(study: Source) -> GroundsView:
    """The grounds of any answer."""
    caption, ranks = _ranks(study)
    return GroundsView(
        list(_grounds(study)),
        _stated_rates(study),
        [verdict_view(verdict, study) for verdict in verdicts_of(study).values()],
        caption,
        ranks,
        _rule(study),
    )


def _ranks(study: Source) -> tuple[str, list[list[str | OptionalFloat]]]:
    """The caption and the rows of the table of ranks."""
    ranked = ranked_of(study)
    if ranked is None:
        return "", []
    rows: list[list[str | OptionalFloat]] = []
    for place in ranked.places:
        several = place.best_rank != place.worst_rank
        places = f"{place.best_rank} to {place.worst_rank}" if several else str(place.best_rank)
        seeds = ", ".join(map(str, place.by_seed))
        rows.append([place.arm, place.mean, str(place.place), places, seeds])
    caption = (
        "Rank interval: the ranks that no paired t of two arms excludes, Holm's over all"
        f" {ranked.compared}: {level(ranked.alpha)} for all arms together. Ranks give no"
        " verdict. Single seeds are descriptive"
    )
    return caption, rows


def _rule(study: Source) -> str:
    """The declared rule of the verdict, and what a reader must know of single runs."""
    decided = decision(study)
    if not verdicts_of(study):
        return " ".join(sentences(decided.described))
    last = last_evaluations(deciding_steps(study, decided.primary))
    return (
        f"Decided on {decided.primary}: a run's score is {last} at the planned end; a pair is two"
        f" runs with the same seed; {decided.baseline} is the baseline."
        f" {statement('flags', decided)}"
    ).strip()


def _grounds(study: Source) -> Iterator[Ground]:
    """Matching and completeness first, because without them there is no verdict."""
    matched = study_certificate(study)
    yield Ground("Matching", badge_text(matched), _matching_grade(matched), "certificate")
    yield Ground("Runs", progress_of(study), _runs_grade(study), "provenance")
    verdicts = decision(study).answering
    declared = len(study.declaration.deciding)
    pairs = min((verdict.paired.n for verdict in verdicts), default=declared)
    yield Ground("Seeds", f"{counted(pairs, 'pair')} of runs", _seeds_grade(pairs), "limits")
    yield _starts(study)
    yield Ground("Model", models(study), "neutral", "limits")
    if verdicts:
        family = len(verdicts)
        shared = f", shared by {family} arms (Holm)" if family > 1 else ""
        yield Ground("Errors", f"alpha {verdicts[0].alpha:g}{shared}", "good", "calibration")
        yield _new_problems(study)
    judged = _judged(study)
    if judged and (verdicts or rate_curve(study)):
        yield _calibration_ground(study, judged)
    executions = all_executions(study)
    grade: Grade = "warn" if executions.contradicted else "neutral"
    yield Ground(
        "Replications", statement("executions", executions) or "none yet", grade, "replications"
    )


def _matching_grade(matched: Certificate) -> Grade:
    if matched.undeclared:
        return "warn"
    unknown = any(counts[Match.UNKNOWN] for counts in matched.states().values())
    return "neutral" if matched.unproven or unknown or not matched.pairs else "good"


def _runs_grade(study: Source) -> Grade:
    declared = study.declaration
    decided = decision(study)
    unstable = count_unstable_runs(study)
    states = [run.state for run in runs_of(study)]
    missing = any(decided.missing.values()) and State.RUNNING not in states
    if unstable.all_collapsed or missing:
        return "warn"
    planned = len(states) if decided.stopped else len(declared.arms) * len(declared.seeds)
    complete = states.count(State.FINISHED) == planned
    return "good" if complete and not unstable.collapsed else "neutral"


def _seeds_grade(pairs: int) -> Grade:
    if pairs >= ENOUGH:
        return "good"
    return "neutral" if pairs >= LEAST else "warn"


def _judged(study: Source) -> list[Comparison]:
    """The verdicts whose rates are stated: of arms each at its own best value, else of arms."""
    curve = rate_curve(study)
    if curve is not None and curve.comparisons:
        return [compared.verdict for compared in curve.comparisons]
    return list(decision(study).verdicts.values())


def _stated_rates(study: Source) -> list[str]:
    judged = _judged(study)
    if not judged:
        return []
    rates = stated_rates(judged, decision(study).contrast, own_best=rate_curve(study) is not None)
    return statements("calibration", rates)


def _calibration_ground(study: Source, judged: Sequence[Comparison]) -> Ground:
    pairs = counted(min(verdict.paired.n for verdict in judged), "pair")
    missing = f"{NOT_MEASURED} for {pairs} at alpha {judged[0].alpha:g}"
    rates = _stated_rates(study)
    return Ground("Calibration", ". ".join(rates) or missing, "neutral", "calibration")


def _starts(study: Source) -> Ground:
    text = "one for all seeds"
    grade: Grade = "neutral"
    by_arm = [arm.settings for arm in study.declaration.arms.values()]
    if not all(study.declaration.is_known(arm, "model") for arm in study.arms):
        text = ABSENT
    elif not all(settings.embedded for settings in by_arm):
        text = "one checkpoint, which is the question"
    elif all(settings.warm_start.per_seed for settings in by_arm):
        text = "one per seed"
        grade = "good"
    return Ground("Starting models", text, grade, "limits")


def _new_problems(study: Source) -> Ground:
    """The widest interval that holds for other problems too, of the comparisons that answer; good
    where each has one."""
    found = new_problems(study)
    verdicts = decision(study).answering
    intervals = {
        verdict.subject: (test.low, test.high)
        for verdict in verdicts
        if (test := found.get(verdict.subject)) and test.low is not None and test.high is not None
    }
    if not intervals:
        return Ground("New problems", NOT_MEASURED, "neutral", "scores")
    subject, ends = max(intervals.items(), key=lambda entry: entry[1][1] - entry[1][0])
    text = between(*ends, None, study.declaration.verdict.margin)
    if len(intervals) > 1:
        text += f", of {subject}, the widest of {len(intervals)}"
    stored = all(verdict.paired.items_sd is not None for verdict in verdicts)
    grade: Grade = "good" if len(intervals) == len(verdicts) and stored else "neutral"
    return Ground("New problems", text, grade, "scores")


def badge_text(matched: Certificate) -> str:
    """Whether the runs are matched, in one line; an accepted mismatch is always given with its
    reason.
    """
    accepted = (f"Mismatch accepted: {acceptance.reason}" for acceptance in matched.acceptances)
    return ". ".join([capital(matched.summary), *accepted])


def progress_of(study: Source) -> str:
    """How many runs are finished, what became of the others, and how many were unstable."""
    sentences = [_finished_sentence(study)]
    errors = grader_errors(study)
    failed = []
    for run in runs_of(study):
        if share := errors.get(run.id):
            failed.append(f"{run.arm} seed {run.seed} {share:.1%}")
    if failed:
        sentences.append(
            "The grader failed on training responses, which counted as reward 0:"
            f" {', '.join(failed)} of them."
        )
    counts = count_unstable_runs(study)
    if counts.finished:
        sentences.append(statement("unstable_runs", counts))
    return " ".join(sentences)


def _finished_sentence(study: Source) -> str:
    declared = study.declaration
    states = Counter(run.state for run in runs_of(study))
    planned = len(declared.arms) * len(declared.seeds)
    if declared.recorded is not None:  # what was never imported may never have been
        planned = states.total()
    return statement("finished_runs", states, planned, decision(study).stopped)


def models(study: Source) -> str:
    """The arms' models with their sizes: "tiny-qwen3, 0.13 M parameters"."""
    names = sorted({arm.settings.model for arm in study.declaration.arms.values()})
    sizes = set()
    for run in study.evidence.run_rows(study.study):
        parameters = json.loads(run["facts"] or "{}").get("parameters")
        if parameters is not None:
            sizes.add(parameters)
    counts = " or ".join(f"{size / 1e6:.3g} M" for size in sorted(sizes)) or NOT_MEASURED
    return f"{', '.join(names)}, {counts} parameters"
