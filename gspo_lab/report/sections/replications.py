"""Original, replications and all combined: which verdicts were confirmed."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gspo_lab.findings.executions import Execution, Executions
from gspo_lab.findings.other_executions import all_executions
from gspo_lab.readings import Source
from gspo_lab.report.card import summary
from gspo_lab.report.markup import NOT_MEASURED, h, markdown_table, number, plain, signed, table
from gspo_lab.report.section import Section
from gspo_lab.words import became, decided_sentences, label
from gspo_lab.words.executions import FATES, carries

HEAD = ("execution", "arm", "seeds", "difference", "interval", "verdict", "the first execution's verdict")
ABOUT = (
    "The same study by content, carried out more than once: other seeds, other starting models, other machines. "
    "Combined is the mean over all executions that there could be (random effects: Paule and Mandel's variance between "
    "them, Hartung and Knapp's interval on one degree of freedom fewer than executions). Executions that share seeds "
    "count once, by each seed's mean. Each verdict follows its own execution's rule. The combined estimate has none."
)


def replications(found: Source) -> Section | None:
    """Every execution beside the others, and what became of their verdicts; None for a study that was run once."""
    every = all_executions(found)
    if not every.others:
        return None
    rows = [*_rows(every), *_together_rows(every)]
    told = [*_words(every), *_carried(every)]
    data = {
        "executions": [_data(one) for one in every.every],
        "together": {arm: _together(every, arm) for arm in _arms(every)},
        "words": [
            {
                "arm": one.arm,
                "word": one.said.word,
                "label": label(one.said),
                "by": one.by,
                "later": one.later,
                "fate": one.fate,
            }
            for one in every.words
        ],
    }
    body = (
        h("p", ABOUT),
        table(HEAD, rows, caption="Executions, the first one first"),
        *(h("p", line) for line in told),
    )
    markdown = "\n\n".join([ABOUT, markdown_table(HEAD, rows), *map(plain, told)])
    return Section("replications", "Replications", body, data, markdown)


def linked(every: Executions) -> str | None:
    """Which executions there are and what became of verdicts, in a line; None for a study that was run once."""
    if not every.others:
        return None
    told = ", ".join(f"{one.name} ({_relation(one)})" for one in every.every)
    fates = Counter(one.fate for one in every.words)
    counts = ", ".join(f"{fates[fate]} {text}" for fate, text in FATES.items() if fates[fate])
    times = sum(one.counts for one in every.every)
    return f"Carried out {times} time{'s' * (times > 1)}: {told}" + (f"; verdicts: {counts}" if counts else "")


def lines(found: Source) -> list[str]:
    """The same for a terminal, a line per fact."""
    every = all_executions(found)
    said = linked(every)
    return [] if said is None else [f"{said}.", *_words(every), *_together_lines(every), *_carried(every)]


def _relation(one: Execution) -> str:
    return f"the numbers of {one.copy_of}, counted once" if one.copy_of else one.unread or one.relation


def _arms(every: Executions) -> list[str]:
    return list(dict.fromkeys(arm for one in every.every for arm, _ in one.verdicts))


def _rows(every: Executions) -> Iterator[list[str]]:
    first = next((one.name for one in every.every if one.counts), None)
    fates = {(one.arm, one.later): FATES[one.fate] for one in every.words if one.by == first}
    for one in every.every:
        name = f"{one.name} ({_relation(one)})"
        if not one.verdicts:
            yield [name, "–", _seeds(one), "–", "–", " ".join(_instead(one)) or "–", "–"]
        for arm, verdict in one.verdicts:
            interval = NOT_MEASURED
            if verdict.paired is not None and verdict.paired.low is not None:
                interval = f"{signed(verdict.paired.low)} to {signed(verdict.paired.high)}"
            yield [
                name,
                arm,
                _seeds(one),
                signed(verdict.estimate),
                interval,
                label(verdict),
                fates.get((arm, one.name), "–"),
            ]


def _instead(one: Execution) -> list[str]:
    """What an execution without a verdict on any arm says."""
    return decided_sentences(one.decision) if one.decision is not None else []


def _seeds(one: Execution) -> str:
    return ", ".join(map(str, one.seeds)) or "–"


def _together_rows(every: Executions) -> Iterator[list[str]]:
    for arm in _arms(every):
        both = every.together(arm)
        if both is not None:
            interval = f"{signed(both.low)} to {signed(both.high)}"
            yield [f"combined ({_times(every, arm, both.k)})", arm, "–", signed(both.estimate), interval, "–", "–"]


def _together_lines(every: Executions) -> Iterator[str]:
    for arm in _arms(every):
        both = every.together(arm)
        if both is not None:
            between = "" if both.tau is None else f", sd between executions {number(both.tau, 2)}"
            yield (
                f"{arm}, executions combined ({_times(every, arm, both.k)}): {signed(both.estimate)}, "
                f"{100 * (1 - both.alpha):.3g} % interval {signed(both.low)} to {signed(both.high)}{between}."
            )


def _times(every: Executions, arm: str, seeds: int) -> str:
    """How many executions, and how many sets of seeds where some share theirs."""
    times = every.times(arm)
    return str(times) if times == seeds else f"{times}, on {seeds} set{'s' * (seeds != 1)} of seeds"


def _words(every: Executions) -> list[str]:
    """What became of each verdict, the contradicted ones first."""
    order = list(FATES)
    return [became(one) for one in sorted(every.words, key=lambda one: order.index(one.fate))]


def _carried(every: Executions) -> Iterator[str]:
    """What so many executions can show, and whether they agree."""
    for arm in _arms(every):
        p = every.agreement(arm)
        if p is not None:
            said = "agree within" if p >= 0.05 else "differ by more than"
            yield f"On {arm} the executions {said} what their own pairs let expect (Welch's test, p = {number(p, 2)})."
    yield from dict.fromkeys(carries(both) for arm in _arms(every) if (both := every.together(arm)) is not None)


def _together(every: Executions, arm: str) -> dict[str, Any] | None:
    both = every.together(arm)
    return None if both is None else {**vars(both), "agreement_p": every.agreement(arm)}


def _data(one: Execution) -> dict[str, Any]:
    return {
        "name": one.name,
        "relation": one.relation,
        "study": one.study,
        "declared_at": one.declared_at,
        "seeds": list(one.seeds),
        "unread": one.unread,
        "copy_of": one.copy_of,
        "said": _instead(one),
        "comparisons": {arm: summary(verdict) for arm, verdict in one.verdicts},
    }
