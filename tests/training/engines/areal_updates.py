"""Runs in AReaL's environment: two updates of its FSDP actor on samples that the lab drew.

python areal_updates.py FOLDER        an attempt, with samples.json; leaves updates.jsonl,
stats.json
"""

import json
import os
import sys
from pathlib import Path

import torch
from laboratory import json_of


def main(folder: Path) -> None:
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    os.environ.setdefault("MASTER_PORT", "29517")
    from areal.api.alloc_mode import ParallelStrategy
    from areal.api.cli_args import GRPOConfig, load_expr_config
    from areal.api.io_struct import FinetuneSpec
    from areal.engine.fsdp_engine import FSDPPPOActor
    from areal.utils import stats_tracker

    from gspo_lab.training.engines.areal.plugin.actor_recorder import watch
    from gspo_lab.training.engines.external.attempt import Attempt

    config, _ = load_expr_config(["--config", str(folder / "config.yaml")], GRPOConfig)
    run = Attempt.read(folder).run
    actor = FSDPPPOActor(config.actor)
    actor.create_process_group(ParallelStrategy(data_parallel_size=1))
    actor.initialize(None, FinetuneSpec(1, 8, 4))
    watch(actor, run, folder / "updates.jsonl")
    batch = [_trajectory(item) for item in json_of(folder / "samples.json")]
    for item, logp in zip(batch, actor.compute_logp(batch), strict=True):
        item["prox_logp"] = logp
    actor.ppo_update(actor.compute_advantages(batch))
    (folder / "stats.json").write_text(json.dumps(stats_tracker.export_all(), default=float))
    actor.destroy()


def _trajectory(sample: dict[str, list[float]]) -> dict[str, torch.Tensor]:
    """[1, S] as AReaL's own workflow makes them."""
    prompt = sample["prompt"]
    response = sample["response"]
    size = len(prompt) + len(response)
    return {
        "input_ids": torch.tensor([[*prompt, *response]], dtype=torch.int64),
        "attention_mask": torch.ones(1, size, dtype=torch.bool),
        "loss_mask": torch.tensor([[0] * len(prompt) + [1] * len(response)]),
        "logprobs": torch.tensor([[0.0] * len(prompt) + sample["logprobs"]]),
        "versions": torch.tensor([[-1] * len(prompt) + [0] * len(response)]),
        "rewards": torch.tensor([sample["reward"]]),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
