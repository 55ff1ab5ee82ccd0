"""What a claim is: a statement with its source, what it needs, and how it is read from the records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gspo_lab.claims.estimates import Estimate, Estimates
from gspo_lab.claims.recorded import Recorded
from gspo_lab.stats.verdict import Reason, Verdict

Roles = Mapping[str, str]
"""Role -> the arm that plays it, e.g. {"grpo": "grpo-tuned", "gspo": "gspo"}."""

Grade = Literal["A", "A/B", "B", "C", "C/D", "D"]
"""A: exact identity. B: stable at toy scale. C: learning outcome. D: needs a large mixture of experts or long
responses."""

Word = Literal["supported", "contradicted", "not resolved", "not testable here"]

SHOWN = ("name", "criterion", "n", "estimate", "low", "high", "p", "side", "detectable", "note")
"""The fields of an estimate that plain data hold."""


@dataclass(frozen=True)
class Counter:
    """Published evidence that speaks against a claim, or limits it."""

    text: str
    source: str


@dataclass(frozen=True)
class Need:
    """A precondition. `unmet` says what was measured that does not meet it; None: met. `code` is the reason's."""

    text: str
    unmet: Callable[[Recorded, Roles], str | None]
    code: str = "unmet"


@dataclass(frozen=True)
class Claim:
    """One entry of the library. `unrecorded` says why the lab can never test it; else `evaluate` reads it.

    `roles` must each be played by an arm. `needs` are what the claim presupposes: without one of them it says nothing
    of this study. Those in `for_support` keep it from being supported too easily; what contradicts it without them
    does so all the same. `moe`: roles are looked for among the arms whose model routes. `figure` is where on a report's
    page the claim can be seen; the page leaves the link out where the study has no such figure.
    """

    id: str
    grade: Grade
    statement: str
    source: str
    value: str
    criterion: str
    roles: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    for_support: tuple[Need, ...] = ()
    counter: tuple[Counter, ...] = ()
    evaluate: Callable[[Recorded, Roles], Estimates] | None = None
    unrecorded: str | None = None
    moe: bool = False
    figure: str | None = None

    @property
    def exact(self) -> bool:
        """An identity: no test, so no member of the family that Holm's rule adjusts."""
        return self.grade == "A"

    @property
    def wanted(self) -> tuple[str, ...]:
        """All of its needs in words."""
        return (*(need.text for need in self.needs), *(f"for support: {need.text}" for need in self.for_support))

    def as_data(self) -> dict[str, Any]:
        """What is published and what it needs, JSON-able."""
        return {
            "id": self.id,
            "grade": self.grade,
            "statement": self.statement,
            "source": self.source,
            "source_value": self.value,
            "criterion": self.criterion,
            "needs": list(self.wanted),
            "roles": list(self.roles),
            "counter_evidence": [vars(one) for one in self.counter],
            "unrecorded": self.unrecorded,
        }


@dataclass(frozen=True)
class Result:
    """What a study's evidence says of one claim. `p` is the claim's own, `p_adjusted` Holm's over the declared family
    (None outside it: then the claim is descriptive). `lacking` is what keeps it from being supported, in words."""

    claim: Claim
    word: Word
    reasons: tuple[Reason, ...]
    declared: bool
    roles: Roles
    reading: Estimates | None = None
    p: float | None = None
    p_adjusted: float | None = None
    lacking: tuple[Reason, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The same as every surface states it; the estimate is that of the first number that decides."""
        first = self.parts[0] if self.parts else None
        return Verdict(
            question="claim",
            subject=self.claim.id,
            baseline=None,
            word=self.word,
            direction={"supported": 1, "contradicted": -1}.get(self.word, 0),
            estimate=None if first is None else first.estimate,
            interval=None if first is None else first.interval,
            level=Estimate.alpha if first is None else first.alpha,
            reasons=self.reasons,
        )

    @property
    def reason(self) -> str:
        """All reasons in one line."""
        return "; ".join(str(reason.data["why"]) for reason in self.reasons)

    @property
    def parts(self) -> tuple[Estimate, ...]:
        """What decides the word."""
        return () if self.reading is None else self.reading.parts

    @property
    def also(self) -> tuple[Estimate, ...]:
        """What is shown beside it."""
        return () if self.reading is None else self.reading.also

    def as_data(self) -> dict[str, Any]:
        """For a report's .json and for scripts."""
        return {
            **self.claim.as_data(),
            "word": self.word,
            "reason": self.reason,
            "declared": self.declared,
            "arms": dict(self.roles),
            "p": self.p,
            "p_adjusted": self.p_adjusted,
            "parts": [{name: getattr(one, name) for name in SHOWN} for one in self.parts],
            "also": [{name: getattr(one, name) for name in SHOWN} for one in self.also],
        }
