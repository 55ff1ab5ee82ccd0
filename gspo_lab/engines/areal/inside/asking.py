"""How AReaL asks the policy and grades it: the lab's prompts, stops and graders, as a workflow of AReaL's.

Every answer is written down whole, as an AnswerRecord with its place in the rollout batch.
"""

import asyncio
import json
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import torch
from areal import workflow_context
from areal.api import InferenceEngine, ModelRequest, RolloutWorkflow
from areal.utils import stats_tracker
from areal.utils.hf_utils import load_hf_tokenizer

from gspo_lab.engines.areal.prepare import ANSWERS, HOME, RUN
from gspo_lab.engines.leavings import append, digest_of
from gspo_lab.evaluation.ask import Answer, Question, graded_record
from gspo_lab.files import read_json
from gspo_lab.models.load import encode_prompt
from gspo_lab.models.wording import options_for
from gspo_lab.records import to_dict
from gspo_lab.samplers.stopping import Stopping
from gspo_lab.study import Run
from gspo_lab.tasks import Task, build_task
from gspo_lab.tasks.base import Problem

_asked: Counter[tuple[int, int]] = Counter()
"""By step and place, how many responses this process has asked for."""


@cache
def _task() -> tuple[Run, Task]:
    run = Run.from_json(read_json(Path(os.environ[HOME]) / RUN) or {})
    table = run.settings.task
    return run, build_task(table.name, options_for(table, run.settings.model), Path(run.base))


class Asking(RolloutWorkflow):  # type: ignore[misc]
    """One response to one prompt."""

    def __init__(self, gconfig: Any, tokenizer: str, stop: list[str], eos_ids: list[int]) -> None:
        self.tokenizer = load_hf_tokenizer(tokenizer)
        self.stopping = Stopping(self.tokenizer, tuple(stop), tuple(eos_ids))
        self.gconfig = gconfig.new(
            n_samples=1,
            stop_token_ids=sorted(self.stopping.ids),
            stop=list(self.stopping.spanning) or None,
            skip_special_tokens=False,
        )

    async def arun_episode(self, engine: InferenceEngine, data: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Ask, grade, write the answer down, and hand it to AReaL with its reward."""
        step, place = int(data["step"]), int(data["place"])
        sample = _asked[step, place]
        _asked[step, place] += 1
        run, task = _task()
        problem = Problem(data["id"], data["prompt"], data["answer"])
        ids = encode_prompt(self.tokenizer, problem.prompt)
        drawn = await engine.agenerate(
            ModelRequest(
                rid=f"{run.arm}-{step}-{place}-{sample}", input_ids=ids, gconfig=self.gconfig, tokenizer=self.tokenizer
            )
        )
        tokens = list(drawn.output_tokens)
        end = self.stopping.end(tokens) if self.stopping.spanning else None
        tokens = tokens[:end]
        truncated = len(tokens) >= self.gconfig.max_new_tokens and not self.stopping.over(tokens)
        answer = Answer(self.stopping.text(tokens), len(tokens), truncated)
        question = Question(problem, sample, 0)
        # Off the event loop: a grader may run programs.
        record = await asyncio.to_thread(graded_record, task, question, answer, bench="rollout", step=step)
        logprobs, versions = list(drawn.output_logprobs)[:end], list(drawn.output_versions)[:end]
        line = {"place": place, "ids": digest_of(tokens), "logprobs": digest_of(logprobs), **to_dict(record)}
        line.pop("sample_seed", None)  # which is a benchmark's
        append(Path(os.environ[HOME]) / ANSWERS, json.dumps(line, ensure_ascii=False))
        reward = 0.0 if record.reward is None else record.reward
        stats_tracker.get(workflow_context.stat_scope()).scalar(reward=reward)
        size = len(ids)
        made = {
            "input_ids": torch.tensor([*ids, *tokens], dtype=torch.int32),
            "loss_mask": torch.tensor([0] * size + [1] * len(tokens), dtype=torch.int32),
            "logprobs": torch.tensor([0.0] * size + logprobs, dtype=torch.float32),
            "versions": torch.tensor([-1] * size + versions, dtype=torch.int32),
            "attention_mask": torch.ones(size + len(tokens), dtype=torch.bool),
            "rewards": torch.tensor(reward, dtype=torch.float32),
        }
        return {name: value.unsqueeze(0) for name, value in made.items()}
