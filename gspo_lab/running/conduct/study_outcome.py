"""The terminal's summary of a study: the answer, and per arm scores, reward and clip fraction.

The report explains the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from gspo_lab.analysis.claims import answer
from gspo_lab.analysis.findings.answer import StudyAnswer
from gspo_lab.analysis.findings.clip_fractions import NO_CLIP, clips
from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.decision_notes import flags
from gspo_lab.analysis.findings.run_outcomes import NOT_JUDGED, outcomes
from gspo_lab.analysis.findings.sentences import sentence
from gspo_lab.analysis.findings.stability import verdicts as verdicts_of
from gspo_lab.analysis.findings.sweep_sentences import decided_sentences
from gspo_lab.analysis.readings import Source, average, runs, summarise
from gspo_lab.analysis.readings.curves import grader_errors
from gspo_lab.analysis.readings.reading import CLIP, REWARD
from gspo_lab.common.paths import database_of
from gspo_lab.common.reason import sentences
from gspo_lab.common.states import Exit, State
from gspo_lab.common.text import MINUS, signed
from gspo_lab.recording.store import Evidence
from gspo_lab.running.conduct.worker_pool import WorkItemResult
from gspo_lab.study import Study


@dataclass(frozen=True)
class ArmResult:
    """One arm over its seeds. None: not measured."""

    arm: str
    runs: int
    finished: int
    scores: dict[int, float | None]
    """Per seed the primary benchmark's score: the mean of the last `verdict.last` evaluations of a
    finished run, else the latest score."""
    reward: float | None
    """Mean training reward over the last fifth of the steps, mean of the runs that count."""
    clipped: float | None
    """Share of response tokens clipped on mini-batches >= 1 (on the first one all ratios are 1)
    after the learning rate's warm-up, mean of the seeds: the report's number."""
    clips: bool
    """Whether its loss has a clip."""
    collapsed: int | None
    """Collapsed runs, by the rule of `stats.collapse`; None if no run is long enough."""
    grader_errors: float | None
    """Share of training responses on which the grader failed, mean of the runs that count."""
    score: float | None
    """Mean final score of the finished runs with the verdict's seeds, as in the report."""


@dataclass(frozen=True)
class StudyOutcome:
    """The state of a study after `conduct`."""

    study: str
    primary: str | None
    arms: tuple[ArmResult, ...]
    failures: tuple[str, ...]
    answer: StudyAnswer
    details: tuple[str, ...]
    """The verdicts with their pairs, and the decision's flags."""
    exit_code: int
    """0: all needed runs finished; 1: some did not; 2: the user can fix the failure; 130:
    interrupted.
    """
    report: object | None = None

    def table(self) -> Table:
        """The arms, for a console."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("arm")
        failing = any(arm.grader_errors for arm in self.arms)
        names = ("runs", self.primary or "score", "per seed", "reward", "clipped", "collapsed")
        for name in (*names, *(["not graded"] if failing else [])):
            table.add_column(name, justify="right")
        for arm in self.arms:
            seeds = " ".join(_shown(score, ".3f") for score in arm.scores.values())
            finished = f"{arm.finished}/{arm.runs}"
            reward = _shown(arm.reward, ".3f")
            clipped = _shown(arm.clipped, ".2%") if arm.clips else NO_CLIP
            collapsed = NOT_JUDGED if arm.collapsed is None else str(arm.collapsed)
            failed = [_shown(arm.grader_errors, ".1%")] if failing else []
            table.add_row(
                arm.arm,
                finished,
                _shown(arm.score, ".3f"),
                seeds,
                reward,
                clipped,
                collapsed,
                *failed,
            )
        return table

    def to_json(self) -> dict[str, Any]:
        """Plain data, as `gspo-lab run --json` prints it."""
        arms = [vars(arm) for arm in self.arms]
        texts = {
            "answer": self.answer.to_json(),
            "report": None if self.report is None else str(self.report),
        }
        values = {key: value for key, value in vars(self).items() if key != "details"}
        return {
            **values,
            "seen": self.verdict_text,
            "arms": arms,
            "failures": list(self.failures),
            **texts,
        }

    @property
    def verdict_text(self) -> str:
        """The answer and its details as one text."""
        return "\n".join([*self.answer.lines, *self.details])


def outcome(
    study: Study,
    runs: Path,
    results: Sequence[WorkItemResult],
    *,
    interrupted: bool,
    report: object | None = None,
) -> StudyOutcome:
    """The outcome of a study whose journals under `runs` are in the database."""
    failures = tuple(result.line for result in results if result.state is not State.FINISHED)
    with Evidence.open(database_of(runs), runs) as evidence:
        source = Source(evidence, study.name)
        decided = decision(source)
        arms = arm_results(source, study)
        answered = answer(source)
        details = tuple(verdict_lines(source, answered))
    complete = decided.stopped or all(arm.finished == arm.runs for arm in arms)
    failed = {result.code for result in results if result.state in (State.FAILED, State.LOST)}
    if interrupted:
        code = Exit.INTERRUPTED
    elif failed:
        code = Exit.REFUSED if failed == {Exit.REFUSED} else Exit.INCOMPLETE
    else:
        code = Exit.FINISHED if complete else Exit.INCOMPLETE
    return StudyOutcome(
        study.name, decided.primary, arms, failures, answered, details, code, report
    )


def arm_results(source: Source, study: Study) -> tuple[ArmResult, ...]:
    """Per arm of `study` the results of its runs so far, with scores on the primary benchmark."""
    seeds = decision(source).runs
    ended = {(run.arm, run.seed): run for run in outcomes(source, source.declaration.primary)}
    latest = {key: run.latest if run.final is None else run.final for key, run in ended.items()}
    out = []
    for name in study.arms:
        counted = [ended[name, run.seed] for run in runs(source, seeds) if run.arm == name]
        judged = [run.collapsed for run in counted if run.judged]
        out.append(
            ArmResult(
                arm=name,
                runs=len(study.seeds),
                finished=sum(
                    run.finished
                    for run in runs(source)
                    if run.arm == name and run.seed in study.seeds
                ),
                scores={seed: latest.get((name, seed)) for seed in study.seeds},
                reward=summarise(source, REWARD, name, seeds).mean,
                clipped=summarise(source, CLIP, name, seeds).mean,
                clips=clips(source.declaration, name),
                collapsed=sum(judged) if judged else None,
                grader_errors=average(
                    grader_errors(source).get(run.id)
                    for run in runs(source, seeds)
                    if run.arm == name
                ),
                score=average(run.final for run in counted),
            )
        )
    return tuple(out)


def verdict_lines(source: Source, answered: StudyAnswer) -> list[str]:
    """The verdicts with their mean and pair differences, without the answer's sentence; then the
    decision's flags.
    """
    decided = decision(source)
    verdicts = list(verdicts_of(source).values())
    if not verdicts:
        return [
            *([] if answered.why or answered.verdicts else decided_sentences(decided)),
            *sentences(decided.described),
        ]
    out = []
    for verdict in verdicts:
        sentences_of_verdict = [] if answered.verdicts == (verdict,) else [sentence(verdict)]
        if verdict.paired is not None and verdict.estimate is not None:
            pairs = ", ".join(map(signed, verdict.paired.differences))
            noun = ", drop from best smaller by" if verdict.question == "stability" else ""
            sentences_of_verdict.append(
                f"{verdict.subject} {MINUS} {verdict.baseline}{noun}: {signed(verdict.estimate)}"
                f" (by seed: {pairs})"
            )
        out.append(" ".join(sentences_of_verdict))
    head = [f"{decided.primary}:", *out] if len(out) > 1 else [f"{decided.primary}: {out[0]}"]
    return [*head, *flags(decided)]


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
