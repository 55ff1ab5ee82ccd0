"""How AReaL asks the policy: the lab's prompts, stops and graders, as a workflow of AReaL's."""

import json
from collections import Counter
from itertools import repeat
from typing import Any

import torch
from areal import workflow_context
from areal.api import InferenceEngine, ModelRequest, RolloutWorkflow
from areal.utils import stats_tracker
from areal.utils.hf_utils import load_hf_tokenizer

from gspo_lab.training.engines.external.answering import grade_and_record, stopping_of
from gspo_lab.training.engines.external.attempt import Prompt, current
from gspo_lab.training.models.load import encode_prompt

_asked: Counter[tuple[int, int]] = Counter()
"""How many responses this process has requested, by step and place."""


class LabWorkflow(RolloutWorkflow):  # type: ignore[misc]
    """One response to one prompt."""

    def __init__(self, gconfig: Any, tokenizer: str) -> None:
        self.tokenizer = load_hf_tokenizer(tokenizer)
        self.gconfig = gconfig.new(n_samples=1, skip_special_tokens=False)

    async def arun_episode(
        self, engine: InferenceEngine, data: dict[str, Any]
    ) -> dict[str, torch.Tensor]:
        """Ask, grade, write the answer down, and hand it to AReaL with its reward."""
        prompt = Prompt.from_json(json.loads(data["asked"]))
        run = current().run
        sample = _asked[prompt.step, prompt.place]
        _asked[prompt.step, prompt.place] += 1
        stopping = stopping_of(self.tokenizer, prompt.stop)
        ids = encode_prompt(self.tokenizer, prompt.problem.prompt)
        generation = self.gconfig.new(
            stop_token_ids=sorted(stopping.ids), stop=list(stopping.spanning) or None
        )
        name = f"{run.arm}-{prompt.step}-{prompt.place}-{sample}"
        drawn = await engine.agenerate(
            ModelRequest(rid=name, input_ids=ids, gconfig=generation, tokenizer=self.tokenizer)
        )
        tokens = list(drawn.output_tokens)
        logprobs = list(drawn.output_logprobs)
        answer = await grade_and_record(
            prompt, self.tokenizer, tokens, logprobs, step=prompt.step, sample=sample
        )
        stats_tracker.get(workflow_context.stat_scope()).scalar(reward=answer.reward)
        size = len(ids)
        length = len(answer.ids)
        versions = list(drawn.output_versions)[:length]
        tensors = {
            "input_ids": torch.tensor([*ids, *answer.ids], dtype=torch.int32),
            "loss_mask": torch.tensor([*repeat(0, size), *repeat(1, length)], dtype=torch.int32),
            "logprobs": torch.tensor([*repeat(0.0, size), *answer.logprobs], dtype=torch.float32),
            "versions": torch.tensor([*repeat(-1, size), *versions], dtype=torch.int32),
            "attention_mask": torch.ones(size + length, dtype=torch.bool),
            "rewards": torch.tensor(answer.reward, dtype=torch.float32),
        }
        return {name: value.unsqueeze(0) for name, value in tensors.items()}
