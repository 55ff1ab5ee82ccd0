"""The declared claims: the source's value beside this study's, the word and its reason, and what speaks against."""

from typing import TYPE_CHECKING

from gspo_lab.claims import Part, Result, judge
from gspo_lab.claims.data import as_data, interval
from gspo_lab.matching import certificate
from gspo_lab.report.markup import NOT_MEASURED, Html, h, join, markdown_table, number, plain, table
from gspo_lab.report.section import Section

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

INTRODUCTION = (
    "Statements fixed before the first step, each held against what was recorded. Supported and contradicted need the "
    "whole 95 % interval over seeds on that side, after Holm's adjustment over the declared claims; one run never "
    "decides. Only the primary score carries the study's verdict."
)
HEAD = ("claim", "its source says", "here", "word", "reason")


def claims(evidence: "Evidence", study: str) -> Section | None:
    """One row per declared claim, and under each the published evidence against it."""
    if not evidence.study(study).get("claims"):
        return None
    results = judge(evidence, study, mismatches=certificate(evidence, study).against)
    counter = [(result, one) for result in results for one in result.claim.counter]
    body: list[Html] = [h("p", INTRODUCTION), table(HEAD, [_row(result) for result in results])]
    if counter:
        rows = [(result.claim.id, one.text, one.source) for result, one in counter]
        body.append(table(("claim", "published evidence against it", "source"), rows))
    shown = [
        [result.claim.id, result.claim.value, "; ".join(_parts(result)) or NOT_MEASURED, result.word, result.reason]
        for result in results
    ]
    markdown = [markdown_table(HEAD, shown)]
    markdown += [
        f"- {plain(result.claim.id)}, against: {plain(one.text)} ({plain(one.source)})" for result, one in counter
    ]
    data = {"claims": [as_data(result) for result in results]}
    return Section("claims", "Claims", tuple(body), data, "\n".join([markdown[0], "", *markdown[1:]]).strip())


def _row(result: Result) -> tuple[Html | str, ...]:
    claim = result.claim
    said = _parts(result)
    here = join([h("div", one) for one in said]) if said else NOT_MEASURED
    name = join([h("strong", claim.id), " ", claim.statement, h("div", f"{claim.source} · grade {claim.grade}")])
    return name, claim.value, here, h("strong", result.word), result.reason


def _parts(result: Result) -> list[str]:
    """What was read, part by part, with its interval."""
    return [] if result.reading is None else [_part(part) for part in (*result.reading.parts, *result.reading.also)]


def _part(part: Part) -> str:
    where = interval(part)
    return f"{part.name}: {number(part.estimate)}" + (f" ({number(where[0])} to {number(where[1])})" if where else "")
