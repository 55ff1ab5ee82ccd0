"""How a study is judged: the keys of `[verdict]` and of `[[claim]]`.

The rest of the TOML is in schema.py.
"""

import re
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field
from pydantic.functional_validators import BeforeValidator
from pydantic_core import PydanticCustomError

from gspo_lab.common.keys import HUGE, MANY, Name, Table

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


class VerdictTable(Table):
    """The rule that decides the study, locked before the first step."""

    question: Annotated[str | list[str], BeforeValidator(_known_question)] = Field(
        "score",
        description=(
            "what answers the question: the `score`, the `stability` of runs, or a list of claims'"
            " names"
        ),
    )
    primary: str | None = Field(
        None,
        description=(
            "the benchmark whose share of correct answers decides. `NAME:reward` is its mean"
            " reward, `NAME:pass@8` the chance that 8 answers to a problem hold a correct one."
            " Unset: the first benchmark"
        ),
    )
    last: int = Field(
        3, ge=1, le=MANY, description="the score is averaged over this many last evaluations"
    )
    over: str | None = Field(
        None,
        description=(
            "the swept key, e.g. `update.learning_rate`: arms are compared each at its own best"
            " value, which is chosen without the seed that is scored"
        ),
    )
    margin: float = Field(
        0.02, gt=0, le=1, description="differences inside plus or minus this count as equivalent"
    )
    reward_margin: float | None = Field(
        None,
        gt=0,
        le=HUGE,
        description=(
            "the same for the mean training reward, in its own units, for claims that rewards are"
            " equal (C12, C13); unset: such claims cannot be supported"
        ),
    )
    alpha: float = Field(0.05, ge=1e-6, le=0.5, description="1 - confidence of the intervals")
    looks: list[int] | None = Field(
        None,
        min_length=1,
        description=(
            "after how many seeds to judge; the study stops at the first look at which every arm"
            " has a verdict. Unset: once, after all seeds"
        ),
    )
    contrast: dict[str, Annotated[float, Field(ge=-HUGE, le=HUGE)]] | None = Field(
        None,
        min_length=2,
        description=(
            "weights over arms that sum to 0, e.g. `{gspo = 0.5, gspo-replay = 0.5, grpo = -0.5,"
            " grpo-replay = -0.5}`: this one comparison of final scores answers the question"
        ),
    )
    names: list[str] | None = Field(
        None,
        min_length=2,
        max_length=2,
        exclude=True,  # words, like the question: another name is the same rule
        description=(
            "what the report calls the contrast's two sides, the one with positive weights first,"
            ' e.g. `["GSPO averaged over replay", "GRPO averaged over replay"]`; unset: their'
            " formulas"
        ),
    )
    order: list[str] | None = Field(
        None,
        min_length=1,
        description=(
            "every arm but the baseline, in the order of their tests, each at the whole alpha until"
            " one is inconclusive; unset: Holm's rule over all of them"
        ),
    )
    baseline: str | None = Field(
        None, description="the arm that others are compared with; unset: the first one"
    )


class ClaimTable(Table):
    """A statement that the study tests: a built-in one by its name, or one written in place.

    In place, `metric` and `statistic` make one number of each run. `comparison` relates two arms
    seed by seed (`of` to `against`). One of `above`, `below` and `inside` gives the expected
    result.
    """

    name: Name = Field(
        description=(
            "a built-in claim (`gspo-lab claims` lists them), or a new name for one in place"
        )
    )
    arms: dict[str, str] | None = Field(
        None,
        description=(
            'role = arm, e.g. `{grpo = "a"}`, in place `of` and `against`; unset: found by their'
            " settings"
        ),
    )
    source: str | None = Field(None, description="in place: whose claim it is; unset: this study's")
    metric: str | None = Field(
        None, description="in place: a metric of steps or updates, or a benchmark's name"
    )
    statistic: Statistic | None = Field(
        None, description="in place: how the metric becomes one number of a run"
    )
    comparison: Literal["difference", "ratio"] | None = Field(
        None, description="in place: `of` - `against`, or `of` / `against`"
    )
    above: float | None = Field(None, description="in place: expected above this")
    below: float | None = Field(None, description="in place: expected below this")
    inside: list[float] | None = Field(
        None, min_length=2, max_length=2, description="in place: expected between these two"
    )
