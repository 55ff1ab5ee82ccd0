"""The table of samplers."""

from gspo_lab.samplers.base import Request, Rollout, Sampler, Sampling, joined, noise_key

SAMPLERS = {
    "transformers": "gspo_lab.samplers.transformers_sampler:TransformersSampler",
    "vllm": "gspo_lab.samplers.vllm_sampler:VllmSampler",
}
"""Name -> a class called as `(model, tokenizer, dtype, rows)`: the trainer's model, the precision of sampling, and the
number of responses to sample at once."""

__all__ = ["SAMPLERS", "Request", "Rollout", "Sampler", "Sampling", "joined", "noise_key"]
