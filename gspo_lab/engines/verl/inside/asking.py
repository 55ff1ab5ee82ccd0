"""How verl asks the policy and grades it: the lab's prompts, seeds, stops and graders, through verl's agent loop.

Answers are written down whole, as AnswerRecords, by whoever asks: training and benchmarks alike.
"""

import asyncio
import json
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from gspo_lab.engines.leavings import append, digest_of
from gspo_lab.engines.verl.attempt import ANSWERS, current
from gspo_lab.engines.verl.data import Asked
from gspo_lab.evaluation.ask import Answer, Question, graded_record
from gspo_lab.models.load import encode_prompt
from gspo_lab.models.wording import options_for
from gspo_lab.records import to_dict
from gspo_lab.samplers.base import noise_key
from gspo_lab.samplers.stopping import Stopping
from gspo_lab.tasks import Task, build_task


@cache
def task_of(bench: str) -> Task:
    """The task that a benchmark, or with "" the training, asks."""
    settings = current().run.settings
    tables = {one.name: one.task for one in settings.bench}
    table = tables.get(bench) or settings.task
    return build_task(table.name, options_for(table, settings.model), Path(current().run.base))


class Asking(AgentLoopBase):  # type: ignore[misc]
    """One answer to one problem."""

    def __init__(self, server_manager: Any, tokenizer: Any, **_: Any) -> None:
        # Not that of the base class: it wants a chat template, which byte-level and base models lack.
        self.server = server_manager
        self.tokenizer = tokenizer

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Ask, grade, write the answer down, and hand it to verl with its reward."""
        asked = Asked.of(row["extra_info"])
        task, step, sample = task_of(asked.bench), int(row["global_steps"]), int(row["session_id"])
        question = Question(asked.problem, sample, self._seed(asked, step, sample))
        ids = encode_prompt(self.tokenizer, asked.problem.prompt)
        stopping = _stopping(self.tokenizer, tuple(asked.stop))
        wishes: dict[str, Any] = {
            **sampling_params,
            "temperature": asked.temperature,
            "top_p": asked.top_p,
            "max_tokens": asked.max_tokens,
            "seed": question.seed,
            "ignore_eos": True,  # it is one of those that stop
            "stop_token_ids": sorted(stopping.ids),
            "detokenize": bool(stopping.spanning),
            "skip_special_tokens": False,
        }
        if stopping.spanning:
            wishes |= {"stop": list(stopping.spanning), "include_stop_str_in_output": True}
        drawn = await self.server.generate(request_id=f"{row['uid']}-{sample}", prompt_ids=ids, sampling_params=wishes)
        response, logprobs = list(drawn.token_ids), list(drawn.log_probs or [])
        if stopping.spanning and (end := stopping.end(response)) is not None:
            response, logprobs = response[:end], logprobs[:end]
        truncated = len(response) >= asked.max_tokens and not stopping.over(response)
        answer = Answer(stopping.text(response), len(response), truncated)
        # Off the event loop: a grader may run programs.
        record = await asyncio.to_thread(
            graded_record,
            task,
            question,
            answer,
            bench=asked.bench or "rollout",
            step=step if asked.bench else step - 1,
        )
        if not asked.bench:
            record = replace(record, sample_seed=None)  # which is a benchmark's
        line = {"place": asked.place, "ids": digest_of(response), "logprobs": digest_of(logprobs), **to_dict(record)}
        append(current().path / ANSWERS, json.dumps(line, ensure_ascii=False))
        return AgentLoopOutput(
            prompt_ids=ids,
            response_ids=response,
            response_mask=[1] * len(response),
            response_logprobs=logprobs or None,
            routed_experts=drawn.routed_experts,
            reward_score=0.0 if record.reward is None else record.reward,
            num_turns=2,
            metrics=AgentLoopMetrics(),
            extra_fields={**drawn.extra_fields, "reward_extra_info": {}, "turn_scores": [], "tool_rewards": []},
        )

    def _seed(self, asked: Asked, step: int, sample: int) -> int:
        """The lab's: arms of one seed draw alike, unless the study says otherwise."""
        run = current().run
        if asked.bench:
            return noise_key(run.seed, asked.bench, asked.problem.id, sample)
        start = (run.seed,) if run.settings.rollout.coupled else (run.seed, run.arm)
        return noise_key(*start, "rollout", step - 1, asked.place, sample)


@lru_cache(maxsize=16)
def _stopping(tokenizer: Any, stop: tuple[str, ...]) -> Stopping:
    return Stopping(tokenizer, stop, tuple(current().eos_ids))
