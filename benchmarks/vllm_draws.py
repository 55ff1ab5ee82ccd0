"""Do vLLM and transformers draw from one distribution? Both answer the same sums with the same
weights.

OMP_NUM_THREADS=1 python benchmarks/vllm_draws.py tiny-qwen3 RUN/checkpoints/final --prompts 2048
"""

import argparse
from pathlib import Path

import torch

from gspo_lab.tasks import build_task
from gspo_lab.training.models.load import encode_prompt, load_model
from gspo_lab.training.samplers import Request, Sampler, Sampling, noise_key
from gspo_lab.training.samplers.transformers_sampler import TransformersSampler
from gspo_lab.training.samplers.vllm_sampler import VllmSampler

GROUP = 16
CALL = 512


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--prompts", type=int, default=1024)
    given = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = load_model(
        given.model, dtype="float32", device="cpu", checkpoint=given.checkpoint
    )
    task = build_task("addition", {"digits": 2, "hasty": 0.5}, Path())
    problems = task.problems("train")[: given.prompts]
    asked = [
        (place, problem, sample)
        for place, problem in enumerate(problems)
        for sample in range(GROUP)
    ]
    requests = [
        Request(
            one.id,
            tuple(encode_prompt(tokenizer, one.prompt)),
            sample,
            noise_key(7, "x", place, sample),
        )
        for place, one, sample in asked
    ]
    sampling = Sampling(max_tokens=task.max_tokens, stop=task.stop)
    samplers: dict[str, Sampler] = {
        "vllm": VllmSampler(model, tokenizer),
        "transformers": TransformersSampler(model, tokenizer),
    }
    means = []
    for name, sampler in samplers.items():
        parts = (requests[first : first + CALL] for first in range(0, len(requests), CALL))
        drawn = [rollout for part in parts for rollout in sampler.sample(part, sampling)]
        rewards = [
            task.grade(one, r.text).reward or 0.0
            for (_, one, _), r in zip(asked, drawn, strict=True)
        ]
        means.append(torch.tensor(rewards).view(len(problems), GROUP).mean(dim=1))
        print(f"{name}: {len(drawn)} responses, reward {means[-1].mean():.4f}")
    difference = means[0] - means[1]
    print(
        f"difference {difference.mean():+.4f}, standard error"
        f" {difference.std() / len(problems) ** 0.5:.4f}"
    )


if __name__ == "__main__":
    main()
