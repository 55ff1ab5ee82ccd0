"""Statements fixed before the first step, each held against what was recorded."""

from dataclasses import dataclass

from gspo_lab.analysis.claims import Claim, Estimate, Result, judge
from gspo_lab.analysis.readings import Source
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.report.templating import NOT_MEASURED, format_number, limits
from gspo_lab.report.views.verdicts import tone
from gspo_lab.report.views.view import PageOnly, View


@dataclass(frozen=True)
class ClaimsView(View):
    """A row per declared claim, and under each the published evidence against it."""

    id = "claims"
    title = "Claims"
    claims: list[JsonObject]
    rows: PageOnly[list[JsonObject]]
    """Each claim with what was measured, for a table."""
    counter_evidence: PageOnly[list[tuple[str, str, str]]]
    """A claim, a report against it, its source."""


def claims_view(study: Source) -> ClaimsView | None:
    """None for a study that declares no claim."""
    if not study.declaration.claims:
        return None
    results = judge(study)
    rows = []
    against = []
    for result in results:
        claim = result.claim
        supplements = [f"{_estimate(part)}, {part.word}" for part in result.supplementary]
        numbers = [*map(_estimate, result.parts), *supplements]
        rows.append(
            {
                "claim": claim,
                "numbers": numbers,
                "here": "; ".join(numbers) or NOT_MEASURED,
                "figure": claim.figure if result.parts else "",
                "word": result.word,
                "tone": tone(result.verdict),
                "reason": result.verdict.because,
            }
        )
        against += [(claim.id, report.text, report.source) for report in claim.counter]
    return ClaimsView(list(map(claim_to_json, results)), rows, against)


NUMBERS = ("name", "criterion", "n", "estimate", "low", "high", "p", "side", "word", "detectable")
"""The fields of an estimate that the JSON has."""


def library_entry(claim: Claim) -> JsonObject:
    """Statement, source and preconditions of a claim as plain data."""
    return {
        "id": claim.id,
        "grade": claim.grade,
        "statement": claim.statement,
        "source": claim.source,
        "source_value": claim.published,
        "criterion": claim.criterion,
        "needs": claim.presupposed,
        "roles": list(claim.roles),
        "counter_evidence": [vars(report) for report in claim.counter],
    }


def claim_to_json(result: Result) -> JsonObject:
    """A claim's result for the report's JSON and for scripts."""
    unstable = {arm: {"runs": runs, "of": n} for arm, (runs, n) in result.unstable.items()}
    return {
        **library_entry(result.claim),
        "word": result.word,
        "reason": result.verdict.because,
        "codes": [reason.code for reason in result.reasons],
        "declared": result.declared,
        "arms": dict(result.roles),
        "unstable_runs": unstable,
        "p": result.p,
        "p_adjusted": result.p_adjusted,
        "parts": list(map(_number, result.parts)),
        "also": list(map(_number, result.supplementary)),
    }


def _number(part: Estimate) -> JsonObject:
    values = {name: getattr(part, name) for name in NUMBERS}
    return values | {"note": part.reason and part.reason.text}


def _estimate(part: Estimate) -> str:
    interval = f" ({limits(part.interval)})" if part.interval else ""
    return f"{part.name}: {format_number(part.estimate)}{interval}"
