"""Original, replications and all combined: which verdicts were confirmed."""

from collections.abc import Sequence
from dataclasses import dataclass

from gspo_lab.analysis.findings.executions import (
    Execution,
    Executions,
    all_executions,
)
from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.stats.random_effects import CombinedEstimate
from gspo_lab.common.plain_data import JsonObject, OptionalFloat, OptionalText
from gspo_lab.common.text import MINUS, seed_numbers
from gspo_lab.report.templating import NONE, statement, statements
from gspo_lab.report.views.curves import pair
from gspo_lab.report.views.drawing import Drawing, half_width
from gspo_lab.report.views.verdicts import VerdictView, verdict_view
from gspo_lab.report.views.view import Inlined, PageOnly, View


@dataclass(frozen=True)
class ExecutionRow:
    """An execution's difference on one arm, or that of all of them combined."""

    name: str
    arm: str
    seeds: str
    drawing: Drawing | None
    verdict: str = NONE
    label: str = NONE

    @property
    def difference(self) -> str:
        """The difference with its interval, as text."""
        return NONE if self.drawing is None else self.drawing.text


@dataclass(frozen=True)
class Forest:
    """Every execution's difference on one arm."""

    caption: str
    rows: list[ExecutionRow]


@dataclass(frozen=True)
class ExecutionView:
    """One execution with its verdicts by arm; without any `said` has what stands in their place."""

    name: str
    relation: str
    study: str
    declared_at: str
    unread: OptionalText
    copy_of: OptionalText
    seeds: Sequence[int]
    said: list[str]
    comparisons: dict[str, VerdictView]


@dataclass(frozen=True)
class Combined:
    """One arm's estimate over all executions, and the p of their agreement."""

    estimate: Inlined[CombinedEstimate]
    agreement_p: OptionalFloat
    times: PageOnly[int]
    """How many executions it is of."""


@dataclass(frozen=True)
class ReplicationsView(View):
    """Every execution's difference over the others' and what became of the verdicts."""

    id = "replications"
    title = "Replications"
    executions: list[ExecutionView]
    together: dict[str, Combined | None]
    """The combined estimate of each arm."""
    words: list[JsonObject]
    """Each verdict of an execution, with what a later one made of it."""
    forests: PageOnly[list[Forest]]
    """The arm that the study is about first."""
    found: PageOnly[Executions]


def replications_view(study: Source) -> ReplicationsView | None:
    """None for a study that was run once."""
    executions = all_executions(study)
    if not executions.has_others:
        return None
    together = _combined_estimates(executions)
    arms = list(together)
    names = pair(study)
    if names is not None and names[1] in arms:
        arms = [names[1], *(arm for arm in arms if arm != names[1])]
    words = []
    for word in executions.replications:
        fields = {name: getattr(word, name) for name in ("arm", "by", "later", "fate")}
        label = statement("label", word.verdict)
        words.append(fields | {"word": word.verdict.word, "label": label})
    return ReplicationsView(
        [_execution_view(execution) for execution in executions.executions],
        together,
        words,
        [_forest(executions, arm, together.get(arm)) for arm in arms or [""]],
        executions,
    )


def _execution_view(execution: Execution) -> ExecutionView:
    return ExecutionView(
        execution.name,
        execution.relation,
        execution.study,
        execution.declared_at,
        execution.unread,
        execution.copy_of,
        execution.seeds,
        [] if execution.decision is None else statements("decision", execution.decision),
        {arm: verdict_view(verdict) for arm, verdict in execution.verdicts},
    )


def _combined_estimates(executions: Executions) -> dict[str, Combined | None]:
    """The combined estimate of every arm of which an execution has a verdict."""
    together: dict[str, Combined | None] = {}
    for execution in executions.executions:
        for arm, _ in execution.verdicts:
            estimate = executions.combined(arm)
            together[arm] = None
            if estimate is not None:
                p = executions.welch_p(arm)
                together[arm] = Combined(estimate, p, executions.times(arm))
    return together


def lines(study: Source) -> list[str]:
    """The replications for a terminal, a line per fact."""
    executions = all_executions(study)
    return statements("replications", executions, _combined_estimates(executions))


def _forest(executions: Executions, arm: str, combined: Combined | None) -> Forest:
    """One arm's executions, drawn on one scale."""
    verdicts = [execution.of(arm) for execution in executions.executions]
    tests = [verdict.paired for verdict in verdicts if verdict is not None]
    margins = [verdict.margin for verdict in verdicts if verdict is not None]
    ends = () if combined is None else (combined.estimate.low, combined.estimate.high)
    paired = [test for test in tests if test is not None]
    reach = half_width(paired, *margins, *ends)
    rows = [_row(execution, arm, reach) for execution in executions.executions]
    if combined is not None:
        estimate = combined.estimate
        drawn = Drawing(arm, reach, estimate.estimate, estimate.low, estimate.high, ())
        name = f"combined ({statement('times', combined)})"
        rows.append(ExecutionRow(name, arm, NONE, drawn))
    baselines = [verdict.baseline for verdict in verdicts if verdict is not None]
    caption = "Executions"
    if baselines:
        caption = f"{arm} {MINUS} {baselines[0]}, execution by execution"
    return Forest(caption, rows)


def _row(execution: Execution, arm: str, reach: float) -> ExecutionRow:
    verdict = execution.of(arm)
    seeds = seed_numbers(execution.seeds) or NONE
    name = f"{execution.name} ({statement('relation', execution)})"
    if verdict is None:
        decided = execution.decision
        sentences = (decided and statement("decision", decided)) or NONE
        return ExecutionRow(name, arm, seeds, None, sentences, sentences)
    drawn = None
    if verdict.estimate is not None:
        paired = verdict.paired
        ends = (None, None) if paired is None else (paired.low, paired.high)
        dots = () if paired is None else tuple(paired.differences)
        drawn = Drawing(arm, reach, verdict.estimate, *ends, dots, verdict.margin)
    return ExecutionRow(name, arm, seeds, drawn, verdict.word, statement("label", verdict))
