"""Sample and grade one benchmark: held-out problems in, complete graded answers out.

Scores are computed from these answers.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gspo_lab.common.plain_data import JsonMapping, JsonObject, OptionalInt
from gspo_lab.recording.records import AnswerRecord
from gspo_lab.study import BenchTable
from gspo_lab.tasks.base import Grade, Problem, Problems, Task, Turn, grade_answer
from gspo_lab.training.samplers.base import Request, Rollout, Sampler, Sampling, noise_key
from gspo_lab.training.samplers.multi_turn import sample_multi_turn

ANSWERS_AT_A_TIME = 512
POSITIONS_AT_A_TIME = 32_768
"""Bounds of one sampler call: its memory grows with answers x (prompt + token limit), and an
interruption loses its answers. On a CPU with the built-in models four times as many positions take
seven times as long per answer, because each token allocates larger caches."""

NOT_ASKED = "not asked"
"""Prefix of a grade's reason if the model never saw the question."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request for the `sample`-th answer to a problem, with its seed."""

    problem: Problem
    sample: int
    seed: int

    @property
    def key(self) -> tuple[str, int]:
        """(problem, sample): identifies a question within a benchmark."""
        return self.problem.id, self.sample


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """An answer. `tokens` None: not counted. `unasked`: why the model did not see the question.

    `answered_by`: the model that the server names, if it is not the one asked for.
    """

    text: str
    tokens: OptionalInt
    truncated: bool
    unasked: str | None = None
    answered_by: str | None = None
    turns: Sequence[Turn] | None = None


def questions(bench: str, problems: Problems, samples: int, seed: int) -> list[Question]:
    """All questions in order.

    Random numbers depend only on (seed, bench, problem, sample), not on arm or step.
    """
    return [
        Question(problem, sample, noise_key(seed, bench, problem.id, sample))
        for problem, sample in itertools.product(problems, range(samples))
    ]


def evaluate(
    bench: BenchTable,
    task: Task,
    sampler: Sampler,
    tokenizer: Any,
    *,
    seed: int,
    step: int,
    steps: int,
) -> list[AnswerRecord]:
    """Sample and grade answers after `step` of a run's `steps`.

    Each of the first `bench.problems` problems has `bench.samples_at` answers.
    """
    sampling = Sampling(
        bench.temperature, bench.top_p, bench.max_tokens or task.max_tokens, task.stop
    )
    samples = bench.samples_at(step, steps)
    pending = questions(bench.name, task.problems("held-out")[: bench.problems], samples, seed)
    answered = itertools.chain.from_iterable(answers(pending, task, sampler, tokenizer, sampling))
    return [
        graded_record(task, question, answer, bench=bench.name, step=step)
        for question, answer in answered
    ]


def answers(
    pending: Sequence[Question],
    task: Task,
    sampler: Sampler,
    tokenizer: Any,
    sampling: Sampling,
    context: OptionalInt = None,
    at_a_time: int = POSITIONS_AT_A_TIME,
) -> Iterator[list[tuple[Question, ModelAnswer]]]:
    """Batches of questions with the answers of a model in this process, the shortest first.

    `context`: the model's context in tokens, which bounds prompt and answer. If a prompt leaves no
    room, the answer is empty and truncated, and counts as incorrect.
    """
    from gspo_lab.training.models.load import encode_prompt  # here, because it imports torch

    prompts = {
        problem.id: tuple(encode_prompt(tokenizer, problem.prompt))
        for problem in {q.problem for q in pending}
    }
    limits = {
        key: answer_token_limit(len(ids), sampling.max_tokens, context)
        for key, ids in prompts.items()
    }
    for part in _parts(
        pending, {key: len(ids) + limits[key] for key, ids in prompts.items()}, at_a_time
    ):
        fitting = [question for question in part if limits[question.problem.id]]
        requests = [
            Request(q.problem.id, prompts[q.problem.id], q.sample, q.seed, limits[q.problem.id])
            for q in fitting
        ]
        problems = [question.problem for question in fitting]
        rollouts = (
            sample_multi_turn(sampler, requests, problems, task, tokenizer, sampling)
            if requests
            else []
        )
        yield [(q, _answer(rollout)) for q, rollout in zip(fitting, rollouts, strict=True)] + [
            (q, empty_answer(does_not_fit(len(prompts[q.problem.id]), context)))
            for q in part
            if not limits[q.problem.id]
        ]


def _parts(
    pending: Sequence[Question], positions: Mapping[str, int], at_a_time: int
) -> Iterator[list[Question]]:
    """Batches of questions of similar length, for little padding.

    `positions`: by problem the tokens of its prompt and its answer's limit.
    """
    part: list[Question] = []
    for question in sorted(
        pending, key=lambda question: positions[question.problem.id]
    ):  # so the last question of a batch is its longest
        full = (len(part) + 1) * positions[question.problem.id] > at_a_time
        if part and (full or len(part) == ANSWERS_AT_A_TIME):
            yield part
            part = []
        part.append(question)
    if part:
        yield part


def answer_token_limit(prompt_tokens: int, max_tokens: int, context: OptionalInt) -> int:
    """An answer's token limit: `max_tokens`, or less if the prompt leaves less of the context."""
    return max_tokens if context is None else max(0, min(max_tokens, context - prompt_tokens))


def empty_answer(why: str) -> ModelAnswer:
    """An empty, truncated answer, which counts as incorrect, for a model that could not be
    asked.
    """
    return ModelAnswer("", 0, True, f"{NOT_ASKED}, {why}")


def does_not_fit(tokens: OptionalInt, context: OptionalInt) -> str:
    """Why a prompt leaves no room for an answer."""
    return f"the prompt does not fit: its {tokens} tokens fill the context of {context}"


def _answer(rollout: Rollout) -> ModelAnswer:
    return ModelAnswer(rollout.text, rollout.written, rollout.truncated, turns=rollout.turns)


def graded_record(
    task: Task, question: Question, answer: ModelAnswer, *, bench: str, step: int
) -> AnswerRecord:
    """The record of a benchmark's answer and its grade. An unasked question counts as incorrect."""
    if answer.unasked is None:
        grade = grade_answer(
            task, question.problem, answer.text, truncated=answer.truncated, turns=answer.turns
        )
    else:
        grade = Grade(0.0, False, None, answer.unasked)
    key = {"bench": bench, "step": step, "sample": question.sample, "sample_seed": question.seed}
    return _record(task, question.problem, answer, grade, **key)


def answer_record(
    task: Task,
    problem: Problem,
    rollout: Rollout,
    grade: Grade,
    *,
    bench: str,
    step: int,
    sample: int,
    advantage: float,
) -> AnswerRecord:
    """The record of a training response and its grade."""
    key = {"bench": bench, "step": step, "sample": sample, "advantage": advantage}
    return _record(task, problem, _answer(rollout), grade, **key)


def _record(
    task: Task, problem: Problem, answer: ModelAnswer, grade: Grade, **key: Any
) -> AnswerRecord:
    return AnswerRecord(
        problem=problem.id,
        prompt=problem.prompt,
        prompt_version=task.prompt_version,
        text=answer.text,
        tokens=answer.tokens,
        turns=None if answer.turns is None else _turns_to_json(answer.turns, grade.turn_rewards),
        truncated=int(answer.truncated),
        extracted=grade.extracted,
        reference=problem.reference,
        reward=grade.reward,
        rewards=None if grade.rewards is None else dict(grade.rewards),
        correct=None if grade.correct is None else int(grade.correct),
        reason=grade.reason,
        error=grade.error,
        grader=task.grader,
        isolation=grade.isolation,
        answered_by=answer.answered_by,
        **key,
    )


def _turns_to_json(turns: Sequence[Turn], rewards: Sequence[float] | None) -> list[JsonObject]:
    """Turns as JSON, with their rewards if any; `turns_from_json` reads them."""
    recorded = [
        {name: value for name, value in asdict(turn).items() if value is not None} for turn in turns
    ]
    for turn, reward in zip(recorded, rewards or (), strict=False):
        turn["reward"] = reward
    return recorded


def turns_from_json(recorded: Sequence[JsonMapping]) -> list[Turn]:
    """Turns from JSON."""
    return [
        Turn(turn["text"], turn.get("reply"), turn.get("error"), turn.get("tokens"))
        for turn in recorded
    ]
