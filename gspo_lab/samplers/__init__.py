"""Who asks a model: one table of samplers."""

from gspo_lab.samplers.base import Request, Rollout, Sampler, Sampling, joined, noise_key

SAMPLERS = {
    "transformers": "gspo_lab.samplers.transformers_sampler:TransformersSampler",
    "vllm": "gspo_lab.samplers.vllm_sampler:VllmSampler",
}
"""Name -> a class called as `(model, tokenizer, dtype, rows)`: the trainer's own model, the precision to sample in, and
how many responses to draw at a time."""

__all__ = ["SAMPLERS", "Request", "Rollout", "Sampler", "Sampling", "joined", "noise_key"]
