"""Who asks a model: one table of samplers."""

from gspo_lab.samplers.base import Request, Rollout, Sampler, Sampling, noise_key

SAMPLERS = {"transformers": "gspo_lab.samplers.transformers_sampler:TransformersSampler"}
"""Name -> a class called as `(model, tokenizer)`."""

__all__ = ["SAMPLERS", "Request", "Rollout", "Sampler", "Sampling", "noise_key"]
