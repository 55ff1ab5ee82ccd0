"""Claims: statements with their source, their preconditions, and their evaluation on the records."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from gspo_lab.claims.data import ClaimData
from gspo_lab.claims.estimates import Estimate, Estimates
from gspo_lab.claims.preconditions import Roles
from gspo_lab.stats.verdict import Reason, Verdict

EvidenceGrade = Literal["A", "A/B", "B", "C", "C/D", "D"]
"""A: exact identity. B: stable at toy scale. C: learning outcome. D: needs a large mixture of experts or long
responses."""

ClaimLabel = Literal["supported", "contradicted", "not resolved", "not testable here"]


@dataclass(frozen=True)
class CounterEvidence:
    """Published evidence that speaks against a claim, or limits it."""

    text: str
    source: str


@dataclass(frozen=True)
class Claim:
    """One entry of the library, or a claim that a study writes in place; `evaluate` reads it.

    An arm must play each of the `roles`. `needs` are preconditions (`preconditions.NEEDS`): unless all are met, the
    claim is not testable. An unmet one in `for_support` blocks only support. With `moe` only arms with a routed model
    play roles. `figure` is the figure of the report that shows the claim, linked if the study has it.
    """

    id: str
    grade: EvidenceGrade
    statement: str
    source: str
    value: str
    criterion: str
    evaluate: Callable[[ClaimData, Roles], Estimates]
    roles: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    for_support: tuple[str, ...] = ()
    counter: tuple[CounterEvidence, ...] = ()
    moe: bool = False
    figure: str | None = None

    @property
    def exact(self) -> bool:
        """Whether it is an identity, which has no test and is outside the family of Holm's rule."""
        return self.grade == "A"

    def as_data(self) -> dict[str, Any]:
        """Statement, source and preconditions as plain data."""
        return {
            "id": self.id,
            "grade": self.grade,
            "statement": self.statement,
            "source": self.source,
            "source_value": self.value,
            "criterion": self.criterion,
            "needs": [*self.needs, *(f"for support: {name}" for name in self.for_support)],
            "roles": list(self.roles),
            "counter_evidence": [vars(evidence) for evidence in self.counter],
        }


@dataclass(frozen=True)
class Result:
    """The verdict of a study on one claim. `p` is the claim's own, `p_adjusted` Holm's over the declared family.

    Outside the family `p_adjusted` is None, and the claim is descriptive. `lacking` blocks support. `unstable` has per
    arm the unstable runs, and the judged ones."""

    claim: Claim
    word: ClaimLabel
    reasons: tuple[Reason, ...]
    declared: bool
    roles: Roles
    reading: Estimates = Estimates(())
    p: float | None = None
    p_adjusted: float | None = None
    lacking: tuple[Reason, ...] = ()
    unstable: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The verdict with the estimate of the first deciding number."""
        first = next(iter(self.reading.parts), Estimate("", "", 0, None))
        return Verdict(
            question="claim",
            subject=self.claim.id,
            baseline=None,
            word=self.word,
            direction={"supported": 1, "contradicted": -1}.get(self.word, 0),
            estimate=first.estimate,
            interval=first.interval,
            level=first.alpha,
            reasons=self.reasons,
        )

    @property
    def parts(self) -> tuple[Estimate, ...]:
        """The deciding numbers."""
        return self.reading.parts

    @property
    def supplementary(self) -> tuple[Estimate, ...]:
        """The numbers shown beside them."""
        return self.reading.also
