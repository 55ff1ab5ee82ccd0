"""Ask a benchmark of a sampler: held-out problems in, whole graded answers out. Scores are computed from these."""

from collections.abc import Callable, Sequence
from typing import Any

from gspo_lab.models.load import encode_prompt
from gspo_lab.records import AnswerRecord
from gspo_lab.samplers.base import Request, Rollout, Sampler, Sampling, noise_key
from gspo_lab.study import BenchTable
from gspo_lab.tasks.base import Grade, Problem, Task

AT_A_TIME = 512
"""Answers sampled between two calls of `progress`."""


def evaluate(
    bench: BenchTable,
    task: Task,
    sampler: Sampler,
    tokenizer: Any,
    *,
    seed: int,
    step: int,
    skip: frozenset[tuple[str, int]] = frozenset(),
    progress: Callable[[Sequence[AnswerRecord]], None] | None = None,
) -> list[AnswerRecord]:
    """Sample and grade `bench.samples` answers to each of the first `bench.problems` held-out problems.

    The answers' random numbers depend on (seed, benchmark, problem, sample) alone, so that every arm of a seed, at
    every step, is asked in the same way. `skip` holds the (problem, sample) that an earlier, killed try has stored;
    `progress` is handed each part as it is done.
    """
    problems = list(task.problems("held-out")[: bench.problems])
    asked = [(p, sample) for p in problems for sample in range(bench.samples) if (p.id, sample) not in skip]
    sampling = Sampling(
        temperature=bench.temperature,
        top_p=bench.top_p,
        max_tokens=bench.max_tokens or task.max_tokens,
        stop=task.stop,
    )
    out: list[AnswerRecord] = []
    for start in range(0, len(asked), AT_A_TIME):
        part = asked[start : start + AT_A_TIME]
        requests = [
            Request(p.id, tuple(encode_prompt(tokenizer, p.prompt)), sample, noise_key(seed, bench.name, p.id, sample))
            for p, sample in part
        ]
        rollouts = sampler.sample(requests, sampling)
        graded = [
            answer_record(task, p, rollout, task.grade(p, rollout.text), bench=bench.name, step=step)
            for (p, _), rollout in zip(part, rollouts, strict=True)
        ]
        out += graded
        if progress is not None:
            progress(graded)
    return out


def answer_record(
    task: Task,
    problem: Problem,
    rollout: Rollout,
    grade: Grade,
    *,
    bench: str,
    step: int,
    advantage: float | None = None,
) -> AnswerRecord:
    """One response and its grade, whole, as a record."""
    return AnswerRecord(
        step=step,
        bench=bench,
        problem=problem.id,
        sample=rollout.request.sample,
        prompt=problem.prompt,
        text=rollout.text,
        tokens=len(rollout.response_ids),
        truncated=int(rollout.truncated),
        extracted=grade.extracted,
        reference=problem.reference,
        reward=grade.reward,
        correct=None if grade.correct is None else int(grade.correct),
        reason=grade.reason,
        error=grade.error,
        grader=task.grader,
        advantage=advantage,
    )
