"""What is recorded of answers: each whole, their later grades, and scores whose answers another
program kept.
"""

from dataclasses import dataclass
from typing import ClassVar

from gspo_lab.common.plain_data import JsonObject, OptionalFloat, OptionalInt, OptionalText
from gspo_lab.recording.records.metric import key, metric

ROLLOUT = "rollout"
"""The bench under which training responses are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRecord:
    """One response to one problem, whole: a benchmark's answer, or a training rollout at the
    declared rate.

    `AnswerRecord(step=40, bench="addition", problem="add3-held-17", sample=0, text="...",
    tokens=22, reward=1.0, ...)` Scores are computed from these rows, never stored in their place.
    """

    kind: ClassVar[str] = "answer"
    table: ClassVar[str] = "answers"

    step: int = key("rollout batches trained on before; 0: the starting model")
    bench: str = key("the benchmark, or 'rollout' for a training response")
    problem: str = key("the problem's id")
    sample: int = key("index among the answers to the problem")
    sample_seed: OptionalInt = metric(
        "seed of the answer's random numbers; NULL for a training response"
    )
    prompt: OptionalText = metric("the prompt as the model saw it")
    prompt_version: OptionalText = metric("name and version of the prompt's form")
    text: OptionalText = metric("the response as text")
    tokens: OptionalInt = metric(
        "length with the end-of-sequence token; of several turns, the model's tokens only", "tokens"
    )
    turns: list[JsonObject] | None = metric(
        "by turn: the model's `text` without stop text, its `tokens`, the environment's"
        " `reply`, its own `reward`, `error` if the environment failed; tasks of several turns"
        " only"
    )
    truncated: OptionalInt = metric("1: cut at the token limit", "0 or 1")
    extracted: OptionalText = metric("the graded part of the text; NULL if none was found")
    reference: OptionalText = metric("the correct answer")
    reward: OptionalFloat = metric("the grade; NULL if the grader failed", "reward")
    rewards: dict[str, float] | None = metric(
        "rewards by name; tasks with such rewards only", "reward"
    )
    correct: OptionalInt = metric("1: correct; NULL if the grader failed", "0 or 1")
    reason: OptionalText = metric("why it was graded so")
    error: OptionalText = metric("why the grader failed; the answer is ungraded, not incorrect")
    grader: OptionalText = metric("the grader's name and version")
    isolation: OptionalText = metric("sandbox isolation of the answer's program; NULL if none ran")
    advantage: OptionalFloat = metric(
        "a training response's advantage; NULL for a benchmark's answer"
    )
    answered_by: OptionalText = metric(
        "the model that answered, by the server's word, if not the requested one"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRecord:
    """A benchmark's score as another program logged it, whose single answers it did not keep. Made
    by `importers`.

    `ScoreRecord(step=40, bench="gsm8k", score=0.71)`
    """

    kind: ClassVar[str] = "score"
    table: ClassVar[str] = "logged_scores"

    step: int = key("steps trained before, as the program counts them; 0: the starting model")
    bench: str = key("the benchmark's name")
    score: OptionalFloat = metric("the logged score; the run's origin has its rule")


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeRecord:
    """A later grade of a stored answer, by `gspo-lab records regrade --apply`. The answer keeps the
    grade that it got first.

    `GradeRecord(bench="aime24", step=0, problem="60", sample=3, correct=1, reward=1.0,
    grader="aime/2", at=1.7e9)` The last one of an answer is the grade in force: scores follow it.
    """

    kind: ClassVar[str] = "grade"
    table: ClassVar[str] = "grades"

    bench: str = key("the answer's benchmark")
    step: int = key("the answer's step")
    problem: str = key("the answer's problem")
    sample: int = key("the answer's index")
    extracted: OptionalText = metric("the graded part of the text; NULL if none was found")
    reward: OptionalFloat = metric("the grade; NULL if the grader failed", "reward")
    correct: OptionalInt = metric("1: correct; NULL if the grader failed", "0 or 1")
    reason: OptionalText = metric("why it was graded so")
    error: OptionalText = metric("why the grader failed; the answer is ungraded, not incorrect")
    grader: OptionalText = metric("the grader's name and version")
    isolation: OptionalText = metric("sandbox isolation of the answer's program; NULL if none ran")
    at: OptionalFloat = metric("time of grading", "s since 1970")


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer in the database, with the grade in force."""

    bench: str
    step: int
    problem: str
    sample: int
    text: OptionalText
    truncated: OptionalInt
    extracted: OptionalText
    reward: OptionalFloat
    correct: OptionalInt
    reason: OptionalText
    error: OptionalText
    grader: OptionalText
    isolation: OptionalText
    turns: OptionalText = None
    """As JSON, of a task of several."""
