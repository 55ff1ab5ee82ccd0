"""How a study is judged: the keys of `[verdict]` and of `[[claim]]`.

The rest of the TOML is in schema.py.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field
from pydantic.functional_validators import BeforeValidator
from pydantic_core import PydanticCustomError

from gspo_lab.common.keys import HUGE, MANY, Name, Table
from gspo_lab.common.plain_data import OptionalFloat, OptionalText

Statistic = Literal[
    "mean over updates",
    "mean over updates with minibatch = 0",
    "mean over updates with minibatch >= 1",
    "mean over steps",
    "mean over the last fifth",
    "area under the curve",
    "largest",
    "mean over the last evaluations",
]


def _known_question(value: Any) -> Any:
    names = value if isinstance(value, list) else None
    if value in ("score", "stability") or (names and all(type(name) is str for name in names)):
        return value
    raise PydanticCustomError(
        "question", "must be 'score', 'stability' or a list of the names of its claims"
    )


class Score(NamedTuple):
    """How a benchmark's answers become a score: the share of correct ones, pass@k, or the mean
    reward.
    """

    bench: str
    reward: bool = False
    k: int = 1


def score_named(name: str) -> Score:
    """`"gsm8k"`, `"gsm8k:pass@8"` or `"gsm8k:reward"`, as `verdict.primary` names them."""
    match = re.fullmatch(r"(.+?)(:reward|:pass@(\d+))?", name, re.DOTALL)
    bench, kind, k = match.groups() if match else (name, None, None)
    return Score(bench, kind == ":reward", int(k or 1))


def in_last_fifth(step: int, steps: int) -> bool:
    """Whether a step lies in the last fifth of a training of so many steps."""
    return 5 * step > 4 * steps


class VerdictTable(Table):
    """The rule that decides the study, locked before the first step."""

    question: Annotated[str | list[str], BeforeValidator(_known_question)] = Field(
        "score",
        description="what decides: the `score`, the `stability` of runs, or a list of claims",
    )
    primary: OptionalText = Field(
        None,
        description=(
            "the deciding benchmark, by its share of correct answers; `NAME:reward`: by mean"
            " reward; `NAME:pass@8`: by the chance that 8 answers hold a correct one. Unset: the"
            " first"
        ),
    )
    last: int | None = Field(
        None,
        ge=1,
        le=MANY,
        description=(
            "how many last evaluations the score averages; unset: those of the last fifth of the"
            " training, at least one"
        ),
    )
    over: OptionalText = Field(
        None,
        description=(
            "the swept key, e.g. `update.learning_rate`: arms are compared at their own best"
            " values, chosen without the scored seed"
        ),
    )
    margin: float = Field(
        0.02, gt=0, le=1, description="differences within plus or minus this are equivalent"
    )
    reward_margin: OptionalFloat = Field(
        None,
        gt=0,
        le=HUGE,
        description=(
            "the same for mean training reward, in its units; unset: claims C12 and C13 cannot be"
            " supported"
        ),
    )
    alpha: float = Field(0.05, ge=1e-6, le=0.5, description="1 - confidence of the intervals")
    looks: list[int] | None = Field(
        None,
        min_length=1,
        description=(
            "numbers of seeds after which to judge; the study stops once every arm has a verdict."
            " Unset: after all seeds"
        ),
    )
    contrast: dict[str, Annotated[float, Field(ge=-HUGE, le=HUGE)]] | None = Field(
        None,
        min_length=2,
        description=(
            "weights over arms, with sum 0, e.g. `{a = 0.5, b = 0.5, c = -1.0}`: this comparison of"
            " final scores answers the question"
        ),
    )
    names: list[str] | None = Field(
        None,
        min_length=2,
        max_length=2,
        exclude=True,  # words, like the question: another name is the same rule
        description=(
            "names of the contrast's two sides, positive weights first; unset: their formulas"
        ),
    )
    chosen: OptionalText = Field(
        None,
        min_length=1,
        exclude=True,  # words, too
        description="how the settings were chosen, a sentence for the report",
    )
    order: list[str] | None = Field(
        None,
        min_length=1,
        description=(
            "every arm but the baseline, tested in this order, each at the whole alpha until one"
            " is inconclusive; unset: Holm's rule"
        ),
    )
    baseline: OptionalText = Field(
        None, description="the arm that others are compared with; unset: the first"
    )

    def deciding(self, steps: Sequence[int]) -> list[int]:
        """The steps of the evaluations whose mean is a run's final score.

        `steps` are those after which the run was evaluated, in order. The start's never counts.
        """
        trained = [step for step in steps if step > 0]
        if self.last is not None:
            return trained[-self.last :]
        return [step for step in trained if in_last_fifth(step, trained[-1])]


class ClaimTable(Table):
    """A statement that the study tests: a built-in one by its name, or one written in place.

    In place, `metric` and `statistic` make one number of each run, and `comparison` relates the
    arms `of` and `against` seed by seed. One of `above`, `below` and `inside` is the expectation.
    """

    name: Name = Field(description="a built-in claim (`gspo-lab claims`), or a new name")
    arms: dict[str, str] | None = Field(
        None,
        description=(
            'role = arm, e.g. `{grpo = "a"}`; in place `of` and `against`; unset: by their settings'
        ),
    )
    source: OptionalText = Field(None, description="whose claim it is; unset: this study's")
    metric: OptionalText = Field(None, description="a metric of steps or updates, or a benchmark")
    statistic: Statistic | None = Field(
        None, description="how the metric becomes one number of a run"
    )
    comparison: Literal["difference", "ratio"] | None = Field(
        None, description="`of` - `against`, or `of` / `against`"
    )
    above: OptionalFloat = Field(None, description="expected above this")
    below: OptionalFloat = Field(None, description="expected below this")
    inside: list[float] | None = Field(
        None, min_length=2, max_length=2, description="expected between these two"
    )
