"""Statements fixed before the first step, each held against what was recorded."""

from dataclasses import dataclass

from gspo_lab.analysis.claims import Claim, Estimate, Result, judge
from gspo_lab.analysis.claims.published import CounterEvidence
from gspo_lab.analysis.readings import Source
from gspo_lab.common.plain_data import OptionalFloat, Strings
from gspo_lab.report.templating import NOT_MEASURED, format_number, limits
from gspo_lab.report.views.verdicts import Tone, tone
from gspo_lab.report.views.view import Inlined, PageOnly, View


@dataclass(frozen=True)
class LibraryEntry:
    """A claim with its source and what it presupposes."""

    id: str
    grade: str
    statement: str
    source: str
    source_value: str
    criterion: str
    needs: list[str]
    roles: Strings
    counter_evidence: tuple[CounterEvidence, ...]


@dataclass(frozen=True)
class EstimateView:
    """One number of a claim with its label."""

    estimate: Inlined[Estimate]
    word: str


@dataclass(frozen=True)
class ClaimView:
    """A claim with what was measured here."""

    claim: Inlined[LibraryEntry]
    word: str
    reason: str
    codes: list[str]
    declared: bool
    arms: dict[str, str]
    unstable_runs: dict[str, dict[str, int]]
    p: OptionalFloat
    p_adjusted: OptionalFloat
    parts: list[EstimateView]
    also: list[EstimateView]
    numbers: PageOnly[list[str]]
    figure: PageOnly[str]
    tone: PageOnly[Tone]

    @property
    def here(self) -> str:
        """What was measured, in a table's cell."""
        return "; ".join(self.numbers) or NOT_MEASURED


@dataclass(frozen=True)
class ClaimsView(View):
    """A row per declared claim, and the published evidence against it."""

    id = "claims"
    title = "Claims"
    claims: list[ClaimView]

    @property
    def counter_evidence(self) -> list[tuple[str, str, str]]:
        """A claim, a report against it, its source."""
        reports = []
        for shown in self.claims:
            claim = shown.claim
            reports += [(claim.id, each.text, each.source) for each in claim.counter_evidence]
        return reports


def claims_view(study: Source) -> ClaimsView | None:
    """None for a study that declares no claim."""
    if not study.declaration.claims:
        return None
    return ClaimsView(list(map(claim_view, judge(study))))


def library_entry(claim: Claim) -> LibraryEntry:
    """What the literature says of a claim."""
    return LibraryEntry(
        claim.id,
        claim.grade,
        claim.statement,
        claim.source,
        claim.published,
        claim.criterion,
        claim.presupposed,
        claim.roles,
        claim.counter,
    )


def claim_view(result: Result) -> ClaimView:
    """A claim's result for the report and for scripts."""
    beside = [f"{_text(part)}, {part.word}" for part in result.supplementary]
    return ClaimView(
        library_entry(result.claim),
        result.word,
        result.verdict.because,
        [reason.code for reason in result.reasons],
        result.declared,
        dict(result.roles),
        {arm: {"runs": runs, "of": n} for arm, (runs, n) in result.unstable.items()},
        result.p,
        result.p_adjusted,
        [EstimateView(part, part.word) for part in result.parts],
        [EstimateView(part, part.word) for part in result.supplementary],
        numbers=[*map(_text, result.parts), *beside],
        figure=result.claim.figure or "" if result.parts else "",
        tone=tone(result.verdict),
    )


def _text(part: Estimate) -> str:
    interval = f" ({limits(part.interval)})" if part.interval else ""
    return f"{part.name}: {format_number(part.estimate)}{interval}"
