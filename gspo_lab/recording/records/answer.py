"""What is recorded of answers: each whole, their later grades, and scores whose answers another
program kept.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from gspo_lab.recording.records.field import key, metric

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

    step: int = key(
        "rollout batches trained on before this answer was sampled; 0 is the starting model"
    )
    bench: str = key("the benchmark's name, or 'rollout' for a training response")
    problem: str = key("the problem's id")
    sample: int = key("index of the answer among those to the same problem")
    sample_seed: int | None = metric(
        "-", "a benchmark's answer: the seed of its random numbers; NULL for a training response"
    )
    prompt: str | None = metric("-", "the prompt, as the model saw it")
    prompt_version: str | None = metric(
        "-", "name and version of the form in which the problem was asked"
    )
    text: str | None = metric("-", "the response as text")
    tokens: int | None = metric(
        "tokens",
        "response length with the end-of-sequence token; with several turns the tokens of the"
        " model",
    )
    turns: list[dict[str, Any]] | None = metric(
        "-",
        "tasks of several turns only, by turn: the model's `text` without stop text, its `tokens`,"
        " the environment's `reply`, its `reward` if turns have their own, `error` if the"
        " environment failed (JSON)",
    )
    truncated: int | None = metric("0 or 1", "1 if the response was cut at the token limit")
    extracted: str | None = metric(
        "-", "the part of the text that was graded; NULL if none was found"
    )
    reference: str | None = metric("-", "the correct answer")
    reward: float | None = metric("reward", "the grade; NULL if the grader failed, see `error`")
    rewards: dict[str, float] | None = metric(
        "reward", "rewards by name; only for a task that names them (JSON)"
    )
    correct: int | None = metric(
        "0 or 1", "1 if the answer counts as correct; NULL if the grader failed"
    )
    reason: str | None = metric("-", "why it was graded so")
    error: str | None = metric(
        "-", "why the grader failed; such an answer is ungraded and does not count as incorrect"
    )
    grader: str | None = metric("-", "the grader's name and version")
    isolation: str | None = metric(
        "-", "isolation of the answer's program in the sandbox; NULL if none was run"
    )
    advantage: float | None = metric(
        "-", "a training response's advantage; NULL for a benchmark's answer"
    )
    answered_by: str | None = metric(
        "-",
        "the model that answered, by the server's word, if it is not the requested one; else NULL",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRecord:
    """A benchmark's score as another program logged it, whose single answers it did not keep. Made
    by `importers`.

    `ScoreRecord(step=40, bench="gsm8k", score=0.71)`
    """

    kind: ClassVar[str] = "score"
    table: ClassVar[str] = "logged_scores"

    step: int = key(
        "steps trained before the evaluation, as the program counts them; 0 is the starting model"
    )
    bench: str = key("the benchmark's name")
    score: float | None = metric("-", "the logged score; the run's origin has its rule")


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
    sample: int = key("the answer's index among those to the same problem")
    extracted: str | None = metric(
        "-", "the part of the text that was graded; NULL if none was found"
    )
    reward: float | None = metric("reward", "the grade; NULL if the grader failed, see `error`")
    correct: int | None = metric(
        "0 or 1", "1 if the answer counts as correct; NULL if the grader failed"
    )
    reason: str | None = metric("-", "why it was graded so")
    error: str | None = metric(
        "-", "why the grader failed; such an answer is ungraded and does not count as incorrect"
    )
    grader: str | None = metric("-", "the grader's name and version")
    isolation: str | None = metric(
        "-", "isolation of the answer's program in the sandbox; NULL if none was run"
    )
    at: float | None = metric("s since 1970", "wall-clock time of grading")


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer in the database, with the grade in force."""

    bench: str
    step: int
    problem: str
    sample: int
    text: str | None
    truncated: int | None
    extracted: str | None
    reward: float | None
    correct: int | None
    reason: str | None
    error: str | None
    grader: str | None
    isolation: str | None
    turns: str | None = None
    """As JSON, of a task of several."""
