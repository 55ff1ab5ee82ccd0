"""The declared claims: the source's value beside this study's, the word and its reason, and what speaks against."""

from gspo_lab.claims import Estimate, Result, judge
from gspo_lab.readings import Source
from gspo_lab.report.chart import Section
from gspo_lab.report.markup import NOT_MEASURED, Html, format_number, h, join, markdown_table, plain, table
from gspo_lab.words import because, claim_to_json, short, tone

INTRODUCTION = (
    "Statements fixed before the first step, each held against what was recorded. Supported and contradicted need the "
    "whole interval over seeds on that side, after Holm's adjustment over the declared claims; one run never "
    "decides, and no seed that was added later counts. Only the primary score carries the study's verdict."
)
BESIDE = {"supported": "as stated", "contradicted": "not as stated", "not resolved": "inconclusive"}
"""What a number says that decides nothing."""
HEAD = ("claim", "its source says", "here", "verdict", "reason")


def claims(study: Source) -> Section | None:
    """One row per declared claim, and under each the published evidence against it."""
    if not study.declaration.claims:
        return None
    results = judge(study)
    claims_ = [result.claim for result in results]
    rows = [(claim.id, report.text, report.source) for claim in claims_ for report in claim.counter]
    body: list[Html] = [
        h("p", INTRODUCTION),
        table(HEAD, [_row(result) for result in results], class_="prose"),
    ]
    if rows:
        shown = table(("claim", "published evidence against it", "source"), rows, class_="prose")
        body.append(h("details", h("summary", f"Published evidence against these claims, {len(rows)} reports"), shown))
    listed = [
        (result.claim.id, result.claim.value, "; ".join(_parts(result)) or NOT_MEASURED, *_verdict(result))
        for result in results
    ]
    against = [f"- {plain(id)}, against: {plain(text)} ({plain(source)})" for id, text, source in rows]
    data = {"claims": [claim_to_json(result) for result in results]}
    markdown = "\n".join([markdown_table(HEAD, listed), "", *against]).strip()
    return Section("claims", "Claims", tuple(body), data, markdown)


def _verdict(result: Result) -> tuple[Html, str]:
    word = h("strong", short(result.verdict), class_=f"word {tone(result.verdict)}")
    return word, because(result.verdict) or ""


def _row(result: Result) -> tuple[Html | str, ...]:
    claim, parts = result.claim, _parts(result)
    measured = join([h("div", part) for part in parts]) if parts else NOT_MEASURED
    about = h("div", f"{claim.source} · grade {claim.grade}", class_="soft")
    name = join([h("strong", claim.id), h("div", claim.statement), about])
    link = h("div", h("a", "figure", href=f"#{claim.figure}")) if claim.figure and result.parts else ""
    return name, claim.value, join([measured, link]), *_verdict(result)


def _parts(result: Result) -> list[str]:
    beside = [f"{_estimate(estimate)}, {BESIDE[estimate.word]}" for estimate in result.supplementary]
    return [*map(_estimate, result.parts), *beside]


def _estimate(part: Estimate) -> str:
    where = part.interval
    return f"{part.name}: {format_number(part.estimate)}" + (
        f" ({format_number(where[0])} to {format_number(where[1])})" if where else ""
    )
