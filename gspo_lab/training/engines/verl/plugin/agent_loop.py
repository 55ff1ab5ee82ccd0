"""How verl asks the policy: the lab's prompts, seeds, stops and graders, through verl's agent
loop.
"""

from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.training.engines.external.answering import grade_and_record, seed_of, stopping_of
from gspo_lab.training.engines.external.attempt import Prompt
from gspo_lab.training.models.load import encode_prompt


class LabLoop(AgentLoopBase):  # type: ignore[misc]
    """One answer to one problem."""

    def __init__(self, server_manager: Any, tokenizer: Any, **_: Any) -> None:
        # Not that of the base class: it wants a chat template, which byte-level and base models
        # lack.
        self.server = server_manager
        self.tokenizer = tokenizer

    async def run(self, sampling_params: JsonObject, **row: Any) -> AgentLoopOutput:
        """Ask, grade, write the answer down, and hand it to verl with its reward."""
        prompt = Prompt.from_json(row["extra_info"])
        sample = int(row["session_id"])
        # verl counts training steps from 1, and evaluations by the steps before them.
        step = int(row["global_steps"]) - (not prompt.bench)
        seed = seed_of(prompt, step, sample)
        ids = encode_prompt(self.tokenizer, prompt.problem.prompt)
        sampling: JsonObject = {
            **sampling_params,
            "temperature": prompt.temperature,
            "top_p": prompt.top_p,
            "max_tokens": prompt.max_tokens,
            "seed": seed,
            **stopping_of(self.tokenizer, prompt.stop).for_vllm(),
        }
        drawn = await self.server.generate(
            request_id=f"{row['uid']}-{sample}", prompt_ids=ids, sampling_params=sampling
        )
        answer = await grade_and_record(
            prompt,
            self.tokenizer,
            list(drawn.token_ids),
            list(drawn.log_probs or []),
            step=step,
            sample=sample,
            seed=seed,
        )
        return AgentLoopOutput(
            prompt_ids=ids,
            response_ids=answer.ids,
            response_mask=[1 for _ in answer.ids],
            response_logprobs=answer.logprobs or None,
            routed_experts=drawn.routed_experts,
            reward_score=answer.reward,
            num_turns=2,
            metrics=AgentLoopMetrics(),
            extra_fields={
                **drawn.extra_fields,
                "reward_extra_info": {},
                "turn_scores": [],
                "tool_rewards": [],
            },
        )
