"""Original, replications and all combined: which verdicts were confirmed."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from gspo_lab.findings.executions import Execution, Executions, VerdictReplication, all_executions
from gspo_lab.readings import Source
from gspo_lab.report.arms import drawn, reach
from gspo_lab.report.card import summary
from gspo_lab.report.chart import Fold, Part, Section
from gspo_lab.report.markup import NONE, Html, between, h, markdown_table, number, plain, signed, table
from gspo_lab.report.sections.curves import pair
from gspo_lab.words import became, decided_sentences, label, short
from gspo_lab.words.decision import OUTCOMES, carries
from gspo_lab.words.text import MINUS, difference

HEAD = ("execution", "arm", "seeds", "difference", "interval", "verdict")
ABOUT = (
    "The same study by content, carried out more than once: other seeds, other starting models, other machines. "
    "Combined is the mean over all executions that there could be (random effects: Paule and Mandel's variance between "
    "them, Hartung and Knapp's interval on one degree of freedom fewer than executions). Executions that share seeds "
    "count once, by each seed's mean. Each verdict follows its own execution's rule. The combined estimate has none."
)


def replications(found: Source) -> Section | None:
    """Every execution's difference over the others' and what became of the verdicts; the methods folded. None for a
    study that was run once."""
    every = all_executions(found)
    if not every.has_others:
        return None
    told, arms, about = [became(word) for word in _in_order(every)], _arms(every), pair(found)
    first = about[1] if about is not None and about[1] in arms else next(iter(arms), "")
    rest = tuple(_forest(every, arm) for arm in arms if arm != first)
    combined = {arm: every.combined(arm) for arm in arms}
    data = {
        "executions": [_data(one) for one in every.executions],
        "together": {
            arm: both and {**vars(both), "agreement_p": every.agreement(arm)} for arm, both in combined.items()
        },
        "words": [
            {name: getattr(one, name) for name in ("arm", "by", "later", "fate")}
            | {"word": one.verdict.word, "label": label(one.verdict)}
            for one in every.replications
        ],
    }
    body: tuple[Part, ...] = (
        _forest(every, first),
        h("ul", *(h("li", line) for line in told)) if told else Html(""),
        *([Fold("The other arms", rest)] if rest else []),
        Fold("Method", tuple(h("p", line) for line in (ABOUT, *_carried(every)))),
    )
    rows = [
        [row.name, arm, row.seeds, signed(row.estimate, *row.ends), between(*row.ends), row.label]
        for arm in arms or [""]
        for row in _rows(every, arm)
    ]
    markdown = "\n\n".join([markdown_table(HEAD, rows), *map(plain, (*told, *_carried(every), ABOUT))])
    return Section("replications", "Replications", body, data, markdown)


class Row(NamedTuple):
    """An execution's difference on one arm, or that of all of them combined."""

    name: str
    seeds: str
    estimate: float | None = None
    ends: tuple[float | None, float | None] = (None, None)
    dots: tuple[float, ...] = ()
    verdict: str = NONE
    label: str = NONE


def _rows(every: Executions, arm: str) -> Iterator[Row]:
    for one in every.executions:
        verdict, seeds = one.of(arm), ", ".join(map(str, one.seeds)) or NONE
        name = f"{one.name} ({_relation(one)})"
        if verdict is None:
            told = " ".join(_instead(one)) or NONE
            yield Row(name, seeds, verdict=told, label=told)
            continue
        paired = verdict.paired
        ends, dots = ((None, None), ()) if paired is None else ((paired.low, paired.high), paired.differences)
        yield Row(name, seeds, verdict.estimate, ends, dots, short(verdict), label(verdict))
    if (both := every.combined(arm)) is not None:
        yield Row(f"combined ({_times(every, arm, both.k)})", NONE, both.estimate, (both.low, both.high))


def _forest(every: Executions, arm: str) -> Html:
    listed = list(_rows(every, arm))
    wide = reach((), *(value for row in listed for value in (*row.ends, *row.dots)))
    rows = []
    for row in listed:
        cell = NONE if row.estimate is None else drawn(row.estimate, row.ends, row.dots, arm, wide)
        rows.append((row.name, row.seeds, cell, h("strong", row.verdict)))
    baseline = next((verdict.baseline for one in every.executions if (verdict := one.of(arm))), None)
    what = f"{arm} {MINUS} {baseline}, execution by execution" if baseline else "Executions"
    return table(("execution", "seeds", "difference", "verdict"), rows, caption=what, class_="forest")


def linked(every: Executions) -> str | None:
    """Which executions there are and what became of verdicts, in a line; None for a study that was run once."""
    if not every.has_others:
        return None
    told = ", ".join(f"{one.name} ({_relation(one)})" for one in every.executions)
    fates = Counter(one.fate for one in every.replications)
    counts = ", ".join(f"{fates[fate]} {text}" for fate, text in OUTCOMES.items() if fates[fate])
    times = sum(one.counts for one in every.executions)
    return f"Carried out {times} time{'s' * (times > 1)}: {told}" + (f"; verdicts: {counts}" if counts else "")


def lines(found: Source) -> list[str]:
    """The same for a terminal, a line per fact."""
    every = all_executions(found)
    said = linked(every)
    if said is None:
        return []
    return [f"{said}.", *map(became, _in_order(every)), *_together_lines(every), *_carried(every)]


def _relation(one: Execution) -> str:
    return f"the numbers of {one.copy_of}, counted once" if one.copy_of else one.unread or one.relation


def _arms(every: Executions) -> list[str]:
    return list(dict.fromkeys(arm for one in every.executions for arm, _ in one.verdicts))


def _instead(one: Execution) -> list[str]:
    return decided_sentences(one.decision) if one.decision is not None else []


def _together_lines(every: Executions) -> Iterator[str]:
    for arm in _arms(every):
        both = every.combined(arm)
        if both is not None:
            between_them = "" if both.tau is None else f", sd between executions {number(both.tau, 2)}"
            told = difference(both.estimate, (both.low, both.high), both.alpha)
            yield f"{arm}, executions combined ({_times(every, arm, both.k)}): {told}{between_them}."


def _times(every: Executions, arm: str, seeds: int) -> str:
    """How many executions, and how many sets of seeds where some share theirs."""
    times = every.times(arm)
    return str(times) if times == seeds else f"{times}, on {seeds} set{'s' * (seeds != 1)} of seeds"


def _in_order(every: Executions) -> list[VerdictReplication]:
    """Verdicts with what became of them, the contradicted ones first."""
    return sorted(every.replications, key=lambda word: list(OUTCOMES).index(word.fate))


def _carried(every: Executions) -> Iterator[str]:
    """What so many executions can show, and on which arms they agree."""
    tests = {arm: p for arm in _arms(every) if (p := every.agreement(arm)) is not None}
    for agree, text in ((True, "agree within"), (False, "differ by more than")):
        listed = [f"{arm} (p = {number(p, 2)})" for arm, p in tests.items() if (p >= 0.05) is agree]
        if listed:
            yield f"The executions {text} what their own pairs let expect (Welch's test) on {', '.join(listed)}."
    yield from dict.fromkeys(carries(both) for arm in _arms(every) if (both := every.combined(arm)) is not None)


def _data(one: Execution) -> dict[str, Any]:
    names = ("name", "relation", "study", "declared_at", "unread", "copy_of")
    comparisons = {arm: summary(verdict) for arm, verdict in one.verdicts}
    return {name: getattr(one, name) for name in names} | {
        "seeds": list(one.seeds),
        "said": _instead(one),
        "comparisons": comparisons,
    }
