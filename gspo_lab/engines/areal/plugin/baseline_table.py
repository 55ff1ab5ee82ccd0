"""A GRPO-against-GSPO baseline on AReaL's FSDP actor, without its rollout servers: the lab samples and grades, AReaL's
actor recomputes log-probs, makes advantages and updates. In AReaL's environment, one process:

    gspo-lab check STUDY --engine areal --write-config files          a folder per arm
    PYTHONPATH=files/grpo/areal/attempt-1/lib python -m gspo_lab.engines.areal.plugin.baseline_table \
        files/grpo/areal/attempt-1 files/gspo/areal/attempt-1

Every folder gets updates.jsonl, an UpdateRecord a line; the table is printed.
"""

import json
import os
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from areal.api.alloc_mode import ParallelStrategy
from areal.api.cli_args import GRPOConfig, load_expr_config
from areal.api.io_struct import FinetuneSpec
from areal.engine.fsdp_engine import FSDPPPOActor

from gspo_lab.engines.areal.config import CONFIG
from gspo_lab.engines.areal.plugin.actor_recorder import one_response_a_row, watch
from gspo_lab.engines.external.attempt import UPDATES, Attempt
from gspo_lab.engines.native.prompts import training_prompts, training_sampling
from gspo_lab.errors import LabError
from gspo_lab.models.load import encode_prompt, load_model
from gspo_lab.models.wording import options_for
from gspo_lab.samplers.base import Request, Rollout, noise_key
from gspo_lab.samplers.transformers_sampler import TransformersSampler
from gspo_lab.tasks import build_task
from gspo_lab.tasks.base import Problem

ON_POLICY = 1e-4
"""Nats that a token's log-ratio may have in the very first update, which is on the samples' own policy."""
HELD_OUT = 64
"""Problems of the task's held-out split that are asked once before the first step and once after the last."""


def trained(folder: Path) -> dict[str, Any]:
    """Train the run of a folder; its row of the table."""
    config, _ = load_expr_config(["--config", str(folder / CONFIG)], GRPOConfig)
    run = Attempt.read(folder).run
    settings = run.settings
    rollout = settings.rollout
    task = build_task(settings.task.name, options_for(settings.task, settings.model), Path(run.base))
    model, tokenizer = load_model(config.actor.path, dtype="float32", device="cpu")
    sampler = TransformersSampler(model, tokenizer, rows=rollout.at_a_time)
    sampling = training_sampling(settings, task)

    def asked(problems: list[Problem], group: int, *key: Any) -> list[tuple[Rollout, float]]:
        wanted = [(one, place, k) for place, one in enumerate(problems) for k in range(group)]
        drawn = sampler.sample(
            [
                Request(one.id, tuple(encode_prompt(tokenizer, one.prompt)), k, noise_key(run.seed, *key, place, k))
                for one, place, k in wanted
            ],
            sampling,
        )
        grades = [task.grade(one, answer.text).reward or 0.0 for (one, _, _), answer in zip(wanted, drawn, strict=True)]
        return list(zip(drawn, grades, strict=True))

    def score() -> float:
        return mean(grade for _, grade in asked(list(task.problems("held-out"))[:HELD_OUT], 1, "held-out"))

    one_response_a_row(config.actor.mb_spec.max_tokens_per_mb)
    actor = FSDPPPOActor(config.actor)
    actor.create_process_group(ParallelStrategy(data_parallel_size=1))
    actor.initialize(None, FinetuneSpec(1, settings.steps * rollout.prompts_per_step, rollout.prompts_per_step))
    (folder / UPDATES).unlink(missing_ok=True)
    watch(actor, run, folder / UPDATES)
    stream = training_prompts(run, task)
    rewards, before = [], score()
    for step in range(settings.steps):
        answers = asked(list(stream.step(step)), rollout.group_size, "rollout", step)
        batch = [trajectory(answer, grade) for answer, grade in answers]
        for one, logp in zip(batch, actor.compute_logp(batch), strict=True):
            one["prox_logp"] = logp
        actor.ppo_update(actor.compute_advantages(batch))
        with torch.no_grad():
            for mine, theirs in zip(model.parameters(), actor.model.parameters(), strict=True):
                mine.copy_(theirs.full_tensor() if hasattr(theirs, "full_tensor") else theirs)
        rewards.append(mean(grade for _, grade in answers))
    after = score()
    actor.destroy()
    updates = [json.loads(line) for line in (folder / UPDATES).read_text().splitlines()]
    if updates[0]["log_ratio_max_abs"] > ON_POLICY:
        raise LabError(f"{folder}: the first update is not on-policy: {updates[0]['log_ratio_max_abs']:.3g} nats off")
    tokens = sum(one["response_tokens"] for one in updates)
    return {
        "arm": run.arm,
        "seed": run.seed,
        "updates": len(updates),
        "reward, first step": rewards[0],
        "last": rewards[-1],
        "held-out, before": before,
        "after": after,
        "clipped tokens": sum(one["clipped_tokens"] for one in updates) / tokens,
        "gradient norm": mean(one["grad_norm"] for one in updates),
    }


def trajectory(answer: Rollout, reward: float) -> dict[str, torch.Tensor]:
    """One response as AReaL's own workflow makes it: [1, prompt + response]."""
    prompt, response = list(answer.request.prompt_ids), answer.response_ids
    size = len(prompt) + len(response)
    return {
        "input_ids": torch.tensor([[*prompt, *response]], dtype=torch.int64),
        "attention_mask": torch.ones(1, size, dtype=torch.bool),
        "loss_mask": torch.tensor([[0] * len(prompt) + [1] * len(response)]),
        "logprobs": torch.tensor([[0.0] * len(prompt) + answer.logprobs]),
        "versions": torch.tensor([[-1] * len(prompt) + [0] * len(response)]),
        "rewards": torch.tensor([reward]),
    }


def main(folders: list[str]) -> None:
    """Train the runs one after the other, and print the table as Markdown."""
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    os.environ.setdefault("MASTER_PORT", "29517")
    rows = [trained(Path(folder).resolve()) for folder in folders]
    print("| " + " | ".join(rows[0]) + " |")
    print("|---" * len(rows[0]) + "|")
    for row in rows:
        told = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()]
        print("| " + " | ".join(told) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
