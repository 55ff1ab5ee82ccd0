"""Original, replications and all combined: which verdicts were confirmed."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from gspo_lab.analysis.findings.executions import (
    Execution,
    Executions,
    VerdictReplication,
    all_executions,
)
from gspo_lab.analysis.findings.sweep_sentences import decided_sentences
from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.readings.runs import seeds_text
from gspo_lab.analysis.stats.random_effects import CombinedEstimate, ReplicationOutcome
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.common.text import MINUS, counted, difference
from gspo_lab.report.formats import NONE, format_number
from gspo_lab.report.views.curves import pair
from gspo_lab.report.views.drawing import Drawing, half_width
from gspo_lab.report.views.verdicts import summary
from gspo_lab.report.views.view import PageOnly, View

OUTCOMES = get_args(ReplicationOutcome)
"""What can become of a verdict, the worst first."""


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
class ReplicationsView(View):
    """Every execution's difference over the others' and what became of the verdicts."""

    id = "replications"
    title = "Replications"
    executions: list[JsonObject]
    together: dict[str, JsonObject | None]
    """By arm the combined estimate, and the p of the executions' agreement."""
    words: list[JsonObject]
    """Each verdict of an execution, with what a later one made of it."""
    forests: PageOnly[list[Forest]]
    """The arm that the study is about first."""
    fates: PageOnly[list[str]]
    method: PageOnly[list[str]]


def replications_view(study: Source) -> ReplicationsView | None:
    """None for a study that was run once."""
    executions = all_executions(study)
    if not executions.has_others:
        return None
    arms = _arms(executions)
    names = pair(study)
    if names is not None and names[1] in arms:
        arms = [names[1], *(arm for arm in arms if arm != names[1])]
    replications = _worst_first(executions)
    fates = [became(word) for word in replications if word.fate != "confirmed"]
    if replications and not fates:
        fates = ["Every later execution confirmed the verdicts of those before it."]
    words = []
    for word in executions.replications:
        fields = {name: getattr(word, name) for name in ("arm", "by", "later", "fate")}
        words.append(fields | {"word": word.verdict.word, "label": word.verdict.label})
    return ReplicationsView(
        [_data(execution) for execution in executions.executions],
        {arm: _combined(executions, arm) for arm in arms},
        words,
        [_forest(executions, arm) for arm in arms or [""]],
        fates,
        [*map(became, replications), *_agreement(executions)],
    )


def _combined(executions: Executions, arm: str) -> JsonObject | None:
    estimate = executions.combined(arm)
    if estimate is None:
        return None
    return {**vars(estimate), "agreement_p": executions.welch_p(arm)}


def _forest(executions: Executions, arm: str) -> Forest:
    """One arm's executions, drawn on one scale."""
    verdicts = [execution.of(arm) for execution in executions.executions]
    tests = [verdict.paired for verdict in verdicts if verdict is not None]
    margins = [verdict.margin for verdict in verdicts if verdict is not None]
    estimate = executions.combined(arm)
    ends = () if estimate is None else (estimate.low, estimate.high)
    paired = [test for test in tests if test is not None]
    reach = half_width(paired, *margins, *ends)
    rows = [_row(execution, arm, reach) for execution in executions.executions]
    if estimate is not None:
        drawn = Drawing(arm, reach, estimate.estimate, estimate.low, estimate.high, ())
        name = f"combined ({_times(executions, arm, estimate.k)})"
        rows.append(ExecutionRow(name, arm, NONE, drawn))
    baselines = [verdict.baseline for verdict in verdicts if verdict is not None]
    caption = "Executions"
    if baselines:
        caption = f"{arm} {MINUS} {baselines[0]}, execution by execution"
    return Forest(caption, rows)


def _row(execution: Execution, arm: str, reach: float) -> ExecutionRow:
    verdict = execution.of(arm)
    seeds = seeds_text(execution.seeds) or NONE
    name = f"{execution.name} ({_relation(execution)})"
    if verdict is None:
        sentences = " ".join(_own_verdicts(execution)) or NONE
        return ExecutionRow(name, arm, seeds, None, sentences, sentences)
    drawn = None
    if verdict.estimate is not None:
        paired = verdict.paired
        ends = (None, None) if paired is None else (paired.low, paired.high)
        dots = () if paired is None else tuple(paired.differences)
        drawn = Drawing(arm, reach, verdict.estimate, *ends, dots, verdict.margin)
    return ExecutionRow(name, arm, seeds, drawn, verdict.word, verdict.label)


def linked(executions: Executions) -> str | None:
    """Which executions there are and what became of verdicts, in a line; None for a study that was
    run once.
    """
    if not executions.has_others:
        return None
    names = [f"{execution.name} ({_relation(execution)})" for execution in executions.executions]
    times = sum(execution.counts for execution in executions.executions)
    text = f"Carried out {counted(times, 'time')}: {', '.join(names)}"
    if not executions.replications:
        return text
    fates = Counter(word.fate for word in executions.replications)
    counts = [f"{fates[fate] or 'none'} {fate}" for fate in reversed(OUTCOMES)]
    total = counted(len(executions.replications), "verdict")
    return f"{text}; of {total}: {', '.join(counts)}"


def lines(study: Source) -> list[str]:
    """The replications for a terminal, a line per fact."""
    executions = all_executions(study)
    summarised = linked(executions)
    if summarised is None:
        return []
    combined = []
    for arm in _arms(executions):
        estimate = executions.combined(arm)
        if estimate is None:
            continue
        ends = (estimate.low, estimate.high)
        numbers = difference(estimate.estimate, ends, estimate.alpha, None)
        spread = ""
        if estimate.tau is not None:
            spread = f", sd between executions {format_number(estimate.tau, 2)}"
        times = _times(executions, arm, estimate.k)
        combined.append(f"{arm}, executions combined ({times}): {numbers}{spread}.")
    fates = map(became, _worst_first(executions))
    return [f"{summarised}.", *fates, *combined, *_agreement(executions)]


def became(word: VerdictReplication) -> str:
    """A verdict of one execution, and what a later one makes of it."""
    by = "in" if word.fate == "confirmed" else "by"
    return f"{word.by}: {word.verdict.label}; {word.fate} {by} {word.later}."


def precision_note(estimate: CombinedEstimate) -> str:
    """What so many executions can show."""
    if estimate.k == 1:
        return "The executions share their seeds: each seed counts once, by its mean over them."
    if estimate.k > 2:
        return f"{estimate.k} executions on seeds of their own."
    return (
        "Two executions on seeds of their own: the combined interval is wide, because one"
        " difference says almost nothing about how executions vary. They can contradict each other,"
        " and hardly confirm."
    )


def _relation(execution: Execution) -> str:
    if execution.copy_of:
        return f"the numbers of {execution.copy_of}, counted once"
    return execution.unread or execution.relation


def _arms(executions: Executions) -> list[str]:
    arms: dict[str, None] = {}
    for execution in executions.executions:
        arms |= dict.fromkeys(arm for arm, _ in execution.verdicts)
    return list(arms)


def _own_verdicts(execution: Execution) -> list[str]:
    return [] if execution.decision is None else decided_sentences(execution.decision)


def _times(executions: Executions, arm: str, sets: int) -> str:
    """How many executions, and how many sets of seeds where some share theirs."""
    times = executions.times(arm)
    return str(times) if times == sets else f"{times}, on {counted(sets, 'set')} of seeds"


def _worst_first(executions: Executions) -> list[VerdictReplication]:
    """Verdicts with what became of them, the contradicted ones first."""
    return sorted(executions.replications, key=lambda word: OUTCOMES.index(word.fate))


def _agreement(executions: Executions) -> Iterator[str]:
    """On which arms the executions agree, and what so many of them can show."""
    arms = _arms(executions)
    tests = {arm: executions.welch_p(arm) for arm in arms}
    for agree, text in ((True, "agree within"), (False, "differ by more than")):
        listed = []
        for arm, p in tests.items():
            if p is not None and (p >= 0.05) is agree:
                listed.append(f"{arm} (p = {format_number(p, 2)})")
        if listed:
            yield (
                f"The executions {text} what their own pairs let expect (Welch's test) on"
                f" {', '.join(listed)}."
            )
    estimates = [executions.combined(arm) for arm in arms]
    notes = [precision_note(estimate) for estimate in estimates if estimate is not None]
    yield from dict.fromkeys(notes)


def _data(execution: Execution) -> JsonObject:
    names = ("name", "relation", "study", "declared_at", "unread", "copy_of")
    return {name: getattr(execution, name) for name in names} | {
        "seeds": list(execution.seeds),
        "said": _own_verdicts(execution),
        "comparisons": {arm: summary(verdict) for arm, verdict in execution.verdicts},
    }
