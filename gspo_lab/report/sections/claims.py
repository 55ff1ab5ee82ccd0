"""The declared claims: the source's value beside this study's, the word and its reason, and what speaks against."""

from collections.abc import Sequence

from gspo_lab.claims import Part, Result, Word, judge
from gspo_lab.claims.data import as_data, interval
from gspo_lab.findings import Findings
from gspo_lab.report.markup import NOT_MEASURED, Html, h, join, markdown_table, number, plain, table
from gspo_lab.report.section import Section

INTRODUCTION = (
    "Statements fixed before the first step, each held against what was recorded. Supported and contradicted need the "
    "whole 95 % interval over seeds on that side, after Holm's adjustment over the declared claims; one run never "
    "decides. Only the primary score carries the study's verdict."
)
HEAD = ("claim", "its source says", "here", "word", "reason")

WORDS: dict[Word, str] = {
    "supported": "decided",
    "contradicted": "against",
    "not resolved": "open",
    "not testable here": "missing",
}

FIGURES = {
    "C01-first-minibatch": "m-clip-minibatch",
    "C03-equal-weights": "m-ratio-max-negative",
    "C04-clip-gap": "m-clip",
    "C05-gap-robust": "m-would-clip",
    "C06-grows-with-mb": "m-clip-minibatch",
    "C07-sqrt-length": "m-log-ratio-std-responses",
    "C09-expert-change": "m-expert-layer",
    "C10-flips-cause-noise": "m-expert-change",
    "C11-moe-noisier": "m-log-ratio-std-tokens",
    "C12-grpo-needs-replay": "m-reward",
    "C13-gspo-no-replay": "m-forest-scores",
    "C14-more-efficient": "m-reward",
    "C16-moe-mismatch": "m-mismatch-k3",
    "C18-dose-response": "m-collapsed-by-dose",
    "C19-band-insensitive": "m-forest-scores",
    "C20-length-bias": "m-response-tokens-mean",
    "C21-precursors": "m-grad-norm",
    "C22-few-bad-tokens": "m-ratio-max-negative",
    "C23-stable-then-equal": "m-forest-scores",
    "C24-less-variance": "m-grad-norm",
    "C25-length-free-norm": "m-grad-norm",
}
"""Where on the page a claim can be seen. The page leaves a link out where the study has no such figure."""


def claims(found: Findings) -> Section | None:
    """One row per declared claim, and under each the published evidence against it."""
    declared = found.declaration.claims
    if not declared:
        return None
    figures = FIGURES | {one.name: _figure_of(one.metric, found.benches) for one in declared if one.metric}
    results = judge(found)
    counter = [(result, one) for result in results for one in result.claim.counter]
    body: list[Html] = [
        h("p", INTRODUCTION),
        table(HEAD, [_row(result, figures.get(result.claim.id)) for result in results], class_="prose"),
    ]
    if counter:
        rows = [(result.claim.id, one.text, one.source) for result, one in counter]
        body.append(table(("claim", "published evidence against it", "source"), rows, class_="prose"))
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


def _figure_of(metric: str, benches: Sequence[str]) -> str:
    """The figure of a claim in place: of its benchmark, or of its metric."""
    if metric in benches:
        return f"m-final-{metric}"
    return {"clip_fraction_tokens": "m-clip", "reward_mean": "m-reward"}.get(metric, f"m-{metric.replace('_', '-')}")


def _row(result: Result, figure: str | None) -> tuple[Html | str, ...]:
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
    word = h("strong", result.word, class_=f"word {WORDS[result.word]}")
    link = h("div", h("a", "figure", href=f"#{figure}")) if figure and result.reading is not None else ""
    return name, claim.value, join([here, link]), word, result.reason


def _parts(result: Result) -> list[str]:
    """What was read, part by part, with its interval."""
    return [] if result.reading is None else [_part(part) for part in (*result.reading.parts, *result.reading.also)]


def _part(part: Part) -> str:
    where = interval(part)
    return f"{part.name}: {number(part.estimate)}" + (f" ({number(where[0])} to {number(where[1])})" if where else "")
