"""The declared claims: the source's value beside this study's, the word and its reason, and what speaks against."""

from gspo_lab.claims import Estimate, Result, judge
from gspo_lab.readings import Source
from gspo_lab.report.markup import NOT_MEASURED, Html, h, join, markdown_table, number, plain, table
from gspo_lab.report.section import Section
from gspo_lab.words import because, claim_to_json, short, tone

INTRODUCTION = (
    "Statements fixed before the first step, each held against what was recorded. Supported and contradicted need the "
    "whole interval over seeds on that side, after Holm's adjustment over the declared claims; one run never "
    "decides, and no seed that was added later counts. Only the primary score carries the study's verdict."
)
BESIDE = {"supported": "as stated", "contradicted": "not as stated", "not resolved": "inconclusive"}
"""What a number says that decides nothing."""
HEAD = ("claim", "its source says", "here", "verdict", "reason")


def claims(found: Source) -> Section | None:
    """One row per declared claim, and under each the published evidence against it."""
    if not found.declaration.claims:
        return None
    results = judge(found)
    counter = [(result, one) for result in results for one in result.claim.counter]
    body: list[Html] = [
        h("p", INTRODUCTION),
        table(HEAD, [_row(result) for result in results], class_="prose"),
    ]
    if counter:
        rows = [(result.claim.id, one.text, one.source) for result, one in counter]
        shown = table(("claim", "published evidence against it", "source"), rows, class_="prose")
        body.append(h("details", h("summary", f"Published evidence against these claims, {len(rows)} reports"), shown))
    told = [
        [
            result.claim.id,
            result.claim.value,
            "; ".join(_parts(result)) or NOT_MEASURED,
            short(result.verdict),
            because(result.verdict) or "",
        ]
        for result in results
    ]
    markdown = [markdown_table(HEAD, told)]
    markdown += [
        f"- {plain(result.claim.id)}, against: {plain(one.text)} ({plain(one.source)})" for result, one in counter
    ]
    data = {"claims": [claim_to_json(result) for result in results]}
    return Section("claims", "Claims", tuple(body), data, "\n".join([markdown[0], "", *markdown[1:]]).strip())


def _row(result: Result) -> tuple[Html | str, ...]:
    claim = result.claim
    said = _parts(result)
    here = join([h("div", one) for one in said]) if said else NOT_MEASURED
    name = join(
        [
            h("strong", claim.id),
            h("div", claim.statement),
            h("div", f"{claim.source} · grade {claim.grade}", class_="soft"),
        ]
    )
    word = h("strong", short(result.verdict), class_=f"word {tone(result.verdict)}")
    link = h("div", h("a", "figure", href=f"#{claim.figure}")) if claim.figure and result.parts else ""
    return name, claim.value, join([here, link]), word, because(result.verdict) or ""


def _parts(result: Result) -> list[str]:
    """What was read, number by number, with its interval."""
    beside = [f"{_estimate(one)}, {BESIDE[one.word]}" for one in result.also]
    return [*map(_estimate, result.parts), *beside]


def _estimate(one: Estimate) -> str:
    where = one.interval
    return f"{one.name}: {number(one.estimate)}" + (f" ({number(where[0])} to {number(where[1])})" if where else "")
