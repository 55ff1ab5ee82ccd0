"""In a program's own process: what its server drew becomes a graded answer, cut where it ends,
written down whole.
"""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from gspo_lab.common.plain_data import Strings
from gspo_lab.recording.journal import to_dict
from gspo_lab.tasks import Task
from gspo_lab.tasks.evaluation.run_benchmark import ModelAnswer, Question, graded_record
from gspo_lab.training.engines.external.attempt import ANSWERS, Prompt, current, task_of
from gspo_lab.training.engines.external.records import append
from gspo_lab.training.samplers.base import noise_key
from gspo_lab.training.samplers.stopping import Stopping


@dataclass(frozen=True, slots=True)
class Answered:
    """One response as it is trained on: cut where it was over.

    A response that was not graded has the reward 0.
    """

    ids: list[int]
    logprobs: list[float]
    reward: float


@lru_cache(maxsize=16)
def stopping_of(tokenizer: Any, stop: Strings) -> Stopping:
    """Knows when a response is over that may end with one of the texts `stop`."""
    return Stopping(tokenizer, stop, current().eos_ids)


def seed_of(prompt: Prompt, step: int, sample: int) -> int:
    """The lab's random number of a response: arms of one seed draw alike, unless the study says
    otherwise.
    """
    run = current().run
    if prompt.bench:
        return noise_key(run.seed, prompt.bench, prompt.problem.id, sample)
    start = (run.seed,) if run.settings.rollout.coupled else (run.seed, run.arm)
    return noise_key(*start, "rollout", step, prompt.place, sample)


async def grade_and_record(
    prompt: Prompt,
    tokenizer: Any,
    ids: list[int],
    logprobs: list[float],
    *,
    step: int,
    sample: int,
    seed: int = 0,
) -> Answered:
    """Grade the `sample`-th response to `prompt` in `step` and write it down.

    `seed` is a benchmark's, as recorded.
    """
    stopping = stopping_of(tokenizer, prompt.stop)
    if stopping.spanning and (end := stopping.end(ids)) is not None:
        ids = ids[:end]
        logprobs = logprobs[:end]
    truncated = len(ids) >= prompt.max_tokens and not stopping.has_ended(ids)
    answer = ModelAnswer(stopping.text(ids), len(ids), truncated)
    question = Question(prompt.problem, sample, seed)
    bench = prompt.bench or "rollout"
    # Off the event loop: a grader may run programs.
    record = await asyncio.to_thread(
        graded_record, _task(prompt.bench), question, answer, bench=bench, step=step
    )
    if not prompt.bench:
        record = replace(record, sample_seed=None)  # only a benchmark's answers have one
    line = {
        "place": prompt.place,
        "ids": sha256_of_values(ids),
        "logprobs": sha256_of_values(logprobs),
        **to_dict(record),
    }
    append(current().path / ANSWERS, json.dumps(line, ensure_ascii=False))
    return Answered(ids, logprobs, 0.0 if record.reward is None else record.reward)


@cache
def _task(bench: str) -> Task:
    """The task that a benchmark asks, or with "" the training."""
    run = current().run
    tables = {bench.name: bench.task for bench in run.settings.bench}
    return task_of(run, tables.get(bench) or run.settings.task)


def sha256_of_values(values: Sequence[Any]) -> str:
    """The sha256 of a response's ids, or of its log-probs."""
    return hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()
