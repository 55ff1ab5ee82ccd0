"""vLLM beside the model that it follows: times of start, push and sampling, and the error rates of
the check of a push.

It counts correct pushes that fail a sample, and checks whether one omitted update shows. Run it in
the environment of `nox -s vllm`:

    OMP_NUM_THREADS=1 python benchmarks/vllm_push.py tiny-qwen3-moe [--checkpoint FOLDER] [--dtype
    bfloat16]
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gspo_lab.training.models.load import load_model
from gspo_lab.training.samplers import Request, Sampling, noise_key
from gspo_lab.training.samplers.transformers_sampler import TransformersSampler
from gspo_lab.training.samplers.vllm_sampler import VllmSampler
from gspo_lab.training.samplers.vllm_weight_sync import WAYS, compare

RATES = (1e-6, 1e-5, 2e-4)
RESPONSES = 256
TOKENS = 32


def seconds(work: Callable[[], object], times: int = 5) -> float:
    """Seconds of the fastest run, after an untimed one."""
    work()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken)


def update(model: Any, rate: float) -> None:
    """One step of AdamW on random tokens."""
    random = torch.Generator().manual_seed(9)
    ids = torch.randint(model.config.get_text_config().vocab_size, (32, 24), generator=random).to(
        model.device
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    optimizer.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="embedded name, folder or Hub id")
    parser.add_argument("--checkpoint", type=Path, help="a run's checkpoints/final")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument(
        "--scale", type=float, default=1.0, help="what all weights are multiplied with"
    )
    parser.add_argument("--samples", type=int, default=200)
    given = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = load_model(
        given.model, dtype="float32", device="cpu", checkpoint=given.checkpoint
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(given.scale)

    sampler = VllmSampler(model, tokenizer, given.dtype)
    began = time.perf_counter()
    engine = sampler._running()
    print(
        f"start of the engine, import and first push included: {time.perf_counter() - began:.1f} s;"
        f" {sampler.facts()}"
    )
    print(
        f"a push: {seconds(lambda: WAYS[sampler._way](engine, model)):.3f} s, with its proof",
        end=" ",
    )
    print(f"{seconds(sampler.refresh):.3f} s; the last: {sampler.check}")

    prompt = tuple(tokenizer.encode("12+34="))
    requests = [Request("sum", prompt, sample, noise_key(sample)) for sample in range(RESPONSES)]
    own = TransformersSampler(model, tokenizer, given.dtype)
    for name, one in (("vllm", sampler), ("transformers", own)):
        taken = seconds(lambda one=one: one.sample(requests, Sampling(max_tokens=TOKENS)))  # type: ignore[misc]
        print(f"{RESPONSES} responses of at most {TOKENS} tokens, {name}: {taken:.2f} s")

    proofs = [compare(engine, model, given.dtype, seed) for seed in range(given.samples)]
    print(
        f"{given.samples} samples after a right push: {sum(not proof.holds for proof in proofs)}"
        f" fail; mean gaps: {statistics.median(proof.mean for proof in proofs):.2g} in the middle,"
        f" {max(proof.mean for proof in proofs):.2g} at most; of a token"
        f" {max(proof.largest for proof in proofs):.2g}"
    )
    start = copy.deepcopy(model.state_dict())
    for rate in RATES:
        model.load_state_dict(start)
        update(model, rate)
        proof = compare(engine, model, given.dtype, 0)
        print(f"one update at {rate:g} not pushed: {'passes' if proof.holds else 'told'}; {proof}")


if __name__ == "__main__":
    main()
