"""Original, replications and all combined: which verdicts were confirmed."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

from gspo_lab.analysis.findings.executions import (
    Execution,
    Executions,
    VerdictReplication,
    all_executions,
)
from gspo_lab.analysis.findings.sweep_sentences import decided_sentences
from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.readings.runs import seeds_text
from gspo_lab.analysis.stats.random_effects import ReplicationOutcome
from gspo_lab.common.text import MINUS, counted, difference
from gspo_lab.report.arm_table import axis_half_width, drawn
from gspo_lab.report.markup import (
    NONE,
    Html,
    between,
    format_number,
    h,
    markdown_table,
    signed,
    table,
)
from gspo_lab.report.section import Both, CollapsibleSection, Part, Section, paragraph
from gspo_lab.report.sections.curves import pair
from gspo_lab.report.verdict_details import summary
from gspo_lab.report.words import became, precision_note

HEAD = ("execution", "arm", "seeds", "difference", "interval", "verdict")
ABOUT = (
    "The same study by content, carried out more than once: other seeds, other starting models,"
    " other machines. Combined is an average that allows executions to differ (random effects:"
    " Paule and Mandel's variance between them, Hartung and Knapp's interval on one degree of"
    " freedom fewer than executions). Executions that share seeds count once, by each seed's mean."
    " Each verdict follows its own execution's rule. The combined estimate has none."
)

OUTCOMES = get_args(ReplicationOutcome)


def replications(study: Source) -> Section | None:
    """Every execution's difference over the others' and what became of the verdicts; the methods
    folded. None for a study that was run once."""
    executions = all_executions(study)
    if not executions.has_others:
        return None
    fates = _in_order(executions)
    arms = _arms(executions)
    about = pair(study)
    shown = [became(word) for word in fates if word.fate != "confirmed"]
    if fates and not shown:
        shown = ["Every later execution confirmed the verdicts of those before it."]
    first = about[1] if about is not None and about[1] in arms else next(iter(arms), "")
    forests = tuple(_forest(executions, arm) for arm in arms if arm != first)
    combined = {arm: executions.combined(arm) for arm in arms}
    data = {
        "executions": [_data(execution) for execution in executions.executions],
        "together": {
            arm: both and {**vars(both), "agreement_p": executions.welch_p(arm)}
            for arm, both in combined.items()
        },
        "words": [
            {name: getattr(replication, name) for name in ("arm", "by", "later", "fate")}
            | {"word": replication.verdict.word, "label": replication.verdict.label}
            for replication in executions.replications
        ],
    }
    rows = [
        [
            row.name,
            arm,
            row.seeds,
            signed(row.estimate, *row.ends),
            between(*row.ends, None, row.margin),
            row.label,
        ]
        for arm in arms or [""]
        for row in _rows(executions, arm)
    ]
    method = (ABOUT, *map(became, fates), *_carried(executions))
    body: tuple[Part, ...] = (
        Both(_forest(executions, first), markdown_table(HEAD, rows)),
        *(h("p", line) for line in shown),
        *([CollapsibleSection("The other arms", forests)] if forests else []),
        CollapsibleSection("Method", tuple(map(paragraph, method))),
    )
    return Section("replications", "Replications", body, data)


class ExecutionRow(NamedTuple):
    """An execution's difference on one arm, or that of all of them combined."""

    name: str
    seeds: str
    estimate: float | None = None
    ends: tuple[float | None, float | None] = (None, None)
    dots: tuple[float, ...] = ()
    verdict: str = NONE
    label: str = NONE
    margin: float | None = None


def _rows(executions: Executions, arm: str) -> Iterator[ExecutionRow]:
    for execution in executions.executions:
        verdict = execution.of(arm)
        seeds = seeds_text(execution.seeds) or NONE
        name = f"{execution.name} ({_relation(execution)})"
        if verdict is None:
            sentences = " ".join(_instead(execution)) or NONE
            yield ExecutionRow(name, seeds, verdict=sentences, label=sentences)
            continue
        paired = verdict.paired
        ends, dots = (
            ((None, None), ())
            if paired is None
            else ((paired.low, paired.high), paired.differences)
        )
        yield ExecutionRow(
            name,
            seeds,
            verdict.estimate,
            ends,
            dots,
            verdict.word,
            verdict.label,
            verdict.margin,
        )
    if (both := executions.combined(arm)) is not None:
        yield ExecutionRow(
            f"combined ({_times(executions, arm, both.k)})",
            NONE,
            both.estimate,
            (both.low, both.high),
        )


def _forest(executions: Executions, arm: str) -> Html:
    listed = list(_rows(executions, arm))
    wide = axis_half_width(
        (), *(value for row in listed for value in (*row.ends, *row.dots, row.margin))
    )
    cells = [
        (
            NONE
            if row.estimate is None
            else drawn(row.estimate, row.ends, row.dots, arm, wide, row.margin)
        )
        for row in listed
    ]
    rows = [
        (row.name, row.seeds, cell, h("strong", row.verdict))
        for row, cell in zip(listed, cells, strict=True)
    ]
    baseline = next(
        (verdict.baseline for execution in executions.executions if (verdict := execution.of(arm))),
        None,
    )
    what = f"{arm} {MINUS} {baseline}, execution by execution" if baseline else "Executions"
    return table(
        ("execution", "seeds", "difference", "verdict"), rows, caption=what, class_="forest"
    )


def linked(executions: Executions) -> str | None:
    """Which executions there are and what became of verdicts, in a line; None for a study that was
    run once.
    """
    if not executions.has_others:
        return None
    names = ", ".join(
        f"{execution.name} ({_relation(execution)})" for execution in executions.executions
    )
    fates = Counter(each.fate for each in executions.replications)
    total = len(executions.replications)
    counts = ""
    if total:
        shares = [f"{fates[fate] or 'none'} {fate}" for fate in reversed(OUTCOMES)]
        counts = f"of {counted(total, 'verdict')}: {', '.join(shares)}"
    times = sum(execution.counts for execution in executions.executions)
    return f"Carried out {times} time{'s' * (times > 1)}: {names}" + (
        f"; {counts}" if counts else ""
    )


def lines(study: Source) -> list[str]:
    """The same for a terminal, a line per fact."""
    executions = all_executions(study)
    summary = linked(executions)
    if summary is None:
        return []
    combined = []
    for arm in _arms(executions):
        if (both := executions.combined(arm)) is not None:
            spread = (
                "" if both.tau is None else f", sd between executions {format_number(both.tau, 2)}"
            )
            numbers = difference(both.estimate, (both.low, both.high), both.alpha, None)
            combined.append(
                f"{arm}, executions combined ({_times(executions, arm, both.k)}):"
                f" {numbers}{spread}."
            )
    return [f"{summary}.", *map(became, _in_order(executions)), *combined, *_carried(executions)]


def _relation(execution: Execution) -> str:
    copied = f"the numbers of {execution.copy_of}, counted once" if execution.copy_of else None
    return copied or execution.unread or execution.relation


def _arms(executions: Executions) -> list[str]:
    return list(
        dict.fromkeys(arm for execution in executions.executions for arm, _ in execution.verdicts)
    )


def _instead(execution: Execution) -> list[str]:
    return decided_sentences(execution.decision) if execution.decision is not None else []


def _times(executions: Executions, arm: str, seeds: int) -> str:
    """How many executions, and how many sets of seeds where some share theirs."""
    times = executions.times(arm)
    return str(times) if times == seeds else f"{times}, on {seeds} set{'s' * (seeds != 1)} of seeds"


def _in_order(executions: Executions) -> list[VerdictReplication]:
    """Verdicts with what became of them, the contradicted ones first."""
    return sorted(executions.replications, key=lambda word: OUTCOMES.index(word.fate))


def _carried(executions: Executions) -> Iterator[str]:
    """What so many executions can show, and on which arms they agree."""
    tests = {arm: p for arm in _arms(executions) if (p := executions.welch_p(arm)) is not None}
    for agree, text in ((True, "agree within"), (False, "differ by more than")):
        listed = [
            f"{arm} (p = {format_number(p, 2)})" for arm, p in tests.items() if (p >= 0.05) is agree
        ]
        if listed:
            yield (
                f"The executions {text} what their own pairs let expect (Welch's test) on"
                f" {', '.join(listed)}."
            )
    combined = map(executions.combined, _arms(executions))
    yield from dict.fromkeys(precision_note(both) for both in combined if both is not None)


def _data(execution: Execution) -> dict[str, Any]:
    names = ("name", "relation", "study", "declared_at", "unread", "copy_of")
    comparisons = {arm: summary(verdict) for arm, verdict in execution.verdicts}
    more = {"seeds": list(execution.seeds), "said": _instead(execution), "comparisons": comparisons}
    return {name: getattr(execution, name) for name in names} | more
