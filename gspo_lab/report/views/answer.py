"""The answer to the study's question."""

from collections import Counter
from dataclasses import dataclass, field

from gspo_lab.analysis.claims import answer as answer_to
from gspo_lab.analysis.findings.answer import Colour, Statement
from gspo_lab.analysis.findings.decision import decision, with_sides
from gspo_lab.analysis.findings.executions import all_executions
from gspo_lab.analysis.findings.paired_comparisons import ranked as ranked_of
from gspo_lab.analysis.findings.rate_curve import RateCurve, rate_curve
from gspo_lab.analysis.findings.run_outcomes import deciding_steps
from gspo_lab.analysis.findings.stability import stability_verdicts
from gspo_lab.analysis.findings.stability import verdicts as verdicts_of
from gspo_lab.analysis.findings.sweeps import DoseResponse
from gspo_lab.analysis.readings import Reading, Source, Steps, Window, average, read
from gspo_lab.analysis.readings import runs as runs_of
from gspo_lab.analysis.readings.curves import grader_errors
from gspo_lab.analysis.readings.reading import CLIP, CLIP_GRADIENT, DEVICE_SECONDS, PEAK_MEMORY
from gspo_lab.analysis.stats.ranking import Ranking
from gspo_lab.common.plain_data import OptionalText, Strings
from gspo_lab.common.states import State
from gspo_lab.common.text import duration, last_evaluations, listed
from gspo_lab.report.chart import Chart
from gspo_lab.report.templating import format_number, statement, statements
from gspo_lab.report.views.arms import ArmNumbers, ArmRow, ArmsTable, arm_numbers, arm_tables
from gspo_lab.report.views.grounds import badge_text, models, progress_of
from gspo_lab.report.views.rate import rate_chart
from gspo_lab.report.views.replications import lines as replication_lines
from gspo_lab.report.views.verdicts import VerdictView, verdict_view
from gspo_lab.report.views.view import Inlined, PageOnly, View, by_id


@dataclass(frozen=True)
class AnswerStatement:
    """The answer in words, what it rests on, and the command to type next."""

    word: str
    colour: Colour
    label: str
    said: str
    rests_on: str
    next: str


@dataclass(frozen=True)
class RankingView:
    """The arms by their final scores."""

    ranking: Inlined[Ranking]
    sentence: str
    reading: str


@dataclass(frozen=True)
class AnswerView(View):
    """The answer to the study's question: what the page, the Markdown, the JSON and the terminal
    show."""

    id = "answer"
    title = "Answer"
    question: str
    answer: AnswerStatement
    baseline: str
    primary: OptionalText
    runs: dict[str, int]
    """How many runs are in each state."""
    grader_errors: dict[str, float]
    executions: dict[str, str]
    stability: DoseResponse | None
    """The dose response of a sweep; None for another study."""
    curve: RateCurve | None
    """Each arm's score against the swept setting; only with `[verdict] over`."""
    figures: dict[str, Chart]
    """The curves of `curve` as figures."""
    verdicts: dict[str, VerdictView]
    """On the declared question: of the arms, or of the contrast."""
    comparisons: dict[str, VerdictView]
    """The verdicts on the final scores by subject: arms and contrast."""
    steadiness: dict[str, VerdictView]
    """The verdicts on stability, by arm."""
    headline: str
    ranking: RankingView | None
    statement: PageOnly[str]
    limits: PageOnly[str]
    time_left: PageOnly[str]
    score_meaning: PageOnly[str]
    chosen: OptionalText
    """How the study's settings were chosen, in its own words or by its own trials."""
    not_to_conclude: PageOnly[str]
    arms: dict[str, ArmNumbers]
    tables: PageOnly[list[ArmsTable]]
    matching: PageOnly[str]
    replicated: PageOnly[str]
    details: PageOnly[Strings]
    """What a terminal and the gist of the Markdown say besides: verdicts, notes, replications."""
    key: PageOnly[str]
    """The study's label, for the address of the chosen baseline."""
    is_command: PageOnly[bool]
    readings: dict[str, str] = field(
        default_factory=lambda: {
            "start": "score.start",
            "best": "score.best_evaluation",
            "final": "score.final",
            "by_seed": "score.latest",
            "seconds": DEVICE_SECONDS.key,
            "memory": PEAK_MEMORY.key,
            "not_graded": "grader_errors.share",
            "grader_errors": "grader_errors.share",
            "clipped": CLIP.key,
            "clipped_gradient": CLIP_GRADIENT.key,
        }
    )

    @property
    def rows_of_sweep(self) -> list[ArmRow]:
        """The rows of a sweep's table; empty for other studies."""
        return self.tables[0].rows if self.tables and self.tables[0].of_sweep else []

    @property
    def lines(self) -> list[str]:
        """The answer in lines, for the gist of the Markdown."""
        answer = self.answer
        gist = (answer.said, answer.rests_on, f"Next: {answer.next}", *self.details)
        return [line for line in gist if line]


def answer_view(study: Source) -> AnswerView:
    """The answer, what it rests on, what not to conclude, the next command; then the table of
    arms.
    """
    decided = decision(study)
    answered = answer_to(study)
    verdicts = {arm: verdict_view(each, study) for arm, each in verdicts_of(study).items()}
    comparisons = {each.subject: verdict_view(each, study) for each, _ in with_sides(study)}
    steadiness = {}
    if decided.verdicts:
        for arm, steady in stability_verdicts(study).items():
            steadiness[arm] = verdict_view(steady, study)
    executions = all_executions(study)
    contradictions = statements("contradictions", executions)
    denied = " ".join(contradictions)
    first, *limits = statements("answer", answered)
    if isinstance(answered.why, Statement) and decided.doses is not None:
        # Of a sweep: first how its rules compare.
        *limits, first = statements(answered.why.name, answered.why.of)
    matching = f"{badge_text(decided.matched)}. {progress_of(study)}"
    on_question = tuple(verdicts_of(study).values())
    alone = answered.verdicts == on_question and len(on_question) == 1
    headline = f"{statement('headline', on_question)} {denied}".strip() if verdicts else denied
    details = [*contradictions]
    for shown in verdicts.values():
        numbers = statement("numbers", shown)
        details.append(numbers if alone else f"{shown.sentence} {numbers}")
    details += [*statements("flags", decided), matching]
    details += [line for line in replication_lines(study) if line not in contradictions]
    return AnswerView(
        question=study.declaration.question,
        answer=AnswerStatement(
            answered.word,
            answered.colour,
            statement("answer_label", answered),
            statement("answer", answered),
            statement("grounds", answered),
            answered.command,
        ),
        baseline=decided.baseline,
        primary=decided.primary,
        runs=dict(Counter(run.state for run in runs_of(study))),
        grader_errors=grader_errors(study),
        executions={execution.name: execution.relation for execution in executions.executions},
        stability=decided.doses,
        curve=rate_curve(study),
        figures=by_id(rate_chart(rate_curve(study))),
        verdicts=verdicts,
        comparisons=comparisons,
        steadiness=steadiness,
        headline=headline,
        ranking=_ranking(study),
        statement=f"{first} {denied}".strip(),
        limits=" ".join(limits),
        time_left=time_left(study),
        score_meaning=score_meaning(study),
        chosen=study.declaration.verdict.chosen or (TUNED if study.declaration.tune else None),
        not_to_conclude=do_not_conclude(study),
        arms=arm_numbers(study),
        tables=arm_tables(study, answered),
        matching=matching,
        replicated=statement("executions", executions),
        details=tuple(filter(None, details)),
        key=study.label,
        is_command=bool(answered.next),
    )


def _ranking(study: Source) -> RankingView | None:
    ranking = ranked_of(study)
    if ranking is None:
        return None
    reading = f"score.{study.declaration.primary}.final"
    return RankingView(ranking, statement("ranking", ranking), reading)


def time_left(study: Source) -> str:
    """How long a running study still trains, at the pace of its runs so far.

    Runs under way are taken side by side.
    """
    running = [run for run in runs_of(study) if run.state == State.RUNNING]
    if not running:
        return ""
    pace = read(study, Reading("seconds_step", Window(Steps.ALL)))
    finished_steps = {
        run["run_id"]: run["steps_done"] for run in study.evidence.run_rows(study.study)
    }
    step_seconds = [value.value for value in pace.values() if value.value is not None]
    if not step_seconds:
        return "No step has been timed yet."
    unfinished = [run for run in runs_of(study) if run.state != State.FINISHED]
    steps = sum((run.steps_planned or 0) - finished_steps[run.id] for run in unfinished)
    seconds = steps * max(step_seconds) / len(running)
    return (
        f"About {duration(seconds)} of training are left at the slowest pace so far, without"
        " evaluations."
    )


TUNED = "each arm's by its own trials."

UNSTABLE = (
    "Unstable: a run that collapsed, regressed, or ended below half of its best score; the fold on"
    " collapse has the rule."
)


def score_meaning(study: Source) -> str:
    """What the deciding score is and what "unstable" means; empty where no score decides."""
    primary = study.declaration.primary
    if primary is None:
        return ""
    last = last_evaluations(deciding_steps(study, primary))
    return f"Score: the share of right answers on {primary}, from 0 to 1, {last}. {UNSTABLE}"


def do_not_conclude(study: Source) -> str:
    """One sentence: what the study says nothing about."""
    by_arm = [arm.settings for arm in study.declaration.arms.values()]
    if study.declaration.recorded is not None or not by_arm:
        return (
            "Do not conclude that the arms differ in nothing but what they declare: their logs do"
            " not show it."
        )
    lengths = read(study, Reading("response_tokens_mean", Window(Steps.ALL)))
    tokens = average(value.value for value in lengths.values())
    mean = "" if tokens is None else f" (here {format_number(tokens, 2)} tokens on average)"
    subjects = [f"larger models (here {models(study)})", f"longer answers{mean}"]
    if not all(settings.embedded and settings.warm_start.per_seed for settings in by_arm):
        subjects.append("other starting models (here one, shared by all seeds)")
    return f"Do not conclude anything about {listed(subjects, 'or')}."
