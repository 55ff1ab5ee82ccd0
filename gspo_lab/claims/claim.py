"""What a claim is: a statement with its source, what it needs, and how it is read from the records."""

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

    `roles` must each be played by an arm. `needs` are what the claim presupposes, names of `needs.NEEDS`: without one
    of them it says nothing of this study. Those in `for_support` keep it from being supported too easily; what
    contradicts it without them does so all the same. `moe`: roles are looked for among the arms whose model routes.
    `figure` is where on a report's page the claim can be seen; the page leaves the link out where the study has no
    such figure.
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
        """An identity: no test, so no member of the family that Holm's rule adjusts."""
        return self.grade == "A"

    def as_data(self) -> dict[str, Any]:
        """What is published and what it needs, JSON-able."""
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
    """What a study's evidence says of one claim. `p` is the claim's own, `p_adjusted` Holm's over the declared family
    (None outside it: then the claim is descriptive). `lacking` is what keeps it from being supported. `unstable` has
    per arm how many runs were unstable, of how many that could be judged; empty where nothing was read."""

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
        """The same as every surface states it; the estimate is that of the first number that decides."""
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
        """What decides the word."""
        return self.reading.parts

    @property
    def also(self) -> tuple[Estimate, ...]:
        """What is shown beside it."""
        return self.reading.also
