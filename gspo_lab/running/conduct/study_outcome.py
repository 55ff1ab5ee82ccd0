"""How the conduct of a study ended: what failed, and the exit code."""

from collections.abc import Sequence
from dataclasses import dataclass

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.readings import Source, runs
from gspo_lab.common.states import Exit, State
from gspo_lab.running.conduct.worker_pool import WorkItemResult
from gspo_lab.study import Study


@dataclass(frozen=True)
class StudyOutcome:
    """The state of a study after `conduct`."""

    study: str
    failures: tuple[str, ...]
    exit_code: int
    """0: all needed runs finished; 1: some did not; 2: the user can fix the failure; 130:
    interrupted.
    """
<<<<<<< HEAD
=======
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
>>>>>>> main


def outcome(
    study: Study, source: Source, results: Sequence[WorkItemResult], *, interrupted: bool
) -> StudyOutcome:
    """The outcome of a study whose records are in the database of `source`."""
    failures = tuple(result.line for result in results if result.state is not State.FINISHED)
    finished = {(run.arm, run.seed) for run in runs(source) if run.finished}
    declared = {(run.arm, run.seed) for run in study.runs()}
    complete = decision(source).stopped or declared <= finished
    failed = {result.code for result in results if result.state in (State.FAILED, State.LOST)}
    if interrupted:
        code = Exit.INTERRUPTED
    elif failed:
        code = Exit.REFUSED if failed == {Exit.REFUSED} else Exit.INCOMPLETE
    else:
        code = Exit.FINISHED if complete else Exit.INCOMPLETE
<<<<<<< HEAD
    return StudyOutcome(study.name, failures, code)
=======
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
>>>>>>> main
