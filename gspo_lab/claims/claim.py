"""What a claim is: a statement with its source, what it needs, and how it is read from the records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from gspo_lab.claims.parts import Part, Reading
from gspo_lab.claims.recorded import Recorded

Roles = Mapping[str, str]
"""Role -> the arm that plays it, e.g. {"grpo": "grpo-tuned", "gspo": "gspo"}."""

Grade = Literal["A", "A/B", "B", "C", "C/D", "D"]
"""A: exact identity. B: stable at toy scale. C: learning outcome. D: needs a large mixture of experts or long
responses."""

Word = Literal["supported", "contradicted", "not resolved", "not testable here"]


@dataclass(frozen=True)
class Counter:
    """Published evidence that speaks against a claim, or limits it."""

    text: str
    source: str


@dataclass(frozen=True)
class Need:
    """A precondition. `check` raises Untestable with what it measured."""

    text: str
    check: Callable[[Recorded, Roles], None]


@dataclass(frozen=True)
class Claim:
    """One entry of the library. `unrecorded` says why the lab can never test it; else `evaluate` reads it.

    `roles` must each be played by an arm. `moe`: they are looked for among the arms whose model routes.
    """

    id: str
    grade: Grade
    statement: str
    source: str
    value: str
    criterion: str
    roles: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    counter: tuple[Counter, ...] = ()
    evaluate: Callable[[Recorded, Roles], Reading] | None = None
    unrecorded: str | None = None
    moe: bool = False

    @property
    def exact(self) -> bool:
        """An identity: no test, so no member of the family that Holm's rule adjusts."""
        return self.grade == "A"


@dataclass(frozen=True)
class Result:
    """What a study's evidence says of one claim. `p` is the claim's own, `p_adjusted` Holm's over the declared family
    (None outside it: then the claim is description)."""

    claim: Claim
    word: Word
    reason: str
    declared: bool
    roles: Roles
    reading: Reading | None = None
    p: float | None = None
    p_adjusted: float | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        return () if self.reading is None else self.reading.parts
