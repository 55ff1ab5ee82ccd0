"""Ask a benchmark of a sampler: held-out problems in, whole graded answers out. Scores are computed from these."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gspo_lab.records import AnswerRecord
from gspo_lab.samplers.base import Request, Rollout, Sampler, Sampling, noise_key
from gspo_lab.samplers.turns import converse
from gspo_lab.study import BenchTable
from gspo_lab.tasks.base import Grade, Problem, Task, Turn, grade_answer

ANSWERS_AT_A_TIME = 512
POSITIONS_AT_A_TIME = 32_768
"""Bounds of one call of a sampler in this process: its memory grows with answers x (prompt + token limit), and a kill
loses the answers that are under way. Measured on a CPU with the embedded models: four times as many positions take
seven times as long per answer, because ever larger caches are allocated anew for every token."""

NOT_ASKED = "not asked"
"""How the reason of a grade begins where the model never saw the question."""


@dataclass(frozen=True, slots=True)
class Question:
    """One answer wanted: the `sample`-th to a problem, with its own seed."""

    problem: Problem
    sample: int
    seed: int

    @property
    def key(self) -> tuple[str, int]:
        """(problem, sample): what tells one question of a benchmark from another."""
        return self.problem.id, self.sample


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered. `tokens` None: not counted. `unasked`: why the model was not asked at all.

    `answered_by`: who says to have answered, where that is not the model that was asked.
    """

    text: str
    tokens: int | None
    truncated: bool
    unasked: str | None = None
    answered_by: str | None = None
    turns: Sequence[Turn] | None = None


def questions(bench: str, problems: Sequence[Problem], samples: int, seed: int) -> list[Question]:
    """All that is asked, in its order. A question's random numbers depend on (seed, benchmark, problem, sample) alone,
    so that every arm of a seed, at every step, is asked in the same way."""
    return [
        Question(problem, sample, noise_key(seed, bench, problem.id, sample))
        for problem in problems
        for sample in range(samples)
    ]


def evaluate(
    bench: BenchTable, task: Task, sampler: Sampler, tokenizer: Any, *, seed: int, step: int, steps: int
) -> list[AnswerRecord]:
    """After `step` of a run's `steps`: sample and grade `bench.samples_at` answers to each of the first
    `bench.problems` problems."""
    sampling = Sampling(bench.temperature, bench.top_p, bench.max_tokens or task.max_tokens, task.stop)
    samples = bench.samples_at(step, steps)
    every = questions(bench.name, task.problems("held-out")[: bench.problems], samples, seed)
    return [
        graded_record(task, question, answer, bench=bench.name, step=step)
        for part in answers(every, task, sampler, tokenizer, sampling)
        for question, answer in part
    ]


def answers(
    wanted: Sequence[Question],
    task: Task,
    sampler: Sampler,
    tokenizer: Any,
    sampling: Sampling,
    context: int | None = None,
    at_a_time: int = POSITIONS_AT_A_TIME,
) -> Iterator[list[tuple[Question, Answer]]]:
    """The answers of a model in this process, part by part, those to the shortest prompts first.

    `context` is the model's length in tokens: no answer is longer than what the prompt leaves of it. To a prompt that
    leaves nothing the answer is empty and cut: wrong, without the model being asked.
    """
    from gspo_lab.models.load import encode_prompt  # who asks a server needs no torch

    prompts = {problem.id: tuple(encode_prompt(tokenizer, problem.prompt)) for problem in {q.problem for q in wanted}}
    rooms = {key: room(len(ids), sampling.max_tokens, context) for key, ids in prompts.items()}
    for part in _parts(wanted, {key: len(ids) + rooms[key] for key, ids in prompts.items()}, at_a_time):
        fitting = [question for question in part if rooms[question.problem.id]]
        requests = [
            Request(q.problem.id, prompts[q.problem.id], q.sample, q.seed, rooms[q.problem.id]) for q in fitting
        ]
        rollouts = (
            converse(sampler, requests, [q.problem for q in fitting], task, tokenizer, sampling) if requests else []
        )
        yield [(q, _answer(rollout)) for q, rollout in zip(fitting, rollouts, strict=True)] + [
            (q, not_asked(does_not_fit(len(prompts[q.problem.id]), context))) for q in part if not rooms[q.problem.id]
        ]


def _parts(wanted: Sequence[Question], positions: Mapping[str, int], at_a_time: int) -> Iterator[list[Question]]:
    """Questions of like length together, so that little is padded; `positions` of a problem: prompt and answer."""
    part: list[Question] = []
    for question in sorted(wanted, key=lambda question: positions[question.problem.id]):  # the last one is the longest
        full = (len(part) + 1) * positions[question.problem.id] > at_a_time
        if part and (full or len(part) == ANSWERS_AT_A_TIME):
            yield part
            part = []
        part.append(question)
    if part:
        yield part


def room(prompt_tokens: int, max_tokens: int, context: int | None) -> int:
    """The token limit of an answer: the smaller of what was asked for and what the prompt leaves of the context."""
    return max_tokens if context is None else max(0, min(max_tokens, context - prompt_tokens))


def not_asked(why: str) -> Answer:
    """The answer of a model that could not give one: empty and cut, so that it counts as wrong."""
    return Answer("", 0, True, f"{NOT_ASKED}, {why}")


def does_not_fit(tokens: int | None, context: int | None) -> str:
    """In words, that a prompt leaves no room for an answer."""
    return f"the prompt does not fit: its {tokens} tokens fill the context of {context}"


def _answer(rollout: Rollout) -> Answer:
    return Answer(rollout.text, rollout.written, rollout.truncated, turns=rollout.turns)


def graded_record(task: Task, question: Question, answer: Answer, *, bench: str, step: int) -> AnswerRecord:
    """A benchmark's answer and its grade, whole. What the model was not asked it did not get right."""
    if answer.unasked is None:
        grade = grade_answer(task, question.problem, answer.text, truncated=answer.truncated, turns=answer.turns)
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
    """A training response and its grade, whole."""
    key = {"bench": bench, "step": step, "sample": sample, "advantage": advantage}
    return _record(task, problem, _answer(rollout), grade, **key)


def _record(task: Task, problem: Problem, answer: Answer, grade: Grade, **key: Any) -> AnswerRecord:
    return AnswerRecord(
        problem=problem.id,
        prompt=problem.prompt,
        prompt_version=task.prompt_version,
        text=answer.text,
        tokens=answer.tokens,
        turns=None if answer.turns is None else _told(answer.turns, grade.turn_rewards),
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


def _told(turns: Sequence[Turn], rewards: Sequence[float] | None) -> list[dict[str, Any]]:
    """Turns as they are recorded, with the reward of each where it has one; `turns_told` reads them."""
    recorded = [{name: value for name, value in asdict(turn).items() if value is not None} for turn in turns]
    for turn, reward in zip(recorded, rewards or (), strict=False):
        turn["reward"] = reward
    return recorded


def turns_told(recorded: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """The turns of a record."""
    return [Turn(turn["text"], turn.get("reply"), turn.get("error"), turn.get("tokens")) for turn in recorded]
