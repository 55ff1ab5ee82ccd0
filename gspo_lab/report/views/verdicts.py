"""A verdict with what the report shows of it. The macros of text.j2 state it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gspo_lab.analysis.findings.decision import Ungraded, decision
from gspo_lab.analysis.findings.paired_comparisons import new_problems
from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.stats import Comparison, TwoWay, Verdict
from gspo_lab.analysis.stats.stability import StabilityVerdict, comparison
from gspo_lab.analysis.stats.verdict import NOT_SHOWN_BEYOND
from gspo_lab.common.plain_data import OptionalInt
from gspo_lab.report.templating import statement
from gspo_lab.report.views.calibration import UnevenRate, uneven_rate
from gspo_lab.report.views.view import Inlined, PageOnly

Tone = Literal["decided", "leaning", "worse", "open", "missing"]


@dataclass(frozen=True)
class VerdictView:
    """A verdict, what follows from its numbers, and what its study knows beside them."""

    verdict: Inlined[Verdict]
    label: str
    direction: int
    sentence: str
    better: str | None
    seeds_for_margin: OptionalInt
    seeds_for_equivalence: OptionalInt
    uneven: UnevenRate | None
    reading: str
    new_problems: TwoWay | None = None
    """The interval that holds for other problems too."""
    ungraded: Ungraded | None = None
    planned: PageOnly[int] = 0
    missing: PageOnly[Sequence[str]] = ()
    """Its runs without a score, in words."""

    @property
    def of_stability(self) -> bool:
        """Whether the verdict is on stability."""
        return isinstance(self.verdict, StabilityVerdict)

    @property
    def compared(self) -> Comparison:
        """The comparison of pairs behind the verdict."""
        return comparison(self.verdict)


def verdict_view(verdict: Verdict, study: Source | None = None) -> VerdictView:
    """The view of a verdict, which every output shows; without its study what the verdict alone
    says.
    """
    compared = comparison(verdict)
    of_scores = compared is verdict
    shown = VerdictView(
        verdict,
        statement("label", verdict),
        verdict.direction,
        statement("sentence", verdict),
        verdict.better,
        compared.seeds_for_margin,
        compared.seeds_for_equivalence,
        uneven_rate(compared) if of_scores else None,
        f"{verdict.question}.difference",
    )
    if study is None:
        return shown
    decided = decision(study)
    subject = verdict.subject
    return replace(
        shown,
        new_problems=new_problems(study).get(subject) if of_scores else None,
        ungraded=decided.ungraded.get(subject) if of_scores else None,
        planned=len(decided.seeds),
        missing=decided.missing.get(subject, ()),
    )


def tone(verdict: Verdict) -> Tone:
    """How the word of a verdict looks: never favourable where it speaks against its subject."""
    if verdict.word == "not testable here":
        return "missing"
    if not verdict.resolved:
        return "open"
    if verdict.direction < 0:
        return "worse"
    return "leaning" if verdict.word in NOT_SHOWN_BEYOND else "decided"
