"""The prompts as verl reads them: its columns, the lab's order, and in `extra_info` all that asking needs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_lab.engines.native.prompts import training_prompts, training_sampling
from gspo_lab.study import Run
from gspo_lab.tasks.base import Problem, Task


@dataclass(frozen=True, slots=True)
class Asked:
    """A problem and how it is asked: in training (`bench` is ""), as the `place`-th of its step, or by a benchmark."""

    problem: Problem
    bench: str
    place: int
    temperature: float
    top_p: float
    max_tokens: int
    stop: tuple[str, ...]

    def row(self, index: int, samples: int) -> dict[str, Any]:
        """verl's columns."""
        one = self.problem
        return {
            "data_source": self.bench or "rollout",
            "prompt": [{"role": "user", "content": one.prompt}],
            "ability": "lab",
            "reward_model": {"style": "rule", "ground_truth": one.reference},
            "__rollout_n__": samples,
            "extra_info": {
                "index": index,
                "problem": {"id": one.id, "prompt": one.prompt, "reference": one.reference},
                "bench": self.bench,
                "place": self.place,
                "temperature": self.temperature,
                "top_p": self.top_p,
                "max_tokens": self.max_tokens,
                "stop": list(self.stop),
            },
        }

    @staticmethod
    def of(extra_info: dict[str, Any]) -> "Asked":
        """What `row` made of it, as verl hands it back."""
        said = {key: value for key, value in extra_info.items() if key in Asked.__dataclass_fields__}
        return Asked(**{**said, "problem": Problem(**extra_info["problem"]), "stop": tuple(extra_info["stop"] or ())})


def training_rows(run: Run, task: Task) -> Iterator[dict[str, Any]]:
    """All prompts of the run, step after step, in the order that every engine asks them in."""
    rollout, stream, how = run.settings.rollout, training_prompts(run, task), training_sampling(run.settings, task)
    for step in range(run.settings.steps):
        for place, problem in enumerate(stream.step(step)):
            asked = Asked(problem, "", place, how.temperature, how.top_p, how.max_tokens, how.stop)
            yield asked.row(step * rollout.prompts_per_step + place, rollout.group_size)


def bench_rows(run: Run, tasks: dict[str, Task]) -> Iterator[dict[str, Any]]:
    """The problems of all benchmarks, one after the other."""
    for bench in run.settings.bench:
        task = tasks[bench.name]
        limit = bench.max_tokens or task.max_tokens
        for place, problem in enumerate(task.problems("held-out")[: bench.problems]):
            asked = Asked(problem, bench.name, place, bench.temperature, bench.top_p, limit, task.stop)
            yield asked.row(place, bench.samples)


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """One row a line, as JSON: verl reads that as well as Parquet."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def lengths(rows: Sequence[dict[str, Any]], tokenizer: Any) -> tuple[int, int]:
    """The most tokens of a prompt, and the largest limit of a response."""
    from gspo_lab.models.load import encode_prompt

    prompts = {row["prompt"][0]["content"] for row in rows}
    limits = [row["extra_info"]["max_tokens"] for row in rows]
    return max(len(encode_prompt(tokenizer, prompt)) for prompt in prompts), max(limits)
