"""A claim: a function of a study's arms with what it cites and presupposes."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from gspo_lab.analysis.claims.data import ClaimData
from gspo_lab.analysis.claims.estimates import Estimates
from gspo_lab.analysis.claims.preconditions import Need
from gspo_lab.analysis.claims.published import CounterEvidence, counter_evidence
from gspo_lab.common.plain_data import Strings

EvidenceGrade = Literal["A", "A/B", "B", "C", "C/D", "D"]
"""A: exact identity. B: stable at toy scale. C: learning outcome. D: needs a large mixture of
experts or long responses."""


@dataclass(frozen=True)
class Claim:
    """One entry of the library, or a claim that a study writes in place.

    `evaluate` is called with the study's data and the arm of each of the `roles`. Unless all
    `needs` are met, the claim is not testable. An unmet one in `for_support` blocks only support.
    With `moe` only arms with a routed model play roles. `figure` is the figure of the report that
    shows the claim, linked if the study has it.
    """

    id: str
    grade: EvidenceGrade
    statement: str
    source: str
    published: str
    criterion: str
    evaluate: Callable[..., Estimates]
    roles: Strings
    needs: tuple[Need, ...] = ()
    for_support: tuple[Need, ...] = ()
    counter: tuple[CounterEvidence, ...] = ()
    moe: bool = False
    figure: str | None = None

    @property
    def exact(self) -> bool:
        """Whether it is an identity, which has no test and is outside the family of Holm's rule."""
        return self.grade == "A"

    @property
    def presupposed(self) -> list[str]:
        """All preconditions in words."""
        for_support = [f"for support: {need.text}" for need in self.for_support]
        return [need.text for need in self.needs] + for_support

    def read(self, data: ClaimData) -> Estimates:
        """The claim's numbers of these arms. Raises Untestable where one was not measured."""
        return self.evaluate(data, *data.arms)


def claim(
    name: str, *, grade: EvidenceGrade, source: str, published: str, criterion: str, **stated: Any
) -> Callable[[Callable[..., Estimates]], Claim]:
    """Makes a claim of a function.

    The first paragraph of its docstring is the statement. Its parameters after the data are the
    roles: `grpo_replay` is the arm in the role grpo-replay. `stated` are other fields of a Claim.
    What published.toml holds against the claim is its `counter`.
    """

    def decorate(function: Callable[..., Estimates]) -> Claim:
        parameters = list(inspect.signature(function).parameters)
        statement = (inspect.getdoc(function) or "").split("\n\n", maxsplit=1)[0]
        return Claim(
            name,
            grade,
            " ".join(statement.split()),
            source,
            published,
            criterion,
            function,
            tuple(parameter.replace("_", "-") for parameter in parameters[1:]),
            **{"counter": counter_evidence(name), **stated},
        )

    return decorate
